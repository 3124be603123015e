#include "platform/bandwidth.h"

#include <gtest/gtest.h>

#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

TEST(ReadProbe, ReadsAnySizeWithAnyPool) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const size_t bytes : {size_t{1}, size_t{100000}, size_t{5} << 20}) {
      auto probe = ReadProbe::OfSize(pool, bytes);
      ASSERT_TRUE(probe);
      EXPECT_GT(probe->Round(), 0);
      const ReadRates rates = probe->Measure(0);
      EXPECT_GT(rates.median, 0);
      EXPECT_GE(rates.best, rates.median);
      EXPECT_FALSE(rates.form.empty());
      EXPECT_GE(rates.bytes, bytes);
    }
  }
}

TEST(ReadProbe, OfMemoryIsLargerThanTheCaches) {
  ThreadPool pool(2);
  auto probe = ReadProbe::OfMemory(pool);
  if (!probe) {
    EXPECT_EQ(probe.error().kind, ErrorKind::kNoRoom);
    GTEST_SKIP() << probe.error().message;
  }
  EXPECT_GE(probe->Measure(0).bytes, 4 * ReadTopology().last_level_cache);
}

}  // namespace
}  // namespace nibble
