#include "cost/plan.h"

#include <algorithm>
#include <charconv>

namespace nibble {
namespace {

constexpr size_t kMostEntries = 64;

// Entries between commas. Errors: too many, or an empty one.
Result<std::vector<std::string>> Split(const std::string& label, std::string_view text) {
  std::vector<std::string> entries;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma == 0) return BadInput("{}: expected names or numbers between commas", label);
    entries.emplace_back(text.substr(0, comma));
    if (entries.size() > kMostEntries) {
      return BadInput("{}: expected at most {} entries", label, kMostEntries);
    }
    if (comma == text.size()) return entries;
    text.remove_prefix(comma + 1);
  }
}

Result<int> ParseCount(const std::string& label, std::string_view text, int least, int most) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && last == end && value >= least && value <= most) return value;
  return BadInput("{}: expected a whole number from {} to {}, found '{}'", label, least, most,
                  text.substr(0, 64));
}

Result<std::vector<int>> ParseCounts(const std::string& label, std::string_view text, int least,
                                     int most) {
  NIBBLE_TRY(const std::vector<std::string> entries, Split(label, text));
  std::vector<int> counts;
  for (const std::string& entry : entries) {
    NIBBLE_TRY(const int count, ParseCount(label, entry, least, most));
    counts.push_back(count);
  }
  return counts;
}

template <class Parse>
auto ParseFormats(const std::string& label, std::string_view text, Parse parse)
    -> Result<std::vector<typename decltype(parse(text))::value_type>> {
  NIBBLE_TRY(const std::vector<std::string> entries, Split(label, text));
  std::vector<typename decltype(parse(text))::value_type> formats;
  for (const std::string& entry : entries) {
    auto format = parse(entry);
    if (!format) return Within(label, format.error());
    formats.push_back(*std::move(format));
  }
  return formats;
}

Result<std::optional<double>> ParsePrice(const std::string& label, std::string_view text) {
  if (text.empty()) return std::nullopt;
  double price = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), price);
  if (error == std::errc() && last == end && price >= 0 && price <= 1e12) return price;
  return BadInput("{}: expected a price from 0 to 1e12, found '{}'", label, text.substr(0, 64));
}

Result<Counting> ParseCounting(const std::string& label, std::string_view text,
                               const PlanRequest& request) {
  if (text == "nominal") return Counting::kNominal;
  if (text == "true") return Counting::kTrue;
  if (!text.empty()) {
    return BadInput("{}: expected nominal or true, found '{}'", label, text.substr(0, 64));
  }
  const auto real = [](const WeightFormat& format) { return !format.generic; };
  const bool named = request.model.has_file || request.device.name == "here" ||
                     std::ranges::any_of(request.weights, real);
  return named ? Counting::kTrue : Counting::kNominal;
}

// Prices one request; models are made once per pair of formats.
class Planner {
 public:
  Planner(const PlanRequest& request, const CostModel& plain) : request_(request), plain_(plain) {}

  static Result<CostModel> ModelOf(const PlanRequest& request, const WeightFormat& weights,
                                   const KvChoice& kv) {
    return CostModel::Create({.shape = request.model,
                              .device = request.device,
                              .devices = request.devices,
                              .counting = request.counting,
                              .weight_only = request.weight_only},
                             weights, kv);
  }

  PlanRow Row(const CostModel& model, const WeightFormat& weights, const KvChoice& kv,
              const DecodePoint& point) const {
    PlanRow row{.weights = weights.name, .kv = kv.name, .point = point};
    row.cost = model.Decode(point);
    row.was = plain_.Decode(point);
    row.memory = model.Memory(point);
    row.max_batch = model.MaxBatch(point.context);
    row.max_context = model.MaxContext(point.batch).value_or(0);
    row.crossover = model.Crossover(point.batch);
    if (request_.price_per_hour) {
      const double per_second = *request_.price_per_hour * request_.devices / 3600;
      row.cost_per_million_tokens = 1e6 * per_second / row.rate().value;
    }
    return row;
  }

 private:
  const PlanRequest& request_;
  const CostModel& plain_;
};

}  // namespace

PlanSources TableSources() {
  return {.model = [](const std::string& name) { return ModelShapeByName(name); },
          .device = [](const std::string& name) { return DeviceShapeByName(name); },
          .label = [](std::string_view argument) { return fmt::format("'{}'", argument); }};
}

