#include "cost/simulator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "cost/capacity.h"
#include "cost/modelled_pools.h"
#include "cost/step_timer.h"

namespace nibble {
namespace {

Trace MakeTrace(std::vector<TraceRequest> requests) {
  return {.format = TraceFormat::kJsonl, .has_arrivals = true, .requests = std::move(requests)};
}

CostModel MakeModel(const std::string& model, const std::string& device,
                    const std::string& weights = "bf16", const std::string& kv = "bf16",
                    int devices = 1) {
  const auto shape = ModelShapeByName(model);
  const auto of = DeviceShapeByName(device);
  const auto cost = CostModel::Create({.shape = *shape, .device = *of, .devices = devices},
                                      *ParseWeightFormat(weights), *ParseKvChoice(kv));
  EXPECT_TRUE(cost) << cost.error().message;
  return *cost;
}

SimulatorOptions Roomy() {
  SimulatorOptions options;
  options.limits = {.max_rows = 4096, .max_running = 256, .max_queue = 1 << 20};
  options.pools = {{.pages = 1 << 16}};
  options.max_context = 1 << 20;
  return options;
}

class Steps : public SimulationObserver {
 public:
  void OnStep(const SimulatedStep& step) override { steps.push_back(step); }
  void OnRequest(const SimulatedRequest& request) override { requests.push_back(request); }
  std::vector<SimulatedStep> steps;
  std::vector<SimulatedRequest> requests;
};

// A second a row: times can be told by hand.
class RowTimer : public StepTimer {
 public:
  double Seconds(const Step& step) override { return step.rows(); }
};

SimulationResult RunTrace(const Trace& trace, StepTimer& timer, const SimulatorOptions& options,
                          SimulationObserver* observer = nullptr) {
  TraceArrivals source(trace);
  auto result = Simulate(source, timer, options, observer);
  EXPECT_TRUE(result) << result.error().message;
  return *std::move(result);
}

TEST(Simulator, TimesOfARequestThatIsAlone) {
  RowTimer timer;
  Steps seen;
  const Trace trace = MakeTrace({{.arrival_s = 2, .input_tokens = 10, .output_tokens = 3}});
  const ServingReport report = RunTrace(trace, timer, Roomy(), &seen).report;
  EXPECT_EQ(report.finished, 1);
  EXPECT_EQ(report.steps, 3);
  EXPECT_NEAR(report.ttft_s.mean, 10, 1e-9);  // ten rows, and the first token
  EXPECT_NEAR(report.tpot_s.mean, 1, 1e-9);
  EXPECT_NEAR(report.e2e_s.mean, 12, 1e-9);
  EXPECT_NEAR(report.duration_s, 12, 1e-9);
  EXPECT_NEAR(report.throughput_tok_s, 0.25, 1e-9);
  EXPECT_EQ(report.kv_peak_pages, 1);
  ASSERT_EQ(seen.steps.size(), 3U);
  EXPECT_EQ(seen.steps[0].begin_s, 2);
  EXPECT_EQ(seen.steps[0].prompt_rows, 10);
  EXPECT_EQ(seen.steps[1].prompt_rows, 0);
  EXPECT_EQ(seen.requests.at(0).last_token_s, 14);
}

TEST(Simulator, WhoComesDuringAStepIsServedByTheNext) {
  RowTimer timer;
  Steps seen;
  const Trace trace = MakeTrace({{.arrival_s = 0, .input_tokens = 5, .output_tokens = 2},
                                 {.arrival_s = 1, .input_tokens = 7, .output_tokens = 1}});
  RunTrace(trace, timer, Roomy(), &seen);
  ASSERT_EQ(seen.steps.size(), 2U);
  EXPECT_EQ(seen.steps[1].begin_s, 5);
  EXPECT_EQ(seen.steps[1].rows, 8);  // the answer's row and the other prompt
  EXPECT_EQ(seen.steps[1].accepted, 2);
}

// The property: a batch that never changes is what `plan` says. Every sequence has the same
// context, so a step's time is Decode at that batch and context.
TEST(Simulator, PlanIsSimulateForABatchThatNeverChanges) {
  std::mt19937 random(7);
  const char* models[] = {"llama-3-8b", "gemma3-1b", "mixtral-8x7b", "llama-2-7b"};
  const char* weights[] = {"bf16", "int8", "int4"};
  for (int round = 0; round < 24; ++round) {
    const CostModel model = MakeModel(models[random() % 4], "h200", weights[random() % 3],
                                      random() % 2 == 0 ? "bf16" : "fp8", 1 << random() % 3);
    const int batch = 1 + static_cast<int>(random() % 48);
    const int prompt = 1 + static_cast<int>(random() % 3000);
    constexpr int kTokens = 6;
    std::vector<TraceRequest> requests(
        static_cast<size_t>(batch),
        TraceRequest{.arrival_s = 0, .input_tokens = prompt, .output_tokens = kTokens});
    SimulatorOptions options = Roomy();
    options.limits.max_rows = 1 << 18;  // all prompts in the first step
    Steps seen;
    ModelTimer timer(model);
    RunTrace(MakeTrace(std::move(requests)), timer, options, &seen);
    ASSERT_EQ(seen.steps.size(), static_cast<size_t>(kTokens));
    for (int i = 1; i < kTokens; ++i) {
      const DecodeCost cost = model.Decode({.batch = batch, .context = prompt + i - 1});
      const SimulatedStep& step = seen.steps[static_cast<size_t>(i)];
      ASSERT_EQ(step.rows, batch);
      EXPECT_NEAR(step.seconds, cost.step.value, 1e-12 * cost.step.value) << round;
    }
  }
}

// One formula: a chunk costs what its bytes and products say, counted here row by row.
TEST(Simulator, AChunkReadsWhatItsRowsSeeOnce) {
  for (const char* name : {"llama-3-8b", "gemma3-1b"}) {
    const auto shape = ModelShapeByName(name);
    const CostModel model = MakeModel(name, "h100");
    std::mt19937 random(3);
    for (int round = 0; round < 50; ++round) {
      const int first = static_cast<int>(random() % 3000);
      const int rows = 1 + static_cast<int>(random() % 700);
      StepWork work;
      model.AddRows(work, first, rows, false);
      double keys = 0, bytes = 0;
      for (const LayerConfig& layer : shape->config.layers) {
        const int window = layer.window == 0 ? first + rows : layer.window;
        int oldest = first + rows;
        for (int at = first; at < first + rows; ++at) {
          keys += std::min(window, at + 1);
          oldest = std::min(oldest, std::max(0, at - window + 1));
        }
        bytes += 4.0 * shape->config.kv_heads * shape->config.head_dim * (first + rows - oldest);
      }
      EXPECT_NEAR(work.keys, keys, 1e-9 * keys);
      EXPECT_NEAR(work.kv.value, bytes, 1e-9 * bytes);
    }
  }
}

TEST(Simulator, ThePriceIsNeverBelowTheModelAndAtMostTwice) {
  const CostModel model = MakeModel("llama-3-8b", "h100");
  const StepPrice price = PriceOf(model, 2048);
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    StepWork work;
    StepLoad load;
    const int spans = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < spans; ++i) {
      const int first = static_cast<int>(random() % 8000);
      const int rows = random() % 4 == 0 ? 1 + static_cast<int>(random() % 40) : 1;
      model.AddRows(work, first, rows, true);
      load = load + LoadOf(first, rows, true);
    }
    const double exact = model.Step(work).step.value;
    // Between its points the table is straight and the model is not.
    EXPECT_GE(price.Seconds(load), 0.98 * exact);
    EXPECT_LE(price.Seconds(load), 2.02 * exact);
  }
}

