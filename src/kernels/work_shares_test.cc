#include "kernels/work_shares.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace nibble {
namespace {

TEST(WorkShares, OneThreadTakesItsOwnInOrderThenTheOthersFromTheBack) {
  WorkShares shares(5, 2);
  std::vector<int> taken;
  for (int unit = shares.Take(0); unit >= 0; unit = shares.Take(0)) taken.push_back(unit);
  EXPECT_EQ(taken, (std::vector<int>{0, 1, 4, 3, 2}));
  EXPECT_EQ(shares.Take(1), -1);
}

TEST(WorkShares, FewerUnitsThanThreads) {
  WorkShares shares(1, 8);
  EXPECT_EQ(shares.Take(3), 0);
  for (int thread = 0; thread < 8; ++thread) EXPECT_EQ(shares.Take(thread), -1);
}

TEST(WorkShares, EveryUnitIsTakenOnceByAnyNumberOfThreads) {
  constexpr int kUnits = 20000;
  for (const int threads : {2, 5, 100}) {
    WorkShares shares(kUnits, threads);
    std::vector<std::atomic<int>> taken(kUnits);
    {
      std::vector<std::jthread> workers;
      for (int thread = 0; thread < threads; ++thread) {
        workers.emplace_back([&, thread] {
          for (int unit = shares.Take(thread); unit >= 0; unit = shares.Take(thread)) {
            ++taken[static_cast<size_t>(unit)];
          }
        });
      }
    }
    for (const auto& count : taken) ASSERT_EQ(count, 1) << threads;
  }
}

}  // namespace
}  // namespace nibble
