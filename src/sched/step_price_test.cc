#include "sched/step_price.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(StepPrice, IsLinearBetweenPointsAndBeyond) {
  const StepPrice price({{1, 10}, {8, 10}, {32, 34}}, 0, 0);
  EXPECT_DOUBLE_EQ(price.Seconds({1, 0, 0}), 10);
  EXPECT_DOUBLE_EQ(price.Seconds({5, 0, 0}), 10);
  EXPECT_DOUBLE_EQ(price.Seconds({20, 0, 0}), 22);
  EXPECT_DOUBLE_EQ(price.Seconds({132, 0, 0}), 134);
  EXPECT_DOUBLE_EQ(price.Seconds({}), 0);
  EXPECT_DOUBLE_EQ(StepPrice({{1, 7}}, 0, 0).Seconds({100, 0, 0}), 7);
}

TEST(StepPrice, NeverFallsWithMoreRows) {
  const StepPrice price({{1, 10}, {8, 4}, {16, 12}}, -1, -1);  // noise of a measurement
  EXPECT_DOUBLE_EQ(price.Seconds({8, 100, 3}), 10);
  EXPECT_DOUBLE_EQ(price.Seconds({16, 0, 0}), 12);
}

TEST(StepPrice, CountsKvTokensAndLogits) {
  const StepPrice price({{1, 1}}, 0.5, 2);
  EXPECT_DOUBLE_EQ(price.Seconds({3, 10, 2}), 1 + 5 + 4);
  // Three rows from position 4 on read 5, 6 and 7 positions.
  EXPECT_EQ(LoadOf(4, 3, true).kv_tokens, 18);
  EXPECT_EQ(LoadOf(0, 1, false).kv_tokens, 1);
  EXPECT_EQ(LoadOf(4, 3, true).logit_rows, 1);
  // They read 7 different ones.
  EXPECT_EQ(LoadOf(4, 3, true).kv_reads, 7);
  EXPECT_DOUBLE_EQ(StepPrice({{1, 1}}, 0, 0, 0.25).Seconds(LoadOf(4, 3, true)), 1 + 7 * 0.25);
}

TEST(StepPrice, RowsWithinIsTheMostThatFits) {
  const StepPrice price({{1, 1}, {101, 101}}, 0.01, 0);
  const StepLoad load{.rows = 10, .kv_tokens = 100, .logit_rows = 10};
  for (const double limit : {0.0, 11.0, 12.5, 30.0, 80.0, 1e9}) {
    const int rows = RowsWithin(price, load, 50, 64, limit);
    EXPECT_TRUE(rows == 0 || price.Seconds(load + LoadOf(50, rows, false)) <= limit);
    EXPECT_TRUE(rows == 64 || price.Seconds(load + LoadOf(50, rows + 1, false)) > limit);
  }
  EXPECT_EQ(RowsWithin(StepPrice(), load, 50, 64, 0), 64);
}

}  // namespace
}  // namespace nibble
