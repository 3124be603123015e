#include "platform/cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "platform/cgroup.h"
#include "platform/sysfs.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(Isa, NamesAreReadBack) {
  for (Isa isa :
       {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kNeonDot}) {
    EXPECT_EQ(IsaFromName(IsaName(isa)), isa);
  }
  EXPECT_EQ(IsaFromName("sse9"), std::nullopt);
}

TEST(Isa, ScalarIsAlwaysThereAndFirst) { EXPECT_EQ(SupportedIsas().front(), Isa::kScalar); }

class IsaChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* old = std::getenv("NIBBLE_ISA")) before_ = old;
  }
  void TearDown() override { setenv("NIBBLE_ISA", before_.c_str(), 1); }
  std::string before_;
};

TEST_F(IsaChoice, EnvironmentForcesALowerOne) {
  setenv("NIBBLE_ISA", "scalar", 1);
  EXPECT_EQ(ChooseIsa(), Isa::kScalar);
  setenv("NIBBLE_ISA", "", 1);
  EXPECT_EQ(ChooseIsa(), SupportedIsas().back());
}

TEST_F(IsaChoice, UnknownAndUnsupportedAreErrorsThatListTheKnown) {
  setenv("NIBBLE_ISA", "mmx", 1);
  const auto unknown = ChooseIsa();
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("'mmx'"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("scalar"), std::string::npos);
#if defined(__x86_64__)
  setenv("NIBBLE_ISA", "neon", 1);
#else
  setenv("NIBBLE_ISA", "avx2", 1);
#endif
  const auto foreign = ChooseIsa();
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("cannot run"), std::string::npos);
}

TEST(Topology, IsPlausible) {
  const CpuTopology topology = ReadTopology();
  EXPECT_GE(topology.affinity_threads, 1);
  EXPECT_GE(topology.threads, 1);
  EXPECT_LE(topology.threads, topology.affinity_threads);
  EXPECT_GE(topology.last_level_cache, size_t{64} << 10);
  EXPECT_GT(topology.memory_total, size_t{16} << 20);
  EXPECT_LE(topology.memory_available, topology.memory_total);
  EXPECT_GE(topology.numa_nodes, 1);
}

TEST(Topology, CountsEachLastLevelCacheOnce) {
  const testing::TempDir dir;
  const int cpu = AllowedCpus().front();
  const auto cache = [&](int index, const char* level, const char* type, const char* size) {
    const fs::path folder = dir.path() / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) /
                            "cache" / ("index" + std::to_string(index));
    Write(folder / "level", level);
    Write(folder / "type", type);
    Write(folder / "size", size);
    Write(folder / "shared_cpu_list", "0-127");
  };
  cache(0, "1", "Data", "32K");
  cache(1, "1", "Instruction", "64K");
  cache(2, "2", "Unified", "1024K");
  cache(3, "3", "Unified", "48M");
  Write(dir.path() / "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
  const CpuTopology topology = ReadTopology(dir.path());
  EXPECT_EQ(topology.last_level_cache, size_t{48} << 20);
  // Other processors of this process have no entry, and so add nothing.
  EXPECT_EQ(topology.all_last_level_caches, size_t{48} << 20);
  EXPECT_EQ(topology.memory_total, 1000U << 10);
  EXPECT_EQ(topology.memory_available, 500U << 10);
}

TEST(Topology, AddsUpTheCachesOfSeveralGroups) {
  const testing::TempDir dir;
  for (int cpu = 0; cpu < 6; ++cpu) {
    const fs::path folder =
        dir.path() / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "cache" / "index0";
    Write(folder / "level", "3");
    Write(folder / "type", "Unified");
    Write(folder / "size", "32768K");
    Write(folder / "shared_cpu_list", cpu < 3 ? "0-2" : "3-5");
  }
  const std::vector<int> some = {1, 2};
  EXPECT_EQ(ReadLastLevelCaches(dir.path(), some).all, size_t{32} << 20);
  const std::vector<int> both = {0, 2, 4, 5};
  EXPECT_EQ(ReadLastLevelCaches(dir.path(), both).all, size_t{64} << 20);
  EXPECT_EQ(ReadLastLevelCaches(dir.path(), both).largest, size_t{32} << 20);
}