TEST(Simulator, RefusesWithBothNumbers) {
  RowTimer timer;
  SimulatorOptions options = Roomy();
  options.max_context = 100;
  options.pools = {{.pages = 2}};
  const Trace trace = MakeTrace({{.input_tokens = 90, .output_tokens = 11},
                                 {.input_tokens = 60, .output_tokens = 10},
                                 {.input_tokens = 0, .output_tokens = 10},
                                 {.input_tokens = 30, .output_tokens = 2}});
  const SimulationResult result = RunTrace(trace, timer, options);
  EXPECT_EQ(result.report.requests, 4);
  EXPECT_EQ(result.report.rejected, 3);
  EXPECT_EQ(result.report.finished, 1);
  EXPECT_EQ(result.never_fit, 3);
  EXPECT_EQ(result.first_unfit, "line 1: the request has 101 tokens and the context holds 100");

  TraceArrivals source(trace);
  options.max_context = 1000;
  options.pools = {{.pages = 1}};
  const Trace long_ones = MakeTrace({{.input_tokens = 60, .output_tokens = 10}});
  TraceArrivals none(long_ones);
  const auto refused = Simulate(none, timer, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kBadInput);
  EXPECT_NE(refused.error().message.find("for 69 tokens"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("hold 32"), std::string::npos);
}

TEST(Simulator, AFullQueueRefuses) {
  RowTimer timer;
  SimulatorOptions options = Roomy();
  options.limits.max_queue = 3;
  std::vector<TraceRequest> requests(10, TraceRequest{.input_tokens = 4, .output_tokens = 2});
  const SimulationResult result = RunTrace(MakeTrace(std::move(requests)), timer, options);
  EXPECT_EQ(result.report.rejected, 7);
  EXPECT_EQ(result.never_fit, 0);
  EXPECT_EQ(result.report.finished, 3);
}

TEST(Simulator, PromptsThatBeginAlikeAreComputedOnce) {
  RowTimer timer;
  SimulatorOptions options = Roomy();
  options.pages.prefix_cache = true;
  const Trace trace =
      MakeTrace({{.arrival_s = 0, .input_tokens = 600, .output_tokens = 1, .blocks = {7}},
                 {.arrival_s = 1000, .input_tokens = 700, .output_tokens = 1, .blocks = {7}},
                 {.arrival_s = 3000, .input_tokens = 700, .output_tokens = 1, .blocks = {8}}});
  Steps seen;
  const SimulationResult result = RunTrace(trace, timer, options, &seen);
  EXPECT_EQ(result.report.prefix_hit_tokens, 512);
  EXPECT_EQ(seen.requests[1].cached_tokens, 512);
  EXPECT_NEAR(seen.requests[1].first_token_s - 1000, 188, 1e-9);
  options.pages.prefix_cache = false;
  EXPECT_EQ(RunTrace(trace, timer, options).report.prefix_hit_tokens, 0);
}

TEST(Simulator, ABusWaitsUntilItIsFull) {
  RowTimer timer;
  SimulatorOptions options = Roomy();
  options.limits.max_running = 2;
  options.limits.batching = Batching::kStatic;
  Steps seen;
  const Trace trace = MakeTrace({{.arrival_s = 0, .input_tokens = 1, .output_tokens = 50},
                                 {.arrival_s = 30, .input_tokens = 1, .output_tokens = 1},
                                 {.arrival_s = 31, .input_tokens = 1, .output_tokens = 1}});
  RunTrace(trace, timer, options, &seen);
  EXPECT_EQ(seen.steps[0].begin_s, 30);
  EXPECT_EQ(seen.steps[0].rows, 2);
  EXPECT_EQ(seen.requests.back().index, 2U);  // behind the long one, though a seat was free
  EXPECT_GT(seen.requests.back().begin_s, 80);
}

TEST(Simulator, TheSameEveryTimeAndTokensAddUp) {
  const CostModel model = MakeModel("llama-3-8b", "rtx-4090");
  std::mt19937 random(11);
  std::vector<TraceRequest> requests;
  int64_t output = 0, input = 0;
  for (int i = 0; i < 400; ++i) {
    requests.push_back({.arrival_s = i * 0.05,
                        .input_tokens = 1 + static_cast<int>(random() % 1500),
                        .output_tokens = 1 + static_cast<int>(random() % 300)});
    output += requests.back().output_tokens;
    input += requests.back().input_tokens;
  }
  const Trace trace = MakeTrace(std::move(requests));
  SimulatorOptions options = Roomy();
  options.limits.max_running = 24;
  options.pools = {{.pages = 400}};  // too few for 24: some are preempted
  options.price = PriceOf(model, options.limits.max_rows);
  ModelTimer timer(model);
  Steps first, second;
  const ServingReport a = RunTrace(trace, timer, options, &first).report;
  const ServingReport b = RunTrace(trace, timer, options, &second).report;
  EXPECT_EQ(a.finished, 400);
  EXPECT_EQ(a.generated_tokens, output);
  EXPECT_EQ(a.prompt_tokens, input);
  EXPECT_GT(a.preemptions, 0);
  EXPECT_LE(a.kv_peak_pages, 400);
  EXPECT_EQ(a.duration_s, b.duration_s);
  ASSERT_EQ(first.steps.size(), second.steps.size());
  int64_t accepted = 0;
  double clock = 0;
  for (const SimulatedStep& step : first.steps) {
    accepted += step.accepted;
    EXPECT_GE(step.begin_s, clock - 1e-9);  // one after another
    clock = step.begin_s + step.seconds;
    EXPECT_LE(step.running, 24);
  }
  EXPECT_EQ(accepted, output);
}

TEST(Capacity, FindsTheRateAtWhichASingleServerIsFull) {
  // A second a row, 10 rows a request: more than one in ten seconds grow without end.
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 200; ++i) {
    requests.push_back({.arrival_s = i * 1.0, .input_tokens = 10, .output_tokens = 1});
  }
  const Trace trace = MakeTrace(std::move(requests));
  const auto simulate = [&](double rate) -> Result<SimulationResult> {
    Trace at = trace;
    for (TraceRequest& request : at.requests) request.arrival_s /= rate;
    RowTimer timer;
    SimulatorOptions options = Roomy();
    options.limits.max_running = 1;
    TraceArrivals source(at);
    return Simulate(source, timer, options);
  };
  const auto capacity = FindCapacity(simulate, {.ttft_s = 10.5}, 1);
  ASSERT_TRUE(capacity);
  EXPECT_TRUE(capacity->bounded);
  EXPECT_NEAR(capacity->rate, 0.1, 0.002);
  for (const CapacityTrial& trial : capacity->trials) {
    EXPECT_EQ(trial.holds, trial.rate <= capacity->rate) << trial.rate;
  }
  const auto none = FindCapacity(simulate, {.ttft_s = 9}, 1);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->rate, 0);
}

TEST(ModelledPools, NinetyPercentOfTheDeviceBesideTheWeights) {
  const CostModel model = MakeModel("llama-3-8b", "h100");
  const auto pools = PoolsOn(model, {}, std::nullopt);
  ASSERT_TRUE(pools);
  // (0.9 · 80e9 − 16.06e9) / 131,072 bytes a token.
  EXPECT_NEAR(pools->tokens, (0.9 * 80e9 - 2 * 8030261248.0) / 131072, 64);
  EXPECT_EQ(pools->pools.at(0).pages, pools->tokens / kPageTokens);
  const auto given = PoolsOn(model, {}, size_t{131072} * 320);
  ASSERT_TRUE(given);
  EXPECT_EQ(given->tokens, 320);
  const auto large = PoolsOn(MakeModel("70b", "h100"), {}, std::nullopt);
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("140"), std::string::npos) << large.error().message;
}

}  // namespace
}  // namespace nibble
