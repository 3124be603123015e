#include "cost/serving_report.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(Summary, PercentilesAreLinearBetweenValues) {
  const Summary summary = Summarise({4, 1, 3, 2, 5});
  EXPECT_DOUBLE_EQ(summary.mean, 3);
  EXPECT_DOUBLE_EQ(summary.p50, 3);
  EXPECT_DOUBLE_EQ(summary.p90, 4.6);  // numpy.percentile([1, 2, 3, 4, 5], 90)
  EXPECT_DOUBLE_EQ(summary.p99, 4.96);
  EXPECT_DOUBLE_EQ(Summarise({7}).p99, 7);
  EXPECT_DOUBLE_EQ(Summarise({}).mean, 0);
}

TEST(ServingReport, CountsFromTheArrival) {
  const std::vector<RequestTimes> requests = {
      {.arrival_s = 10, .token_s = {11, 12, 14}, .finished = true, .prompt_tokens = 5},
      {.arrival_s = 12, .rejected = true},
      {.arrival_s = 13, .token_s = {16}, .finished = true, .prompt_tokens = 7},
      {.arrival_s = 14, .token_s = {30}}};  // cut off
  const ServingReport report = MakeServingReport(requests);
  EXPECT_EQ(report.requests, 4);
  EXPECT_EQ(report.finished, 2);
  EXPECT_EQ(report.rejected, 1);
  EXPECT_EQ(report.prompt_tokens, 12);
  EXPECT_EQ(report.generated_tokens, 4);
  EXPECT_DOUBLE_EQ(report.duration_s, 6);
  EXPECT_DOUBLE_EQ(report.throughput_tok_s, 4.0 / 6);
  EXPECT_DOUBLE_EQ(report.ttft_s.mean, 2);
  EXPECT_DOUBLE_EQ(report.tpot_s.mean, 1.5);  // of the one that has a second token
  EXPECT_DOUBLE_EQ(report.itl_s.p50, 1.5);
  EXPECT_DOUBLE_EQ(report.e2e_s.mean, 3.5);
}

}  // namespace
}  // namespace nibble
