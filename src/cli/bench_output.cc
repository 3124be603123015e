#include "cli/bench_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "cli/output.h"
#include "platform/cpu.h"

namespace nibble::cli {
namespace {

std::string_view TestName(BenchTest test) {
  switch (test) {
    case BenchTest::kPrompt:
      return "pp";
    case BenchTest::kGenerate:
      return "tg";
    default:
      return "pg";
  }
}

std::string FractionText(const Json& row, const std::string& key) {
  if (row[key].is_null()) return "-";
  return fmt::format("{:.0f}% ({:.0f}%)", 100 * row[key].get<double>(),
                     100 * row[key + "_best"].get<double>());
}

std::string LimitsText(const MachineLimits& limits) {
  const auto pair = [](double best, double median) {
    return fmt::format("{:.0f} ({:.0f})", best / 1e9, median / 1e9);
  };
  const Macs& best = limits.best.macs;
  const Macs& median = limits.median.macs;
  return fmt::format(
      "limits, best (median): read {:.1f} ({:.1f}) GB/s over {}, {}; {} G int4, {} G int8, {} G "
      "f32 "
      "multiply-adds/s; barrier {:.2f} µs, region {:.2f} µs; {}",
      limits.best.read / 1e9, limits.median.read / 1e9,
      FormatBytes(static_cast<double>(limits.read_bytes)), limits.read_form,
      pair(best.int4, median.int4), pair(best.int8, median.int8), pair(best.f32, median.f32),
      limits.barrier_s * 1e6, limits.region_s * 1e6, IsaName(limits.isa));
}

}  // namespace

Json LimitsJson(const MachineLimits& limits) {
  Json caches = Json::array();
  for (const CacheBandwidth& cache : limits.cache_bandwidth) {
    caches.push_back({{"bytes", cache.bytes}, {"bandwidth", cache.bandwidth}});
  }
  return {{"read_bandwidth", limits.best.read},
          {"read_bandwidth_median", limits.median.read},
          {"read_form", limits.read_form},
          {"read_bytes", limits.read_bytes},
          {"cache_bandwidth", caches},
          {"int4_macs", limits.best.macs.int4},
          {"int4_macs_median", limits.median.macs.int4},
          {"int8_macs", limits.best.macs.int8},
          {"int8_macs_median", limits.median.macs.int8},
          {"f32_macs", limits.best.macs.f32},
          {"f32_macs_median", limits.median.macs.f32},
          {"barrier_s", limits.barrier_s},
          {"region_s", limits.region_s},
          {"isa", IsaName(limits.isa)}};
}

Json BenchRowJson(const BenchHeader& header, const std::string& kv, const BenchRow& row,
                  const std::optional<LimitFractions>& fractions) {
  const double median = row.MedianSeconds();
  const auto [fastest, slowest] = std::ranges::minmax(row.seconds);
  const auto tokens = static_cast<double>(row.work.tokens);
  Json json = {
      {"test", TestName(row.test.test)},
      {"prompt", row.test.prompt},
      {"gen", row.test.gen},
      {"batch", row.test.batch},
      {"depth", row.test.depth},
      {"act", header.act},
      {"kv", kv},
      {"threads", header.threads},
      {"tok_s", tokens / median},
      {"tok_s_min", tokens / slowest},
      {"tok_s_max", tokens / fastest},
      // Of a prompt the time to its end, of an answer the time of one step.
      {"latency_s",
       row.test.test == BenchTest::kPrompt ? median : median / static_cast<double>(row.work.steps)},
      {"bandwidth_fraction", nullptr},
      {"compute_fraction", nullptr}};
  if (fractions) {
    json["bandwidth_fraction"] = fractions->bandwidth.median;
    json["bandwidth_fraction_best"] = fractions->bandwidth.best;
    json["compute_fraction"] = fractions->compute.median;
    json["compute_fraction_best"] = fractions->compute.best;
    json["alternations"] = fractions->alternations;
    // Around so many of them the limit itself changed; the fraction leaves them out unless few
    // are left.
    json["bandwidth_unsteady"] = fractions->bandwidth.unsteady;
    json["compute_unsteady"] = fractions->compute.unsteady;
  }
  return json;
}

BenchPrinter::BenchPrinter(std::string output, BenchHeader header)
    : output_(std::move(output)), header_(std::move(header)) {
  if (output_ != "md") return;
  fmt::print("{}: {:.0f} M parameters, {} of weights a step; act {}, {} threads, {}\n",
             header_.model, static_cast<double>(header_.parameters) / 1e6,
             FormatBytes(static_cast<double>(header_.weight_bytes_per_step)), header_.act,
             header_.threads, IsaName(header_.isa));
  FlushOutput();
}

void BenchPrinter::Limits(const MachineLimits& limits) {
  limits_ = LimitsJson(limits);
  if (output_ == "md") fmt::print("{}\n", LimitsText(limits));
  if (output_ == "csv") fmt::print(stderr, "{}\n", LimitsText(limits));
  if (output_ == "jsonl") PrintJsonLine({{"limits", limits_}});
  FlushOutput();
}

void BenchPrinter::MarkdownRow(const Json& row) const {
  if (rows_.size() == 1) {
    fmt::print(
        "\n| test | batch | depth | act | kv | threads | tokens/s (min … max) | latency | of "
        "bandwidth (best) | of multiply peak (best) |\n"
        "|---|---:|---:|---|---|---:|---:|---:|---:|---:|\n");
  }
  const auto prompt = row["prompt"].get<int>();
  const auto gen = row["gen"].get<int>();
  const std::string test = row["test"].get<std::string>();
  const std::string length =
      test == "pg" ? fmt::format("{}+{}", prompt, gen) : fmt::format("{}", prompt + gen);
  fmt::print("| {}{} | {} | {} | {} | {} | {} | {} ({} … {}) | {:.2f} ms{} | {} | {} |\n", test,
             length, row["batch"].get<int>(), row["depth"].get<int>(),
             row["act"].get<std::string>(), row["kv"].get<std::string>(), row["threads"].get<int>(),
             FormatRate(row["tok_s"].get<double>()), FormatRate(row["tok_s_min"].get<double>()),
             FormatRate(row["tok_s_max"].get<double>()), row["latency_s"].get<double>() * 1e3,
             test == "pp" ? "" : " a step", FractionText(row, "bandwidth_fraction"),
             FractionText(row, "compute_fraction"));
}

void BenchPrinter::MarkdownNotes() const {
  int alternations = 0;
  int unsteady = 0;
  bool fast = false;
  for (const Json& row : rows_) {
    if (row["bandwidth_fraction"].is_null()) continue;
    alternations += row["alternations"].get<int>();
    unsteady += std::max(row["bandwidth_unsteady"].get<int>(), row["compute_unsteady"].get<int>());
    fast |= row["bandwidth_fraction"].get<double>() > 1;
  }
  if (20 * unsteady > alternations) {
    fmt::print(
        "\nThe machine's limits changed by more than a tenth around {} of {} pieces: something "
        "else "
        "runs here. These pieces do not count, unless steady ones are less than a third of a "
        "row's; "
        "then its fractions may be anything, above 100% too.\n",
        unsteady, alternations);
  }
  const size_t cache = ReadTopology().last_level_cache;
  if (fast && header_.weight_bytes_per_step < cache) {
    fmt::print(
        "\nMore than 100% of bandwidth: the weights ({}) stay in the last-level cache ({}).\n",
        FormatBytes(static_cast<double>(header_.weight_bytes_per_step)),
        FormatBytes(static_cast<double>(cache)));
  }
}

void BenchPrinter::CsvRow(const Json& row) const {
  const auto line = [](const Json& from, bool keys) {
    std::string text;
    for (const auto& [key, value] : from.items()) {
      std::string cell = value.is_string() ? value.get<std::string>() : value.dump();
      if (value.is_null()) cell.clear();
      text += (text.empty() ? "" : ",") + (keys ? key : cell);
    }
    fmt::print("{}\n", text);
  };
  if (rows_.size() == 1) line(row, true);
  line(row, false);
}

void BenchPrinter::Row(const Json& row) {
  rows_.push_back(row);
  if (output_ == "md") MarkdownRow(row);
  if (output_ == "csv") CsvRow(row);
  if (output_ == "jsonl") PrintJsonLine(row);
  FlushOutput();
}

void BenchPrinter::Finish() {
  if (output_ == "md") MarkdownNotes();
  if (output_ != "json") return;
  Json out;
  if (!limits_.is_null()) out["limits"] = limits_;
  out["model"] = header_.model;
  out["parameters"] = header_.parameters;
  out["weight_bytes_per_step"] = header_.weight_bytes_per_step;
  out["rows"] = rows_;
  PrintJsonLine(out);
}

void PrintExactness(const std::string& output, std::span<const AttentionExactness> entries) {
  Json rows = Json::array();
  for (const AttentionExactness& entry : entries) {
    rows.push_back({{"positions", entry.positions},
                    {"max_error", entry.max_error},
                    {"bound", entry.bound},
                    {"worst_ratio", entry.worst_ratio},
                    {"workspace_bytes", entry.workspace_bytes}});
  }
  if (output == "json") return PrintJsonLine({{"attention_exactness", rows}});
  if (output == "md") {
    fmt::print(
        "| positions | largest error | its rounding bound | worst error / bound | workspace |\n"
        "|---:|---:|---:|---:|---:|\n");
  }
  if (output == "csv") fmt::print("positions,max_error,bound,worst_ratio,workspace_bytes\n");
  for (const AttentionExactness& e : entries) {
    if (output == "md") {
      fmt::print("| {} | {:.2e} | {:.2e} | {:.3f} | {} bytes |\n", e.positions, e.max_error,
                 e.bound, e.worst_ratio, e.workspace_bytes);
    }
    if (output == "csv") {
      fmt::print("{},{},{},{},{}\n", e.positions, e.max_error, e.bound, e.worst_ratio,
                 e.workspace_bytes);
    }
  }
  if (output == "jsonl") {
    for (const Json& row : rows) PrintJsonLine(row);
  }
}

}  // namespace nibble::cli
