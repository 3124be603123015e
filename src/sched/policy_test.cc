#include "sched/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nibble {
namespace {

TEST(Policy, FirstComeIgnoresPriorities) {
  EXPECT_LT(OrderOf(Policy::kFirstCome, 9, 1), OrderOf(Policy::kFirstCome, 0, 2));
}

TEST(Policy, LowerPriorityValuesOvertakeBoundedly) {
  EXPECT_LT(OrderOf(Policy::kPriority, 0, 100), OrderOf(Policy::kPriority, 1, 0));
  EXPECT_LT(OrderOf(Policy::kPriority, 2, 1), OrderOf(Policy::kPriority, 2, 3));
  // Whoever came more than kOvertaking later for each level stays behind.
  EXPECT_LT(OrderOf(Policy::kPriority, 1, 0), OrderOf(Policy::kPriority, 0, kOvertaking + 1));
  EXPECT_LT(OrderOf(Policy::kPriority, 3, 0), OrderOf(Policy::kPriority, 1, 2 * kOvertaking + 1));
  EXPECT_LT(OrderOf(Policy::kPriority, 2147483647, 0), OrderOf(Policy::kPriority, 2147483647, 1));
}

TEST(Policy, ABusLeavesFullOrWhenNobodyElseComes) {
  EXPECT_EQ(BusLoad(3, 4, false), 0);
  EXPECT_EQ(BusLoad(4, 4, false), 4);
  EXPECT_EQ(BusLoad(9, 4, false), 4);
  EXPECT_EQ(BusLoad(3, 4, true), 3);
  EXPECT_EQ(BusLoad(0, 4, true), 0);
}

TEST(Policy, TheLongestPrefixIsChosenAndTheFirstOfEqualOnes) {
  const std::vector<WaitingView> waiting = {{0, 0}, {64, 0}, {96, 0}, {96, 0}};
  EXPECT_EQ(ChooseNext(Policy::kLongestPrefix, waiting), 2U);
  EXPECT_EQ(ChooseNext(Policy::kFirstCome, waiting), 0U);
  EXPECT_EQ(ChooseNext(Policy::kPriority, waiting), 0U);
  const std::vector<WaitingView> nothing = {{0, 0}, {0, 0}};
  EXPECT_EQ(ChooseNext(Policy::kLongestPrefix, nothing), 0U);
}

// However good the prefixes of those who keep coming: the first is passed over kMostPasses times.
TEST(Policy, TheFirstIsNotPassedOverForEver) {
  std::vector<WaitingView> waiting = {{0, 0}, {1000, 0}};
  int waited = 0;
  while (ChooseNext(Policy::kLongestPrefix, waiting) != 0) {
    ++waiting[0].passes;
    ++waited;
    ASSERT_LE(waited, kMostPasses);
  }
  EXPECT_EQ(waited, kMostPasses);
}

}  // namespace
}  // namespace nibble
