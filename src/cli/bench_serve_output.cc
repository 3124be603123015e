#include "cli/bench_serve_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "cli/output.h"

namespace nibble::cli {
namespace {

// Objects inside become columns of their own: ttft_s_p50.
void Flatten(const Json& from, const std::string& prefix, std::string& keys, std::string& values) {
  for (const auto& [key, value] : from.items()) {
    const std::string name = prefix + key;
    if (value.is_object()) {
      Flatten(value, name + "_", keys, values);
      continue;
    }
    keys += (keys.empty() ? "" : ",") + name;
    const std::string cell = value.is_string() ? value.get<std::string>() : value.dump();
    values += (values.empty() ? "" : ",") + (value.is_null() ? "" : cell);
  }
}

std::string Milliseconds(double seconds) { return fmt::format("{:.1f}", seconds * 1e3); }

// "p50 / p90 / p99", in seconds or milliseconds.
std::string Percentiles(const Summary& summary, double unit) {
  const int digits = unit == 1 ? 2 : 1;
  return fmt::format("{:.{}f} / {:.{}f} / {:.{}f}", summary.p50 * unit, digits, summary.p90 * unit,
                     digits, summary.p99 * unit, digits);
}

}  // namespace

Json SummaryJson(const Summary& summary) {
  return {{"mean", summary.mean}, {"p50", summary.p50}, {"p90", summary.p90}, {"p99", summary.p99}};
}

Json ServingReportJson(const ServingReport& report) {
  return {{"requests", report.requests},
          {"finished", report.finished},
          {"rejected", report.rejected},
          {"preemptions", report.preemptions},
          {"prompt_tokens", report.prompt_tokens},
          {"generated_tokens", report.generated_tokens},
          {"duration_s", report.duration_s},
          {"throughput_tok_s", report.throughput_tok_s},
          {"ttft_s", SummaryJson(report.ttft_s)},
          {"tpot_s", SummaryJson(report.tpot_s)},
          {"itl_s", SummaryJson(report.itl_s)},
          {"e2e_s", SummaryJson(report.e2e_s)},
          {"kv_peak_pages", report.kv_peak_pages},
          {"prefix_hit_tokens", report.prefix_hit_tokens},
          {"steps", report.steps},
          {"wall_s", report.wall_s},
          {"source", report.source}};
}

ServePrinter::ServePrinter(std::string output, std::string model)
    : output_(std::move(output)), model_(std::move(model)) {}

void ServePrinter::Row(Json row, const std::string& head, const std::string& line) {
  const bool first = rows_.empty();
  if (output_ == "md") {
    if (first) fmt::print("{}\n\n{}\n", model_, head);
    fmt::print("{}\n", line);
  } else if (output_ == "csv") {
    std::string keys, values;
    Flatten(row, "", keys, values);
    if (first) fmt::print("{}\n", keys);
    fmt::print("{}\n", values);
  } else if (output_ == "jsonl") {
    PrintJsonLine(row);
  }
  FlushOutput();
  rows_.push_back(std::move(row));
}

void ServePrinter::Replay(const std::string& batching, const ServingReport& report) {
  Json row = {{"batching", batching}};
  row.update(ServingReportJson(report));
  Row(std::move(row),
      "| batching | finished of | tokens/s | prompt tokens/s | TTFT p50 / p90 / p99, s | TPOT, ms "
      "| "
      "time between tokens, ms | whole request, s | steps | preemptions | KV pages |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
      fmt::format("| {} | {} of {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |", batching,
                  report.finished, report.requests, FormatRate(report.throughput_tok_s),
                  FormatRate(report.duration_s > 0
                                 ? static_cast<double>(report.prompt_tokens) / report.duration_s
                                 : 0),
                  Percentiles(report.ttft_s, 1), Percentiles(report.tpot_s, 1e3),
                  Percentiles(report.itl_s, 1e3), Percentiles(report.e2e_s, 1), report.steps,
                  report.preemptions, report.kv_peak_pages));
}

void ServePrinter::SharedPrefix(const ReplayResult& result, int prefix) {
  double first = 0;
  std::vector<double> others;
  for (const RequestTimes& request : result.requests) {
    if (!request.finished) continue;
    const double ttft = request.token_s.front() - request.arrival_s;
    if (first == 0) {
      first = ttft;
    } else {
      others.push_back(ttft);
    }
  }
  const Summary rest = Summarise(std::move(others));
  const double ratio = rest.mean > 0 ? first / rest.mean : 0;
  Json row = {{"shared_prefix", prefix},
              {"first_ttft_s", first},
              {"other_ttft_s", SummaryJson(rest)},
              {"ttft_ratio", ratio}};
  row.update(ServingReportJson(result.report));
  Row(std::move(row),
      "| prefix | requests | tokens of prompts | from the cache | first TTFT, ms | others' TTFT: "
      "mean, p50 / p90 / p99, ms | first / others' mean |\n|---:|---:|---:|---:|---:|---:|---:|",
      fmt::format("| {} | {} | {} | {} | {} | {}, {} | {:.1f} |", prefix, result.report.finished,
                  result.report.prompt_tokens, result.report.prefix_hit_tokens, Milliseconds(first),
                  Milliseconds(rest.mean), Percentiles(rest, 1e3), ratio));
}

void ServePrinter::Interfere(const std::optional<double>& max_step_ms,
                             const Interference& measured) {
  const std::string budget =
      !max_step_ms ? "default" : (*max_step_ms > 0 ? fmt::format("{}", *max_step_ms) : "none");
  Row({{"max_step_ms", max_step_ms ? Json(*max_step_ms) : Json(nullptr)},
       {"answers", measured.answers},
       {"prompt", measured.prompt},
       {"alone_itl_s", SummaryJson(measured.alone_s)},
       {"during_itl_s", SummaryJson(measured.during_s)},
       {"tokens_during", measured.tokens_during},
       {"slowdown", measured.Slowdown()},
       {"prompt_ttft_s", measured.prompt_ttft_s},
       {"prompt_alone_ttft_s", measured.prompt_alone_ttft_s}},
      "| budget, ms | answers | ms per token alone: mean, p50 / p90 / p99 | beside the prompt | "
      "slower by | prompt | its TTFT, s | alone, s |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|",
      fmt::format("| {} | {} | {}, {} | {}, {} | {:.2f} | {} | {:.2f} | {:.2f} |", budget,
                  measured.answers, Milliseconds(measured.alone_s.mean),
                  Percentiles(measured.alone_s, 1e3), Milliseconds(measured.during_s.mean),
                  Percentiles(measured.during_s, 1e3), measured.Slowdown(), measured.prompt,
                  measured.prompt_ttft_s, measured.prompt_alone_ttft_s));
}

void ServePrinter::Finish() {
  if (output_ != "json") return;
  Json out;
  out["model"] = model_;
  out["rows"] = std::move(rows_);
  PrintJsonLine(out);
}

}  // namespace nibble::cli
