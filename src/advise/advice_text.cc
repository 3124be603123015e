#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "advise/advice_report.h"
#include "base/text.h"

namespace nibble {
namespace {

std::string Cell(const Figure& figure, const std::string& text) {
  if (!figure.known()) return "–";
  return figure.measured() ? text : "~" + text;
}

std::string SecondsText(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  return fmt::format("{:.3g} s", seconds);
}

std::string KvName(const AdviceRow& row) {
  return row.skip_layers.empty() ? row.kv
                                 : fmt::format("{}, {} f16", row.kv, row.skip_layers.size());
}

// Columns in characters, not bytes.
std::string Padded(const std::string& text, size_t width, bool left) {
  size_t characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  const std::string space(characters < width ? width - characters : 0, ' ');
  return left ? text + space : space + text;
}

std::vector<std::string> Cells(const AdviceRow& row) {
  return {row.weights,
          KvName(row),
          std::to_string(row.batch),
          Cell(row.tpot_s, fmt::format("{:.4g}", row.tok_s())),
          Cell(row.ttft_s, SecondsText(row.ttft_s.value)),
          Cell(row.tpot_s, SecondsText(row.tpot_s.value)),
          Cell(row.memory, FormatBytes(row.memory.value)),
          Cell(row.kld, fmt::format("{:.5f} ± {:.5f}", row.kld.value, row.kld.error)),
          Cell(row.ppl, fmt::format("{:.4g}", row.ppl.value))};
}

}  // namespace

std::string AdviceTitle(const AdviceReport& report) {
  return fmt::format("{} for {} sequence{} of {} tokens on {}", report.model,
                     report.limits.concurrency, report.limits.concurrency == 1 ? "" : "s",
                     report.context, report.device);
}

std::string LimitsText(const AdviceLimits& limits) {
  std::string text;
  if (!std::isinf(limits.memory)) text += FormatBytes(limits.memory) + " and ";
  text += fmt::format("{:.3g} nats of divergence", limits.quality_loss);
  const char* wanted = limits.objective == AdviceObjective::kSpeed    ? "the most tokens a second"
                       : limits.objective == AdviceObjective::kMemory ? "the least memory"
                                                                      : "the least divergence";
  return fmt::format("within {}: {}", text, wanted);
}

std::string AdviceTable(const AdviceReport& report) {
  const std::vector<std::string> heads = {"weights", "KV",     "batch",      "tok/s", "TTFT",
                                          "TPOT",    "memory", "divergence", "ppl"};
  constexpr size_t kLeft = 2;  // columns
  std::vector<std::pair<bool, std::vector<std::string>>> lines;
  std::vector<size_t> order;
  const bool any_front = std::ranges::any_of(report.rows, &AdviceRow::pareto);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const AdviceRow& row = report.rows[i];
    const bool shown = any_front ? row.pareto : row.place.kv == 0;
    if (shown || report.choice == i) order.push_back(i);
  }
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return report.rows[i].tok_s(); });
  for (const size_t i : order) lines.emplace_back(report.choice == i, Cells(report.rows[i]));
  std::vector<size_t> widths;
  for (size_t c = 0; c < heads.size(); ++c) {
    size_t width = heads[c].size();
    for (const auto& [chosen, cells] : lines) {
      const auto begins = std::ranges::count_if(
          cells[c], [](char b) { return (static_cast<unsigned char>(b) & 0xC0) != 0x80; });
      width = std::max(width, static_cast<size_t>(begins));
    }
    widths.push_back(width);
  }
  const auto line = [&](const char* mark, const std::vector<std::string>& cells) {
    std::string text = mark;
    for (size_t c = 0; c < cells.size(); ++c) {
      text += (c > 0 ? "  " : "") + Padded(cells[c], widths[c], c < kLeft);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string out = line("  ", heads);
  for (const auto& [chosen, cells] : lines) out += line(chosen ? "> " : "  ", cells);
  return out;
}

std::string KvText(const AdviceReport& report) {
  std::string out;
  for (const KvDepthReport& kv : report.kv_depths) {
    if (kv.depths.empty() || kv.kv == "f16") continue;
    const auto beside = [](const KvDepthReport::Depth& depth) {
      return fmt::format("{:+.5f} ± {:.5f} at {}…{}", depth.divergence.mean - depth.plain.mean,
                         std::hypot(depth.divergence.se, depth.plain.se), depth.from, depth.to - 1);
    };
    out += fmt::format("{} cache beside f16: {}, {} nats\n", kv.kv, beside(kv.depths.front()),
                       beside(kv.depths.back()));
  }
  for (const KvLayerReport& kv : report.kv_layers) {
    std::string layers;
    for (const int layer : kv.skip.layers) {
      layers += fmt::format("{}{}", layers.empty() ? "" : ",", layer);
    }
    out += kv.skip.layers.size() == kv.costs.layers.size()
               ? fmt::format("{} cache: no layers to skip leave {:.2g} nats or less\n", kv.kv,
                             kv.target)
               : fmt::format("{} cache: --kv-skip-layers {} leaves {:.5f} of {:.5f} nats\n", kv.kv,
                             layers, kv.skip.measured.mean, kv.costs.all.mean);
  }
  return out;
}

}  // namespace nibble