Result<PlanRequest> ReadPlanRequest(const PlanArguments& arguments, const PlanSources& sources) {
  constexpr int kMostDevices = 1024;
  PlanRequest request;
  const auto& label = sources.label;
  auto model = sources.model(arguments.model);
  if (!model) return Within(label("model"), model.error());
  request.model = *std::move(model);
  auto device = sources.device(arguments.device);
  if (!device) return Within(label("device"), device.error());
  request.device = *std::move(device);
  NIBBLE_TRY(request.devices, ParseCount(label("devices"), arguments.devices, 1, kMostDevices));
  std::string weights = arguments.weights;
  if (weights.empty()) weights = request.model.has_file ? "own" : "bf16,int8,int4";
  NIBBLE_TRY(request.weights, ParseFormats(label("weights"), weights, ParseWeightFormat));
  NIBBLE_TRY(request.kv, ParseFormats(label("kv"), arguments.kv, ParseKvChoice));
  NIBBLE_TRY(request.batches,
             ParseCounts(label("batch"), arguments.batch, 1, CostModel::kMostBatch));
  NIBBLE_TRY(request.contexts,
             ParseCounts(label("context"), arguments.context, 0, CostModel::kMostContext));
  NIBBLE_TRY(request.counting, ParseCounting(label("counting"), arguments.counting, request));
  NIBBLE_TRY(request.price_per_hour, ParsePrice(label("price_per_hour"), arguments.price_per_hour));
  request.weight_only = arguments.weight_only;
  return request;
}

Result<Plan> MakePlan(PlanRequest request, const PlanSources& sources) {
  const size_t rows =
      request.weights.size() * request.kv.size() * request.batches.size() * request.contexts.size();
  if (rows > sources.max_rows) {
    return BadInput(
        "{}: weights, KV formats, batches and contexts make {} rows, expected at most "
        "{}",
        sources.label("batch"), rows, sources.max_rows);
  }
  NIBBLE_TRY(const WeightFormat bf16, ParseWeightFormat("bf16"));
  NIBBLE_TRY(const KvChoice bf16_kv, ParseKvChoice("bf16"));
  const auto plain = Planner::ModelOf(request, bf16, bf16_kv);
  if (!plain) {
    return Within(sources.label(request.devices > 1 ? "devices" : "device"), plain.error());
  }
  Plan plan{.request = std::move(request), .rows = {}, .pairs = {}};
  const PlanRequest& asked = plan.request;
  const Planner planner(asked, *plain);
  for (const WeightFormat& weights : asked.weights) {
    for (const KvChoice& kv : asked.kv) {
      const auto model = Planner::ModelOf(asked, weights, kv);
      if (!model) {
        const bool calibrated = asked.device.calibration && asked.counting == Counting::kTrue;
        const char* at = calibrated ? "device" : weights.mix ? "kv" : "weights";
        return Within(sources.label(at), model.error());
      }
      for (const int batch : asked.batches) {
        for (const int context : asked.contexts) {
          plan.rows.push_back(
              planner.Row(*model, weights, kv, {.batch = batch, .context = context}));
        }
      }
    }
  }
  const DecodePoint first{.batch = asked.batches.front(), .context = asked.contexts.front()};
  for (const char* weights : {"bf16", "int8", "int4"}) {
    for (const char* kv : {"bf16", "fp8"}) {
      NIBBLE_TRY(const WeightFormat format, ParseWeightFormat(weights));
      NIBBLE_TRY(const KvChoice choice, ParseKvChoice(kv));
      const auto model = Planner::ModelOf(asked, format, choice);
      if (model) plan.pairs.push_back(planner.Row(*model, format, choice, first));
    }
  }
  return plan;
}

std::string CountingText(const PlanRequest& request) {
  if (request.counting == Counting::kNominal) {
    return "nominal bytes: an 8-bit number is 1 byte, a 4-bit one 0.5; scales are not counted";
  }
  std::string text = "true bytes: with scales, and pages of the cache as nibble stores them";
  for (const WeightFormat& format : request.weights) {
    if (!format.generic || format.name == format.TrueName()) continue;
    text += fmt::format("; {} is {}", format.name, format.TrueName());
  }
  return text;
}

std::vector<std::string> LeftOut(const PlanRequest& request) {
  const bool calibrated = request.device.calibration && request.counting == Counting::kTrue;
  std::vector<std::string> out = {
      "accuracy: fewer bits always risk quality; nibble eval measures it",
      "activations, workspace and fragmentation in the memory sum",
      "prefill: rows are decode steps, one new token per sequence"};
  if (calibrated) {
    out.emplace_back("scheduling and sampling of a server: steps are the decoder's, greedy");
  } else {
    out.emplace_back(
        "the cost of unpacking weights and pages, usually hidden behind their reading, not always");
  }
  if (request.counting == Counting::kNominal) {
    out.emplace_back("faster 8-bit arithmetic: products are counted at the 16-bit rate");
    out.emplace_back("scales and zero points of the formats; true bytes count them");
  }
  if (request.devices > 1) {
    out.emplace_back("overlap of communication with computation");
  }
  if (request.model.experts > 0) {
    out.emplace_back("uneven use of experts: each is chosen as often as another");
  }
  return out;
}

std::string BoundText(const PlanRow& row) {
  const DecodeCost& cost = row.cost;
  const bool memory = cost.bound == Bound::kMemory;
  return fmt::format("{}-bound: reading takes {:.3f} ms, multiplying {:.3f} ms",
                     memory ? "memory" : "compute", 1e3 * cost.memory_time.value,
                     1e3 * cost.compute_time.value);
}

}  // namespace nibble
