#include "cost/plan_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cost/plan_json.h"

namespace nibble {
namespace {

// "115,000".
std::string WithCommas(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

// To three digits: 114512.0 as 115000.
double ThreeDigits(double number) {
  if (number < 1000) return number;
  const double unit = std::pow(10, std::floor(std::log10(number)) - 2);
  return std::round(number / unit) * unit;
}

struct Column {
  std::string head;
  bool left = false;
  std::vector<std::string> cells = {};
};

// Characters on the screen: UTF-8's continuation bytes take none.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

void AppendCell(const std::string& text, size_t width, bool left, std::string& line) {
  const std::string pad(width - Width(text), ' ');
  line += left ? text + pad : pad + text;
}

std::string TableText(const std::vector<Column>& columns) {
  std::string out;
  std::vector<size_t> widths;
  for (const Column& column : columns) {
    size_t width = Width(column.head);
    for (const std::string& cell : column.cells) width = std::max(width, Width(cell));
    widths.push_back(width);
  }
  for (size_t row = 0; row <= columns[0].cells.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& text = row == 0 ? columns[i].head : columns[i].cells[row - 1];
      if (i > 0) line += "  ";
      AppendCell(text, widths[i], columns[i].left, line);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string RowsTable(const Plan& plan) {
  std::vector<Column> columns = {{"weights", true}, {"kv", true},    {"batch"},  {"context"},
                                 {"weight bytes"},  {"KV bytes"},    {"step"},   {"tok/s"},
                                 {"speedup"},       {"bound", true}, {"memory"}, {"fits", true},
                                 {"max batch"},     {"max context"}};
  const bool priced = plan.request.price_per_hour.has_value();
  if (priced) columns.push_back({"per 1M tokens"});
  for (const PlanRow& row : plan.rows) {
    const auto number = [](int value) { return value == 0 ? "-" : WithCommas(value); };
    std::vector<std::string> cells = {row.weights,
                                      row.kv,
                                      std::to_string(row.point.batch),
                                      std::to_string(row.point.context),
                                      SumBytes(row.cost.weights),
                                      SumBytes(row.cost.kv),
                                      StepText(row.cost.step),
                                      RateText(row.rate()),
                                      fmt::format("{:.2f}×", row.speedup()),
                                      row.cost.bound == Bound::kMemory ? "memory" : "compute",
                                      SumBytes(row.memory.total()),
                                      row.memory.fits() ? "yes" : "no",
                                      number(row.max_batch),
                                      number(row.max_context)};
    if (priced) cells.push_back(fmt::format("{:.4g}", *row.cost_per_million_tokens));
    for (size_t i = 0; i < columns.size(); ++i) columns[i].cells.push_back(std::move(cells[i]));
  }
  return TableText(columns);
}

// Bars of the rows' bytes, weights then cache, on one scale.
std::string BarsText(const Plan& plan) {
  constexpr double kWidth = 48;
  double most = 0;
  size_t widest = 0;
  std::vector<std::string> labels;
  const auto& asked = plan.request;
  for (const PlanRow& row : plan.rows) {
    most = std::max(most, row.cost.bytes().value);
    std::string label = fmt::format("W {} · KV {}", row.weights, row.kv);
    if (asked.batches.size() > 1) label += fmt::format(" · batch {}", row.point.batch);
    if (asked.contexts.size() > 1) label += fmt::format(" · context {}", row.point.context);
    widest = std::max(widest, Width(label));
    labels.push_back(std::move(label));
  }
  std::string out = "where the bytes of a step go: █ weights, ░ cache\n";
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const DecodeCost& cost = plan.rows[i].cost;
    std::string line = "  ";
    AppendCell(labels[i], widest + 2, true, line);
    const auto cells = [&](Bytes bytes) {
      return static_cast<int>(std::lround(kWidth * bytes.value / most));
    };
    const int weights = cells(cost.weights), all = cells(cost.bytes());
    for (int cell = 0; cell < all; ++cell) line += cell < weights ? "█" : "░";
    out += fmt::format("{} {:.2f} ms\n", line, 1e3 * cost.step.value);
  }
  return out;
}

std::string Why(const Plan& plan) {
  const PlanRow& row = plan.rows.front();
  const DecodeCost& cost = row.cost;
  std::string out = fmt::format("W {} · KV {}, batch {}, context {}: {}", row.weights, row.kv,
                                row.point.batch, row.point.context, BoundText(row));
  if (cost.communication_time.value > 0) {
    out += fmt::format(", exchanging between devices {:.3f} ms more",
                       1e3 * cost.communication_time.value);
  }
  out += fmt::format(", {:.3f} ms for the rest\n", 1e3 * cost.overhead.value);
  out += "memory: " + MemoryText(row) + "\n";
  out += CrossoverText(row) + "\n";
  out += fmt::format("each user's share of the weights read: {}\n",
                     SumBytes(cost.weights / row.point.batch));
  return out;
}

std::string CsvField(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string SumBytes(Bytes bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB"};
  double value = bytes.value;
  size_t unit = 0;
  while (value >= 999.995 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (value == std::floor(value)) return fmt::format("{:.0f} {}", value, kUnits[unit]);
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string StepText(Seconds time) {
  return time.value < 1 ? fmt::format("{:.3f} ms", 1e3 * time.value)
                        : fmt::format("{:.3f} s", time.value);
}

std::string RateText(TokensPerSecond rate) {
  const int decimals = rate.value < 9.995 ? 2 : rate.value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", rate.value, decimals);
}

std::string MemoryText(const PlanRow& row) {
  const MemoryCost& memory = row.memory;
  return fmt::format("{} of weights + {} of cache = {} of {}: {}", SumBytes(memory.weights),
                     SumBytes(memory.kv), SumBytes(memory.total()), SumBytes(memory.device),
                     memory.fits() ? "fits" : "does not fit");
}

std::string CrossoverText(const PlanRow& row) {
  if (!row.crossover) return "the cache never passes the weights: windows end its growth before";
  return fmt::format("the cache passes the weights at about {} tokens of context in total",
                     WithCommas(ThreeDigits(row.crossover->value)));
}

std::string PlanTitle(const PlanRequest& request) {
  const DeviceShape& device = request.device;
  std::string count = request.devices > 1 ? fmt::format("{} × ", request.devices) : "";
  return fmt::format("{} on {}{}{}", request.model.name, count, device.name,
                     device.description.empty() ? "" : " (" + device.description + ")");
}

std::string PlanText(const Plan& plan) {
  std::string out = PlanTitle(plan.request) + "\n" + CountingText(plan.request) + "\n\n";
  out += RowsTable(plan) + "\n" + BarsText(plan) + "\n" + Why(plan) + "\nnot modelled:\n";
  for (const std::string& sentence : LeftOut(plan.request)) out += "  " + sentence + "\n";
  return out;
}

std::string PlanCsv(const Plan& plan) {
  const auto json = PlanJson(plan);
  std::string out;
  bool head = true;
  for (const auto& row : json["rows"]) {
    std::string names, values;
    for (const auto& [key, value] : row.items()) {
      if (value.is_object()) continue;
      names += (names.empty() ? "" : ",") + key;
      values += (values.empty() && key == "model" ? "" : ",") + CsvField(value);
    }
    if (std::exchange(head, false)) out += names + "\n";
    out += values + "\n";
  }
  return out;
}

}  // namespace nibble
