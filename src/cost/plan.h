#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_model.h"

namespace nibble {

// What `nibble plan` and GET /plan are asked, as text: lists are separated by commas.
struct PlanArguments {
  std::string model = "llama-3-8b";
  std::string device = "h100";
  std::string devices = "1";
  std::string weights = {};  // empty: bf16,int8,int4, or the file's own
  std::string kv = "bf16,fp8";
  std::string batch = "16";
  std::string context = "4096";
  std::string counting = {};  // nominal, true, or empty: by what is named
  std::string price_per_hour = {};
  bool weight_only = false;
};

struct PlanSources {
  std::function<Result<ModelShape>(const std::string& name)> model;
  std::function<Result<DeviceShape>(const std::string& name)> device;
  // How messages call an argument: "'batch'", "--batch".
  std::function<std::string(std::string_view argument)> label;
  size_t max_rows = 4096;
};
// The tables, and labels in quotes.
PlanSources TableSources();

struct PlanRequest {
  ModelShape model;
  DeviceShape device;
  int devices = 1;
  std::vector<WeightFormat> weights;
  std::vector<KvChoice> kv;
  std::vector<int> batches;
  std::vector<int> contexts;
  Counting counting = Counting::kNominal;
  std::optional<double> price_per_hour;  // of one device
  bool weight_only = false;
};
// Errors begin with the argument's label. Without `counting` bytes are true where something real is
// named: a file, the device "here", a format that is no generic name.
Result<PlanRequest> ReadPlanRequest(const PlanArguments& arguments, const PlanSources& sources);

struct PlanRow {
  std::string weights;
  std::string kv;
  DecodePoint point;
  DecodeCost cost = {};
  DecodeCost was = {};  // the same step with bf16 weights and a bf16 cache
  MemoryCost memory = {};
  int max_batch = 0;
  int max_context = 0;  // 0: none fits
  std::optional<Tokens> crossover = {};
  std::optional<double> cost_per_million_tokens = {};

  TokensPerSecond rate() const { return cost.rate(point.batch); }
  double speedup() const { return was.step / cost.step; }
};

struct Plan {
  PlanRequest request;
  std::vector<PlanRow> rows;   // by weights, KV format, batch, context
  std::vector<PlanRow> pairs;  // bf16, int8, int4 × bf16, fp8 at the first batch and context
};
Result<Plan> MakePlan(PlanRequest request, const PlanSources& sources);

// "nominal bytes: …": how bytes were counted and which formats stand behind generic names.
std::string CountingText(const PlanRequest& request);
// What the model leaves out, a sentence each.
std::vector<std::string> LeftOut(const PlanRequest& request);
// Why a row has the bound that it has.
std::string BoundText(const PlanRow& row);

}  // namespace nibble
