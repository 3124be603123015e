#include "cost/arrivals.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "cost/latency_sketch.h"

namespace nibble {
namespace {

std::vector<Arrival> All(const std::string& text, const ArrivalOptions& options,
                         const TraceOptions& trace = {}) {
  std::istringstream first(text), second(text);
  const auto survey = SurveyTrace(first, trace);
  EXPECT_TRUE(survey) << survey.error().message;
  const auto stream = TraceStream::Open(second, trace, *survey, options);
  EXPECT_TRUE(stream) << stream.error().message;
  std::vector<Arrival> all;
  while (true) {
    auto next = (*stream)->Next();
    EXPECT_TRUE(next) << next.error().message;
    if (!next || !*next) return all;
    all.push_back(*std::move(*next));
  }
}

std::string RandomLog(int count, bool ordered) {
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int64_t time = ordered ? i * 1000 : static_cast<int64_t>(random() % 1000000);
    text += fmt::format("{{\"arrival_time_ns\": {}, \"input_toks\": {}, \"output_toks\": 3}}\n",
                        time, 1 + i);
  }
  return text;
}

TEST(TraceStream, GivesWhatReadTraceGives) {
  for (const bool ordered : {true, false}) {
    const std::string text = RandomLog(5000, ordered);
    for (const double rate : {0.0, 12.5}) {
      auto trace = ReadTrace(text);
      ASSERT_TRUE(trace);
      if (rate > 0) SetRate(*trace, rate, 9);
      const std::vector<Arrival> all = All(text, {.rate = rate, .seed = 9});
      ASSERT_EQ(all.size(), trace->requests.size());
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].index, i);
        EXPECT_EQ(all[i].request.input_tokens, trace->requests[i].input_tokens);
        EXPECT_NEAR(all[i].request.arrival_s, trace->requests[i].arrival_s, 1e-9);
      }
    }
  }
}

TEST(TraceStream, MakesTimesWhereTheFileHasNone) {
  const std::string text = "num_prefill_tokens,num_decode_tokens\n1,1\n2,1\n3,1\n4,1\n5,1\n6,1\n";
  auto trace = ReadTrace(text);
  ASSERT_TRUE(trace);
  SetRate(*trace, 4, 2);
  const std::vector<Arrival> all = All(text, {.rate = 4, .seed = 2});
  ASSERT_EQ(all.size(), 6U);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].request.arrival_s, trace->requests[i].arrival_s);
  }
  EXPECT_EQ(All(text, {.rate = 4, .seed = 2}, {.limit = 2}).size(), 2U);
}

TEST(TraceStream, RefusesWhatIsFartherOutOfOrderThanItHolds) {
  std::string text = RandomLog(static_cast<int>(TraceStream::kReorder) + 10, true);
  text += "{\"arrival_time_ns\": 1, \"input_toks\": 7, \"output_toks\": 3}\n";
  std::istringstream first(text), second(text);
  const auto survey = SurveyTrace(first, {});
  ASSERT_TRUE(survey);
  EXPECT_FALSE(survey->in_order);
  const auto stream = TraceStream::Open(second, {}, *survey, {});
  ASSERT_TRUE(stream);
  std::string error;
  while (error.empty()) {
    const auto next = (*stream)->Next();
    if (!next) error = next.error().message;
    ASSERT_TRUE(!next || *next) << "the end came first";
  }
  EXPECT_TRUE(error.starts_with(fmt::format("line {}: ", TraceStream::kReorder + 11))) << error;
}

TEST(TraceStream, ErrorsNameTheLine) {
  for (const auto& [text, message] : {
           std::pair{"arrived_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n2,x,3\n",
                     "line 3: 'num_prefill_tokens': expected a whole number from 0 to 16777216, "
                     "found 'x'"},
           std::pair{"", "line 1: expected the header"},
           std::pair{"arrived_at,num_prefill_tokens,num_decode_tokens\n", "no requests"},
       }) {
    std::istringstream in(text);
    const auto survey = SurveyTrace(in, {});
    ASSERT_FALSE(survey);
    EXPECT_TRUE(survey.error().message.starts_with(message)) << survey.error().message;
  }
  std::istringstream in("{\"input_toks\": 1, \"output_toks\": 2, \"arrival_time\": 1}" +
                        std::string(LineReader::kMostBytes + (1 << 17), ' '));
  const auto survey = SurveyTrace(in, {});
  ASSERT_FALSE(survey);
  EXPECT_TRUE(survey.error().message.starts_with("line 1: expected at most 16777216 bytes"));
}

// Mean 1 / rate and the asked spread, within five standard errors; times never fall.
TEST(ArrivalTimes, PoissonAndGammaHaveTheirMomentsAndNeverFall) {
  constexpr int kCount = 200000;
  constexpr double kRate = 8;
  for (const double cv : {0.0, 0.25, 1.0, 2.5}) {  // 0: Poisson
    ArrivalTimes times({.process = cv == 0 ? ArrivalProcess::kPoisson : ArrivalProcess::kGamma,
                        .rate = kRate,
                        .cv = cv,
                        .seed = 4});
    const double spread = cv == 0 ? 1 : cv;
    double last = times.Next(), sum = 0, squares = 0;
    EXPECT_EQ(last, 0);
    for (int i = 0; i < kCount; ++i) {
      const double now = times.Next();
      ASSERT_GE(now, last);
      const double gap = (now - last) * kRate;
      sum += gap;
      squares += gap * gap;
      last = now;
    }
    const double mean = sum / kCount;
    const double variance = squares / kCount - mean * mean;
    EXPECT_NEAR(mean, 1, 5 * spread / std::sqrt(kCount));
    // The variance of a sample variance is (kurtosis - 1) σ⁴ / n; gamma's kurtosis is 3 + 6 cv².
    const double error = spread * spread * std::sqrt((2 + 6 * spread * spread) / kCount);
    EXPECT_NEAR(variance, spread * spread, 5 * error) << cv;
  }
}

TEST(LatencySketch, IsWithinATwentiethOfAPercentOfTheSortedValues) {
  std::mt19937_64 random(6);
  std::lognormal_distribution<double> draw(-2, 2);
  for (const int count : {1, 2, 3, 10, 101, 20000}) {
    std::vector<double> values;
    LatencySketch sketch;
    for (int i = 0; i < count; ++i) {
      values.push_back(draw(random));
      sketch.Add(values.back());
    }
    const Summary exact = Summarise(values);
    const Summary about = sketch.Summarised();
    EXPECT_NEAR(about.mean, exact.mean, 1e-9 * exact.mean);
    EXPECT_NEAR(about.p50, exact.p50, 5e-4 * exact.p50) << count;
    EXPECT_NEAR(about.p90, exact.p90, 5e-4 * exact.p90) << count;
    EXPECT_NEAR(about.p99, exact.p99, 5e-4 * exact.p99) << count;
  }
  LatencySketch zeros;
  EXPECT_EQ(zeros.Summarised().p99, 0);
  zeros.Add(0);
  EXPECT_EQ(zeros.Summarised().p50, 0);
}

}  // namespace
}  // namespace nibble
