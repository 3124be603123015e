#include <gtest/gtest.h>

#include <array>

#include "server/access.h"
#include "server/load_meter.h"
#include "server/metrics.h"

namespace nibble::server {
namespace {

TEST(AccessKeysTest, FindsNamesAndTellsNoKeys) {
  AccessKeys keys;
  EXPECT_TRUE(keys.Add("alice=one"));
  EXPECT_TRUE(keys.Add("c2VjcmV0=="));
  EXPECT_EQ(keys.Find("one"), "alice");
  EXPECT_EQ(keys.Find("c2VjcmV0=="), "key2");
  for (const char* wrong : {"", "on", "onee", "alice=one", "One", "c2VjcmV0="}) {
    EXPECT_FALSE(keys.Find(wrong)) << wrong;
  }
  for (const char* bad : {"", "=x", "bob=one", "alice=two", "with blank", "bob=caf\xc3\xa9"}) {
    const Status added = keys.Add(bad);
    ASSERT_FALSE(added) << bad;
    EXPECT_EQ(added.error().message.find("one"), std::string::npos);
  }
}

TEST(AccessKeysTest, ReadsLines) {
  AccessKeys keys;
  EXPECT_TRUE(keys.AddLines("# ours\r\n\r\na=1\nb=2  \n"));
  EXPECT_EQ(keys.Find("2"), "b");
  AccessKeys wrong;
  const Status added = wrong.AddLines("a=1\n\na=2\n");
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().message.substr(0, 7), "line 3:");
  EXPECT_FALSE(AccessKeys().AddLines("# none\n"));
}

TEST(LoadMeterTest, HalfOfWhatWaitsByTheMeasuredRate) {
  LoadMeter meter;
  EXPECT_EQ(meter.RetryAfter(100, 100000), 1);
  for (int i = 0; i <= 60; ++i) meter.Sample(i, int64_t{i} * 2, int64_t{i} * 500, true);
  EXPECT_NEAR(meter.finished_per_s(), 2, 1e-9);
  EXPECT_EQ(meter.RetryAfter(38, 0), 10);     // (19 + 1) / 2
  EXPECT_EQ(meter.RetryAfter(0, 20000), 20);  // 10,000 tokens at 500 a second
  EXPECT_EQ(meter.RetryAfter(1 << 20, 0), 600);
  meter.Sample(1000, 120, 30000, false);  // nothing to do: that is no slowness
  EXPECT_NEAR(meter.finished_per_s(), 2, 1e-9);
}

TEST(MetricsTest, HistogramsCountUpToTheirBounds) {
  constexpr std::array<double, 3> kBounds = {1, 2, 5};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 5.0, 7.0}) histogram.Add(value);
  EXPECT_EQ(histogram.counts()[0], 2);
  EXPECT_EQ(histogram.counts()[1], 1);
  EXPECT_EQ(histogram.counts()[2], 1);
  EXPECT_EQ(histogram.counts()[3], 1);
  EXPECT_EQ(histogram.count(), 5);
  EXPECT_DOUBLE_EQ(histogram.sum(), 15);
}

TEST(MetricsTest, LabelsAreEscapedAndBucketsAddUp) {
  Metrics metrics;
  metrics.AddFinished(0, "stop", {.prompt_tokens = 7, .generated_tokens = 3}, 0.2);
  metrics.AddFinished(1, "length", {.prompt_tokens = 7, .generated_tokens = 4}, 0.2);
  const std::string text = MetricsText(metrics, {.prefix = "vllm", .model = "a\"b\\c\n"});
  const std::string labels = R"({model_name="a\"b\\c\n")";
  EXPECT_NE(text.find("vllm:prompt_tokens_total" + labels + "} 7\n"), text.npos);
  EXPECT_NE(text.find("vllm:generation_tokens_total" + labels + "} 7\n"), text.npos);
  EXPECT_NE(text.find("vllm:request_success_total" + labels + ",finished_reason=\"stop\"} 1\n"),
            text.npos);
  EXPECT_NE(text.find("vllm:e2e_request_latency_seconds_bucket" + labels + ",le=\"+Inf\"} 2\n"),
            text.npos);
}

}  // namespace
}  // namespace nibble::server