TEST(Sysfs, ListsOfProcessors) {
  EXPECT_EQ(ParseCpuList("0-2,7,9-9"), (std::vector{0, 1, 2, 7, 9}));
  EXPECT_TRUE(ParseCpuList("").empty());
  EXPECT_TRUE(ParseCpuList("x").empty());
  EXPECT_EQ(ParseCpuList("3,x"), (std::vector{3}));
  EXPECT_TRUE(ParseCpuList("0-99999999999").empty());
}

TEST(Cgroup, NothingThereMeansNoLimit) {
  const testing::TempDir dir;
  const CgroupLimits limits = ReadCgroupLimits(dir.path());
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(limits.memory, 0u);
}

TEST(Cgroup, Version2TakesTheTightestOfAllParents) {
  const testing::TempDir dir;
  Write(dir.path() / "proc/self/cgroup", "0::/outer/inner\n");
  Write(dir.path() / "proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  const fs::path top = dir.path() / "sys/fs/cgroup";
  Write(top / "outer/cpu.max", "150000 100000\n");
  Write(top / "outer/memory.max", "max\n");
  Write(top / "outer/inner/cpu.max", "max 100000\n");
  Write(top / "outer/inner/memory.max", "1000000\n");
  Write(top / "outer/inner/memory.current", "900000\n");
  Write(top / "outer/inner/memory.stat", "anon 5\ninactive_file 100000\nactive_file 200000\n");
  const CgroupLimits limits = ReadCgroupLimits(dir.path());
  EXPECT_DOUBLE_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory, 1000000u);
  EXPECT_EQ(limits.memory_available, 400000u);
}

TEST(Cgroup, Version1ReadsEachController) {
  const testing::TempDir dir;
  Write(dir.path() / "proc/self/cgroup",
        "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:pids:/docker/abc\n");
  Write(dir.path() / "proc/self/mountinfo",
        "31 24 0:27 /docker/abc /cg/memory ro - cgroup cgroup rw,memory\n"
        "32 24 0:28 /docker/abc /cg/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  Write(dir.path() / "cg/cpu/cpu.cfs_quota_us", "250000\n");
  Write(dir.path() / "cg/cpu/cpu.cfs_period_us", "100000\n");
  Write(dir.path() / "cg/memory/memory.limit_in_bytes", "2000000\n");
  Write(dir.path() / "cg/memory/memory.usage_in_bytes", "500000\n");
  const CgroupLimits limits = ReadCgroupLimits(dir.path());
  EXPECT_DOUBLE_EQ(limits.cpus, 2.5);
  EXPECT_EQ(limits.memory, 2000000u);
  EXPECT_EQ(limits.memory_available, 1500000u);
}

TEST(Cgroup, Version1WithoutLimit) {
  const testing::TempDir dir;
  Write(dir.path() / "proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/\n");
  Write(dir.path() / "proc/self/mountinfo",
        "31 24 0:27 / /cg/memory ro - cgroup cgroup rw,memory\n"
        "32 24 0:28 / /cg/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  Write(dir.path() / "cg/cpu/cpu.cfs_quota_us", "-1\n");
  Write(dir.path() / "cg/cpu/cpu.cfs_period_us", "100000\n");
  Write(dir.path() / "cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupLimits limits = ReadCgroupLimits(dir.path());
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(limits.memory, 0u);
}

TEST(Cgroup, MalformedFilesAreNoLimit) {
  const testing::TempDir dir;
  Write(dir.path() / "proc/self/cgroup", "0::/../../x\nnonsense\n1:\n0::\n");
  Write(dir.path() / "proc/self/mountinfo", "a b\n30 23 0:26 / /cg - cgroup2 cgroup2 rw\n");
  Write(dir.path() / "cg/cpu.max", "many few\n");
  Write(dir.path() / "cg/memory.max", "-5\n");
  const CgroupLimits limits = ReadCgroupLimits(dir.path());
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(limits.memory, 0u);
}

}  // namespace
}  // namespace nibble
