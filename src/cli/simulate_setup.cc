#include "cli/simulate_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/plan_sources.h"
#include "cost/modelled_pools.h"
#include "cost/served_config.h"

namespace nibble::cli {
namespace {

// What a policy means where no flag says otherwise.
struct PolicyDefaults {
  std::string_view name;
  Policy policy;
  Batching batching;
  bool step_budget;
};
constexpr PolicyDefaults kPolicies[] = {
    {"nibble", Policy::kPriority, Batching::kContinuous, true},
    // vLLM's scheduler (V1) in our terms: first come first served, answers before prompts, prompts
    // in chunks, a budget of tokens and none of time.
    {"vllm", Policy::kFirstCome, Batching::kContinuous, false},
    {"static", Policy::kFirstCome, Batching::kStatic, false},
};

const PolicyDefaults& DefaultsOf(const std::string& name) {
  return *std::ranges::find(kPolicies, name, &PolicyDefaults::name);
}

// vLLM's own defaults for a server.
constexpr int kDeviceRows = 2048;
constexpr int kDeviceSequences = 256;

void ApplyFlags(const SimulateFlags& own, SimulatorOptions& options) {
  SchedulerLimits& limits = options.limits;
  limits.max_running = own.max_sequences.value_or(limits.max_running);
  limits.max_rows = own.max_batch_tokens.value_or(limits.max_rows);
  limits.max_queue = own.max_queue.value_or(limits.max_queue);
  if (!own.prefix_cache.empty()) options.pages.prefix_cache = own.prefix_cache == "on";
  if (own.max_step_ms) {
    limits.max_step_s = *own.max_step_ms / 1000;
    if (*own.max_step_ms == 0) options.price = {};
  }
}

// A server whose log this is.
Result<SimulateSetup> FromLog(const GlobalFlags& flags, const SimulateFlags& own,
                              const TraceSurvey& survey) {
  auto served = ReadServedConfig(survey.head);
  if (!served) return Within(own.trace + ": line 1", served.error());
  SimulateSetup setup;
  setup.options = std::move(served->options);
  if (!setup.options.price.known()) {
    return BadInput(
        "{}: line 1: the server had no prices (--max-step-ms 0), so that nothing says how long a "
        "step takes; name a --model and a --device",
        own.trace);
  }
  setup.timer = std::make_unique<PriceTimer>(setup.options.price);
  const PolicyDefaults& policy = DefaultsOf(own.policy);
  if (own.policy != "nibble") {
    setup.options.limits.policy = policy.policy;
    setup.options.limits.batching = policy.batching;
    setup.options.price = {};
  }
  ApplyFlags(own, setup.options);
  setup.options.max_context = flags.context > 0 ? flags.context : setup.options.max_context;
  setup.server = fmt::format("{} as its server was", served->model);
  setup.source = "predicted: the prices of steps in the log";
  setup.left_out = {"what a request costs outside of steps: HTTP, templates, tokenizing"};
  return setup;
}

Result<PlanRequest> ReadServer(const GlobalFlags& flags, const SimulateFlags& own) {
  const PlanSources sources = FlagSources(flags);
  PlanArguments arguments{.model = own.model, .device = own.device, .devices = own.devices};
  NIBBLE_TRY(const Act act, ParseAct(flags.act));
  arguments.weight_only = act == Act::kF32;
  arguments.weights = own.weights;
  if (own.weights.empty()) {
    NIBBLE_TRY(const ModelShape shape, FindShape(flags, own.model));
    arguments.weights = shape.has_file ? "own" : "bf16";
  }
  arguments.kv = PlanKvList(flags);
  if (own.nominal) arguments.counting = "nominal";
  if (own.true_bytes) arguments.counting = "true";
  NIBBLE_TRY(PlanRequest request, ReadPlanRequest(arguments, sources));
  for (KvChoice& choice : request.kv) choice.formats.skip_layers = flags.kv_skip_layers;
  if (request.weights.size() != 1) return BadInput("--weights: expected one format");
  if (request.kv.size() != 1) return BadInput("--kv: expected one format");
  return request;
}

Result<int> ContextOf(const GlobalFlags& flags, const ModelShape& shape, int kv_tokens) {
  const int trained = shape.config.context_length;
  if (trained > 0 && flags.context > trained) {
    return BadInput("--ctx: {} tokens were asked for and {} has {}", flags.context, shape.name,
                    trained);
  }
  if (flags.context > 0) return flags.context;
  return trained > 0 ? trained : kv_tokens;
}

// A server that the cost model knows.
Result<SimulateSetup> FromModel(const GlobalFlags& flags, const SimulateFlags& own) {
  NIBBLE_TRY(const PlanRequest request, ReadServer(flags, own));
  const auto model = CostModel::Create({.shape = request.model,
                                        .device = request.device,
                                        .devices = request.devices,
                                        .counting = request.counting,
                                        .weight_only = request.weight_only},
                                       request.weights.front(), request.kv.front());
  if (!model) return Within(request.weights.front().mix ? "--kv" : "--weights", model.error());
  SimulateSetup setup;
  SimulatorOptions& options = setup.options;
  const PolicyDefaults& policy = DefaultsOf(own.policy);
  options.limits.policy = policy.policy;
  options.limits.batching = policy.batching;
  options.limits.max_rows = own.device == "here" ? options.limits.max_rows : kDeviceRows;
  options.limits.max_running = own.device == "here" ? options.limits.max_running : kDeviceSequences;
  options.pages.prefix_cache = true;
  ApplyFlags(own, options);
  const bool budget = own.max_step_ms ? *own.max_step_ms > 0 : policy.step_budget;
  if (budget) options.price = PriceOf(*model, options.limits.max_rows);
  NIBBLE_TRY(const auto kv_bytes, KvMemory(flags));
  NIBBLE_TRY(ModelledPools pools, PoolsOn(*model,
                                          {.max_rows = options.limits.max_rows,
                                           .max_running = options.limits.max_running,
                                           .prefix_cache = options.pages.prefix_cache},
                                          kv_bytes));
  options.pools = std::move(pools.pools);
  setup.kv_tokens = pools.tokens;
  NIBBLE_TRY(options.max_context, ContextOf(flags, request.model, pools.tokens));
  setup.timer = std::make_unique<ModelTimer>(*model);
  setup.server =
      fmt::format("{} on {}{}, weights {}, cache {}", request.model.name,
                  request.devices > 1 ? fmt::format("{} × ", request.devices) : "",
                  request.device.name, request.weights.front().name, request.kv.front().name);
  setup.counting = CountingText(request);
  setup.source = "predicted: the cost model";
  setup.left_out = LeftOut(request);
  std::erase_if(setup.left_out, [](const std::string& s) { return s.starts_with("prefill"); });
  return setup;
}

}  // namespace

Result<SimulateSetup> MakeSimulateSetup(const GlobalFlags& flags, const SimulateFlags& own,
                                        const TraceSurvey& survey) {
  if (own.nominal && own.true_bytes) {
    return BadInput("expected --nominal or --true, found both");
  }
  if (own.model.empty()) {
    if (survey.format != TraceFormat::kNibble) {
      return BadInput(
          "--model: expected one: a trace of the format {} does not say what was served",
          TraceFormatName(survey.format));
    }
    return FromLog(flags, own, survey);
  }
  return FromModel(flags, own);
}

}  // namespace nibble::cli
