#include "platform/bandwidth.h"

#include <gtest/gtest.h>

#include "platform/thread_pool.h"

namespace nibble {
namespace {

TEST(Bandwidth, IsPositiveForAnyPool) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto rate = ProbeReadBandwidth(pool, 0.01, size_t{1} << 20);
    ASSERT_TRUE(rate);
    EXPECT_GT(*rate, 0);
  }
}

}  // namespace
}  // namespace nibble
