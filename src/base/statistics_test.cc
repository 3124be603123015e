#include "base/statistics.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheTwo) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({5, 1, 3}), 3);
  EXPECT_EQ(Median({4, 1, 3, 100}), 3.5);
  EXPECT_EQ(Median({2, 2, 9, 1}), 2);
}

}  // namespace
}  // namespace nibble
