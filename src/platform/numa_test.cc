#include "platform/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "platform/cpu.h"
#include "platform/memory.h"
#include "platform/sysfs.h"
#include "platform/thread_pool.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

void WriteFile(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

void WriteNodes(const fs::path& root) {
  const fs::path nodes = root / "sys/devices/system/node";
  WriteFile(nodes / "has_memory", "0-1,4");
  WriteFile(nodes / "node0/cpulist", "0-3,8-11");
  WriteFile(nodes / "node1/cpulist", "4-7,12-15");
  WriteFile(nodes / "node2/cpulist", "16-19");  // no memory
  WriteFile(nodes / "node4/cpulist", "20");
}

TEST(Numa, NodesHaveMemoryAndProcessorsOfThisProcess) {
  const testing::TempDir dir;
  WriteNodes(dir.path());
  const std::array all = {0, 1, 2, 3, 4, 9, 12, 16, 20};
  const auto nodes = ReadNumaNodes(dir.path(), all);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(nodes[0].cpus, (std::vector{0, 1, 2, 3, 9}));
  EXPECT_EQ(nodes[1].id, 1);
  EXPECT_EQ(nodes[1].cpus, (std::vector{4, 12}));
  EXPECT_EQ(nodes[2].id, 4);
  const std::array second = {5, 6};
  const auto one = ReadNumaNodes(dir.path(), second);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].id, 1);
}

TEST(Numa, WithoutSysfsThereAreNone) {
  const testing::TempDir dir;
  EXPECT_TRUE(ReadNumaNodes(dir.path()).empty());
  EXPECT_EQ(ReadTopology(dir.path()).numa_nodes, 1);
}

TEST(Numa, ThreadsAreDealtByProcessorsAndNeighboursStayTogether) {
  const std::vector<NumaNode> nodes = {{0, {0, 1, 2, 3}}, {1, {4, 5}}};
  const auto dealt = [&](int threads) {
    std::vector<size_t> to;
    for (int t = 0; t < threads; ++t) to.push_back(NumaNodeOfThread(nodes, t, threads));
    return to;
  };
  EXPECT_EQ(dealt(6), (std::vector<size_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(dealt(3), (std::vector<size_t>{0, 0, 1}));
  EXPECT_EQ(dealt(1), (std::vector<size_t>{0}));
  EXPECT_EQ(dealt(12), (std::vector<size_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(Numa, AThreadStaysWhereItIsPinned) {
  const std::vector<int> cpus = AllowedCpus();
  std::thread([&] {
    ASSERT_TRUE(PinThisThread(std::span(cpus).last(1)));
    EXPECT_EQ(AllowedCpus(), std::vector{cpus.back()});
    const auto nowhere = PinThisThread({});
    EXPECT_FALSE(nowhere);
  }).join();
  EXPECT_EQ(AllowedCpus(), cpus);
}

TEST(Numa, PoolsPinTheirWorkersAndLeaveTheCaller) {
  const std::vector<int> cpus = AllowedCpus();
  const std::vector<NumaNode> nodes = {{0, {cpus.front()}}, {1, {cpus.back()}}};
  ThreadPool pool(4, nodes);
  std::vector<std::vector<int>> seen(4);
  pool.Run([&](int thread) { seen[static_cast<size_t>(thread)] = AllowedCpus(); });
  EXPECT_EQ(seen[0], cpus);
  EXPECT_EQ(seen[1], std::vector{cpus.front()});
  EXPECT_EQ(seen[2], std::vector{cpus.back()});
  EXPECT_EQ(seen[3], std::vector{cpus.back()});
}

TEST(Numa, InterleavedMemoryHasThePolicy) {
  const auto nodes = ReadNumaNodes();
  if (nodes.empty()) GTEST_SKIP() << "Linux does not tell of nodes";
  auto buffer = AlignedBuffer::Allocate(100000);
  ASSERT_TRUE(buffer);
  const Status status = InterleaveMemory(buffer->as<std::byte>(), nodes);
  int mode = -1;
  if (syscall(SYS_get_mempolicy, &mode, nullptr, 0, buffer->data(), MPOL_F_ADDR) != 0) {
    GTEST_SKIP() << "no memory policies here: " << std::strerror(errno);
  }
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(mode, MPOL_INTERLEAVE);
  buffer->data()[99999] = std::byte{1};
}

}  // namespace
}  // namespace nibble
