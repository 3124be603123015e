#include "server/plan_route.h"

#include <algorithm>
#include <set>
#include <string>

#include "cost/plan_json.h"
#include "server/http.h"

namespace nibble::server {
namespace {

// "a%2Cb+c" as "a,b c".
std::string DecodeQueryText(std::string_view text) {
  std::string spaced(text);
  std::ranges::replace(spaced, '+', ' ');
  return PercentDecode(spaced);
}

// The argument of a name; null: there is none.
std::string* ArgumentOf(PlanArguments& arguments, std::string_view name) {
  if (name == "model") return &arguments.model;
  if (name == "device") return &arguments.device;
  if (name == "devices") return &arguments.devices;
  if (name == "weights") return &arguments.weights;
  if (name == "kv") return &arguments.kv;
  if (name == "batch") return &arguments.batch;
  if (name == "context") return &arguments.context;
  if (name == "counting") return &arguments.counting;
  if (name == "price_per_hour") return &arguments.price_per_hour;
  return nullptr;
}

Status TakeArgument(const std::string& name, const std::string& value, PlanArguments& arguments) {
  if (name == "nominal" || name == "true") {  // the flags of the command
    if (!value.empty() && value != "1" && value != "true") {
      return BadInput("'{}': expected no value, 1 or true, found {}", name, QuoteJson(value));
    }
    arguments.counting = name;
    return {};
  }
  if (name == "act") {
    if (value != "int8" && value != "f32") {
      return BadInput("'act': expected int8 or f32, found {}", QuoteJson(value));
    }
    arguments.weight_only = value == "f32";
    return {};
  }
  std::string* argument = ArgumentOf(arguments, name);
  if (argument == nullptr) {
    return BadInput(
        "{}: there is no such argument; known: model, device, devices, weights, kv, "
        "batch, context, counting, price_per_hour, act",
        "'" + name.substr(0, 64) + "'");
  }
  *argument = value;
  return {};
}

Result<PlanArguments> ReadQuery(std::string_view query) {
  PlanArguments arguments;
  std::set<std::string> seen;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string name = DecodeQueryText(pair.substr(0, equals));
    std::ranges::replace(name, '-', '_');
    const std::string value = DecodeQueryText(pair.substr(std::min(equals + 1, pair.size())));
    if (!seen.insert(name).second) {
      return BadInput("'{}': given twice; lists are separated by commas", name.substr(0, 64));
    }
    NIBBLE_RETURN_IF_ERROR(TakeArgument(name, value, arguments));
  }
  return arguments;
}

Result<Json> MakePlanJson(std::string_view query, const PlanSources& sources) {
  NIBBLE_TRY(const PlanArguments arguments, ReadQuery(query));
  NIBBLE_TRY(PlanRequest request, ReadPlanRequest(arguments, sources));
  NIBBLE_TRY(const Plan plan, MakePlan(std::move(request), sources));
  Json out = PlanJson(plan);
  out["choices"] = PlanChoicesJson();
  return out;
}

}  // namespace

ApiResult<Json> AnswerPlan(std::string_view query, const PlanSources& sources) {
  PlanSources bounded = sources;
  bounded.max_rows = std::min(bounded.max_rows, kMostPlanRows);
  auto json = MakePlanJson(query, bounded);
  if (!json) return std::unexpected(ApiErrorOf(json.error()));
  return *std::move(json);
}

}  // namespace nibble::server
