#include "advise/attention_exactness.h"

#include <gtest/gtest.h>

#include "kernels/kernel_table.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

TEST(AttentionExactness, LongContextsStayWithinTheBoundInTheSameWorkspace) {
  ThreadPool pool(2);
  const KernelTable& kernels = KernelsFor(SupportedIsas().back());
  const auto results = MeasureAttentionExactness(kernels, pool, kExactnessPositions,
                                                 {.heads = 2, .head_dim = 32, .rows = 3});
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->size(), 3U);
  for (const AttentionExactness& r : *results) {
    EXPECT_GT(r.max_error, 0) << r.positions;
    EXPECT_LE(r.max_error, r.bound) << r.positions;
    EXPECT_LE(r.worst_ratio, 1) << r.positions;
    EXPECT_EQ(r.workspace_bytes, results->front().workspace_bytes);
  }
}

TEST(AttentionExactness, SealedPagesStayWithinTheirBound) {
  ThreadPool pool(2);
  const KernelTable& kernels = KernelsFor(SupportedIsas().back());
  const int positions[] = {1024, 32768};
  for (const KvFormatTraits& traits : AllKvFormats()) {
    for (const Act act : {Act::kInt8, Act::kF32}) {
      const auto results = MeasureAttentionExactness(kernels, pool, positions,
                                                     {.heads = 2,
                                                      .head_dim = 32,
                                                      .k = traits.format,
                                                      .v = traits.format,
                                                      .act = act,
                                                      .rows = 2});
      ASSERT_TRUE(results) << results.error().message;
      for (const AttentionExactness& r : *results) {
        EXPECT_LE(r.worst_ratio, 1) << traits.name << " " << r.positions;
        EXPECT_EQ(r.workspace_bytes, results->front().workspace_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace nibble
