#include "cost/plan_json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

const char* Name(Bound bound) { return bound == Bound::kMemory ? "memory" : "compute"; }

Json WasJson(const DecodeCost& was, int batch) {
  return {{"weight_bytes", was.weights.value}, {"kv_bytes", was.kv.value},
          {"bytes", was.bytes().value},        {"step_s", was.step.value},
          {"tok_s", was.rate(batch).value},    {"bound", Name(was.bound)}};
}

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json RowJson(const PlanRequest& request, const PlanRow& row) {
  const DecodeCost& cost = row.cost;
  const int batch = row.point.batch;
  Json out = {{"model", request.model.name},
              {"device", request.device.name},
              {"devices", request.devices},
              {"weights", row.weights},
              {"kv", row.kv},
              {"batch", batch},
              {"context", row.point.context}};
  out["weight_bytes"] = cost.weights.value;
  out["kv_bytes"] = cost.kv.value;
  out["bytes"] = cost.bytes().value;
  out["flops"] = cost.flops.value;
  out["step_s"] = cost.step.value;
  out["tok_s"] = row.rate().value;
  out["speedup"] = row.speedup();
  out["bound"] = Name(cost.bound);
  out["memory_weights_bytes"] = row.memory.weights.value;
  out["memory_kv_bytes"] = row.memory.kv.value;
  out["memory_total_bytes"] = row.memory.total().value;
  out["device_memory_bytes"] = row.memory.device.value;
  out["fits"] = row.memory.fits();
  out["max_batch"] = row.max_batch;
  out["max_context"] = row.max_context;
  out["cost_per_million_tokens"] = OrNull(row.cost_per_million_tokens);
  out["source"] = "predicted";
  out["crossover_tokens"] = row.crossover ? Json(row.crossover->value) : Json();
  out["weight_bytes_per_user"] = cost.weights.value / batch;
  out["memory_s"] = cost.memory_time.value;
  out["compute_s"] = cost.compute_time.value;
  out["communication_s"] = cost.communication_time.value;
  out["overhead_s"] = cost.overhead.value;
  out["why"] = BoundText(row);
  out["was"] = WasJson(row.was, batch);
  return out;
}

Json ModelJson(const ModelShape& model) {
  const ModelConfig& config = model.config;
  return {
      {"name", model.name},
      {"parameters", model.TotalWeights()},
      {"matmul_weights", model.Weights(WeightUse::kEveryStep) + model.Weights(WeightUse::kExpert)},
      {"width", config.width},
      {"layers", config.layers.size()},
      {"kv_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"context_length", config.context_length},
      {"experts", model.experts},
      {"experts_per_token", model.experts_per_token}};
}

Json DeviceJson(const DeviceShape& device) {
  Json sources = Json::object();
  for (const DeviceShape::Source& source : device.sources) sources[source.field] = source.text;
  return {{"name", device.name},
          {"description", device.description},
          {"origin", device.origin},
          {"memory_bytes", device.memory.value},
          {"bandwidth", device.bandwidth.value},
          {"bandwidth_efficiency", device.bandwidth_efficiency},
          {"bf16_flops", device.bf16.value},
          {"fp8_flops", device.fp8.value},
          {"int8_flops", device.int8.value},
          {"overhead_s", device.overhead.value},
          {"link_bandwidth", device.link.value},
          {"link_latency_s", device.link_latency.value},
          {"sources", std::move(sources)}};
}

}  // namespace

Json PlanJson(const Plan& plan) {
  const PlanRequest& request = plan.request;
  Json rows = Json::array(), pairs = Json::array();
  for (const PlanRow& row : plan.rows) rows.push_back(RowJson(request, row));
  for (const PlanRow& row : plan.pairs) pairs.push_back(RowJson(request, row));
  Json out;
  out["rows"] = std::move(rows);
  const auto& crossover = plan.rows.front().crossover;
  out["crossover_tokens"] = crossover ? Json(crossover->value) : Json();
  out["pairs"] = std::move(pairs);
  out["counting"] = request.counting == Counting::kNominal ? "nominal" : "true";
  out["counting_text"] = CountingText(request);
  out["left_out"] = LeftOut(request);
  out["price_per_hour"] = OrNull(request.price_per_hour);
  out["model"] = ModelJson(request.model);
  out["device"] = DeviceJson(request.device);
  return out;
}

Json PlanChoicesJson() {
  Json kv = Json::array({"bf16"});
  for (const KvFormatTraits& traits : AllKvFormats()) kv.push_back(traits.name);
  return {{"models", ModelShapeNames()},
          {"devices", DeviceShapeNames()},
          {"weights", GenericWeightFormats()},
          {"kv", std::move(kv)}};
}

}  // namespace nibble
