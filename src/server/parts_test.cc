#include <gtest/gtest.h>

#include <array>
#include <future>

#include "server/access.h"
#include "server/load_meter.h"
#include "server/metrics.h"
#include "server/page.h"
#include "server/recent_latencies.h"
#include "server/workers.h"

namespace nibble::server {
namespace {

TEST(AccessKeysTest, FindsNamesAndTellsNoKeys) {
  AccessKeys keys;
  EXPECT_TRUE(keys.Add("alice=one"));
  EXPECT_TRUE(keys.Add("c2VjcmV0=="));
  EXPECT_EQ(keys.Find("one"), "alice");
  EXPECT_EQ(keys.Find("c2VjcmV0=="), "key2");
  EXPECT_TRUE(keys.Add("c2VjcmV0IG9mIGEgbG8="));
  EXPECT_EQ(keys.Find("c2VjcmV0IG9mIGEgbG8="), "key3");
  for (const char* wrong : {"", "on", "onee", "alice=one", "One", "c2VjcmV0="}) {
    EXPECT_FALSE(keys.Find(wrong)) << wrong;
  }
  for (const char* bad :
       {"", "=x", "=", "admin=", "carol=one", "alice=two", "with blank", "carol=caf\xc3\xa9"}) {
    const Status added = keys.Add(bad);
    ASSERT_FALSE(added) << bad;
    EXPECT_EQ(added.error().message.find("one"), std::string::npos);
  }
}

TEST(WorkersTest, LongWorkMakesOnlyItsLikeWait) {
  // The workers go first: a promise may not while it is kept.
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::promise<void> third;
  std::array<std::promise<void>, 100> short_ones;
  Workers workers(2);
  workers.Add([released] { released.wait(); }, true);
  workers.Add([released] { released.wait(); }, true);
  workers.Add([&] { third.set_value(); }, true);
  for (std::promise<void>& done : short_ones) {
    workers.Add([&] { done.set_value(); });
    done.get_future().wait();  // or the test hangs
  }
  release.set_value();
  third.get_future().wait();
}

TEST(WorkersTest, OneThreadTakesBothKinds) {
  std::promise<void> first, second;
  Workers workers(1);
  workers.Add([&] { first.set_value(); }, true);
  workers.Add([&] { second.set_value(); });
  first.get_future().wait();
  second.get_future().wait();
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

TEST(PageTest, FilesAndTheirTag) {
  for (const char* none : {"", "/x", "//", "/app.js/", "/index.html", "/health"}) {
    EXPECT_FALSE(IsPageFile(none)) << none;
  }
  for (const char* path : {"/", "/app.js", "/app.css", "/icon.svg"}) {
    ASSERT_TRUE(IsPageFile(path)) << path;
    const HttpResponse whole = PageFile(path, "");
    EXPECT_EQ(whole.status, 200);
    EXPECT_GT(whole.body.size(), 100u);
    const std::string tag = whole.headers.front().second;
    const HttpResponse known = PageFile(path, "\"other\", W/" + tag);
    EXPECT_EQ(known.status, 304);
    EXPECT_TRUE(known.body.empty());
    EXPECT_EQ(PageFile(path, "\"other\"").status, 200);
    const std::string head = SerializeHead(known, {});
    EXPECT_EQ(head.find("\r\nContent-Length"),
              head.npos);  // it would be of a body that is not sent
    EXPECT_EQ(head.find("\r\nContent-Type"), head.npos);
  }
}

TEST(RecentLatenciesTest, NearestRankOfTheWindow) {
  RecentLatencies latencies;
  EXPECT_EQ(latencies.Over(0, 10).count, 0u);
  for (int i = 1; i <= 100; ++i) latencies.Add(i, 101 - i);
  const auto all = latencies.Over(100, 1000);
  EXPECT_EQ(all.count, 100u);
  EXPECT_EQ(all.p50, 50);
  EXPECT_EQ(all.p90, 90);
  EXPECT_EQ(all.p99, 99);
  const auto last = latencies.Over(100, 9);  // 91 … 100: values 10 … 1
  EXPECT_EQ(last.count, 10u);
  EXPECT_EQ(last.p50, 5);
  EXPECT_EQ(last.p99, 10);
  for (int i = 0; i < 5000; ++i) latencies.Add(200, 7);  // older ones make room
  EXPECT_EQ(latencies.Over(200, 1000).count, 4096u);
  EXPECT_EQ(latencies.Over(200, 1000).p99, 7);
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
