#include "platform/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cfenv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "platform/this_thread.h"
#include "tests/support/sanitizer.h"

namespace nibble {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryThreadOnceAndWaits) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  std::vector<int> runs(static_cast<size_t>(GetParam()), 0);
  for (int round = 1; round <= 200; ++round) {
    pool.Run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
    for (int count : runs) ASSERT_EQ(count, round);
  }
}

TEST_P(ThreadPoolTest, ParallelForCoversTheRangeInWholeGrains) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 7, 16, 17, 1000}) {
    for (const int64_t grain : {1, 8, 64}) {
      std::vector<int> seen(static_cast<size_t>(count), 0);
      pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end, int) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_TRUE(end % grain == 0 || end == count);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (int times : seen) ASSERT_EQ(times, 1);
    }
  }
}

TEST_P(ThreadPoolTest, BarrierSeparatesPhases) {
  ThreadPool pool(GetParam());
  const auto n = static_cast<size_t>(GetParam());
  std::vector<int> value(n, 0);
  std::vector<int> sums(n, 0);
  constexpr int kRounds = 100;
  pool.Run([&](int thread) {
    for (int round = 1; round <= kRounds; ++round) {
      value[static_cast<size_t>(thread)] = round * (thread + 1);
      pool.Barrier(thread);
      sums[static_cast<size_t>(thread)] += std::accumulate(value.begin(), value.end(), 0);
      pool.Barrier(thread);
    }
  });
  const int threads = GetParam();
  const int expected = kRounds * (kRounds + 1) / 2 * threads * (threads + 1) / 2;
  for (int sum : sums) EXPECT_EQ(sum, expected);
}

TEST_P(ThreadPoolTest, WorkersRoundAsTheCallerAndKeepDenormals) {
  ThreadPool pool(GetParam());
  std::vector<float> thirds(static_cast<size_t>(GetParam()), 0);
  std::vector<float> halves(static_cast<size_t>(GetParam()), 0);
  volatile float one = 1;
  volatile float three = 3;
  volatile float smallest_normal = 0x1p-126f;
  for (const int mode : {FE_DOWNWARD, FE_TONEAREST}) {
    std::fesetround(mode);
    pool.Run([&](int thread) {
      thirds[static_cast<size_t>(thread)] = one / three;
      halves[static_cast<size_t>(thread)] = smallest_normal * 0.5f;
    });
    std::fesetround(FE_TONEAREST);
    for (float third : thirds)
      EXPECT_EQ(third, mode == FE_DOWNWARD ? 0x1.555554p-2f : 0x1.555556p-2f);
    for (float half : halves) EXPECT_EQ(half, 0x1p-127f);
  }
}

TEST_P(ThreadPoolTest, WorksAfterParking) {
  ThreadPool pool(GetParam());
  std::vector<int> runs(static_cast<size_t>(GetParam()), 0);
  for (int round = 1; round <= 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // far beyond the spin
    pool.Run([&](int thread) {
      if (thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++runs[static_cast<size_t>(thread)];
      pool.Barrier(thread);
    });
    for (int count : runs) ASSERT_EQ(count, round);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolTest, testing::Values(1, 2, 3, 4, 8, 9));

// Threads of this process, beside the caller, that run or want to.
int BusyThreads() {
  int busy = 0;
  const std::string self = std::to_string(gettid());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == self) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    const size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.substr(name_end + 2, 1) == "R") ++busy;
  }
  return busy;
}

TEST(ThreadPoolSliceTest, ThreadsAskForShortSlices) {
  ThreadPool pool(2);
  std::array<uint64_t, 2> slices = {};
  pool.Run([&](int thread) { slices[static_cast<size_t>(thread)] = TimeSliceOfThisThread(); });
  for (const uint64_t slice : slices) {
    if (slice == 0) GTEST_SKIP() << "this kernel tells no slices";
    EXPECT_EQ(slice, kComputeSliceNs);
  }
}

TEST(ThreadPoolSliceTest, AThreadMovesAndMayRunWhereItMight) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor";
  const int before = ProcessorOfThisThread();
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  // The scheduler may move it back at once.
  bool moved = false;
  for (int i = 0; i < 100 && !moved; ++i) {
    MoveOffProcessors(std::array{before});
    moved = ProcessorOfThisThread() != before;
  }
  EXPECT_TRUE(moved);
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
}

TEST(ThreadPoolIdleTest, IdleThreadsSleepInTheKernel) {
  ThreadPool pool(4);
  pool.Run([](int) {});
  // However long it takes on a loaded machine, in the end they sleep.
  int busy = BusyThreads();
  for (int look = 0; look < 10000 && busy > 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    busy = BusyThreads();
  }
  EXPECT_EQ(busy, 0);
}

// An address space limit ends the sanitizers' own run-time.
#if !NIBBLE_SANITIZED
enum Outcome : int { kThrew, kStarted, kNoLimit };

// Leaves room for the stacks of a few threads only, then asks for many.
Outcome StartMoreThreadsThanFit() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t room = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
  const rlimit limit = {room, room};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return kNoLimit;
  const size_t more = size_t{128} << 20;
  if (mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
    return kNoLimit;
  }
  try {
    ThreadPool pool(4096);
  } catch (const std::system_error&) {
    return kThrew;
  }
  return kStarted;
}

TEST(ThreadPoolFailureTest, ThrowsWhenThereAreNoMoreThreads) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(StartMoreThreadsThanFit());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoLimit) GTEST_SKIP() << "limits have no effect here (qemu-user)";
  EXPECT_EQ(WEXITSTATUS(status), kThrew);
}
#endif

}  // namespace
}  // namespace nibble
