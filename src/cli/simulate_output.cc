#include "cli/simulate_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench_serve_output.h"
#include "cli/output.h"

namespace nibble::cli {
namespace {

constexpr double kMilli = 1e3;

std::string SummaryLine(const char* name, const Summary& summary, double unit) {
  const auto cell = [&](double value) { return fmt::format("{:>11.{}f}", value * unit, 2); };
  return fmt::format("{:<24}{}{}{}{}\n", name, cell(summary.mean), cell(summary.p50),
                     cell(summary.p90), cell(summary.p99));
}

int TotalPages(const SimulatorOptions& options) {
  int pages = 0;
  for (const PoolSpec& pool : options.pools) pages += pool.pages + pool.open_pages;
  return pages;
}

std::string SimulationNotes(const SimulateSetup& setup) {
  std::string text;
  if (!setup.counting.empty()) text += setup.counting + "\n";
  for (const std::string& one : setup.left_out) text += "not modelled: " + one + "\n";
  return text;
}

double Utilisation(const SimulationResult& result) {
  const double duration = result.report.duration_s;
  return duration > 0 ? std::min(result.busy_s / duration, 1.0) : 0;
}

}  // namespace

std::string SimulationText(const SimulateSetup& setup, const SimulationResult& result) {
  const ServingReport& report = result.report;
  const SchedulerLimits& limits = setup.options.limits;
  std::string text = fmt::format("{}; at most {} sequences, {} tokens a step\n\n", setup.server,
                                 limits.max_running, limits.max_rows);
  text += fmt::format("requests                {} finished of {}, {} refused, {} preemptions\n",
                      report.finished, report.requests, report.rejected, report.preemptions);
  text += fmt::format("throughput              {} tokens/s, {} prompt tokens/s over {:.1f} s\n",
                      FormatRate(report.throughput_tok_s),
                      FormatRate(report.duration_s > 0
                                     ? static_cast<double>(report.prompt_tokens) / report.duration_s
                                     : 0),
                      report.duration_s);
  const auto steps = static_cast<double>(std::max<int64_t>(report.steps, 1));
  text += fmt::format("steps                   {}, {:.1f} tokens each, busy {:.1f}% of the time\n",
                      report.steps, static_cast<double>(result.rows) / steps,
                      100 * Utilisation(result));
  text +=
      fmt::format("KV pages                {} of {} at most, {} prompt tokens found in them\n\n",
                  report.kv_peak_pages, TotalPages(setup.options), report.prefix_hit_tokens);
  text += fmt::format("{:<24}{:>11}{:>11}{:>11}{:>11}\n", "", "mean", "p50", "p90", "p99");
  text += SummaryLine("first token, ms", report.ttft_s, kMilli);
  text += SummaryLine("per token, ms", report.tpot_s, kMilli);
  text += SummaryLine("between two tokens, ms", report.itl_s, kMilli);
  text += SummaryLine("whole request, s", report.e2e_s, 1);
  text += fmt::format("\nsimulated in {:.2f} s ({}); {}\n", report.wall_s,
                      report.wall_s > 0
                          ? FormatRate(60 * report.requests / report.wall_s) + " requests a minute"
                          : "at once",
                      setup.source);
  return text + SimulationNotes(setup);
}

Json SimulationJson(const SimulateSetup& setup, const SimulationResult& result) {
  Json out = ServingReportJson(result.report);
  out["never_fit"] = result.never_fit;
  out["busy_s"] = result.busy_s;
  out["rows"] = result.rows;
  out["kv_pages"] = TotalPages(setup.options);
  out["server"] = setup.server;
  out["max_seqs"] = setup.options.limits.max_running;
  out["max_batch_tokens"] = setup.options.limits.max_rows;
  out["max_context"] = setup.options.max_context;
  if (!setup.counting.empty()) out["counting_text"] = setup.counting;
  out["left_out"] = setup.left_out;
  return out;
}

std::string CapacityText(const SimulateSetup& setup, const Capacity& capacity,
                         const LatencyLimits& limits) {
  std::string text = setup.server + "\n\n";
  text += fmt::format("{:>12}{:>14}{:>14}{:>12}{:>9}  {}\n", "requests/s", "TTFT p99, ms",
                      "TPOT p99, ms", "tokens/s", "refused", "limits");
  for (const CapacityTrial& trial : capacity.trials) {
    const ServingReport& report = trial.result.report;
    text += fmt::format("{:>12.4g}{:>14.1f}{:>14.2f}{:>12}{:>9}  {}\n", trial.rate,
                        report.ttft_s.p99 * kMilli, report.tpot_s.p99 * kMilli,
                        FormatRate(report.throughput_tok_s), report.rejected,
                        trial.holds ? "kept" : "broken");
  }
  const std::string promised = fmt::format(
      "{}{}{}", limits.ttft_s > 0 ? fmt::format("TTFT {:g} ms", limits.ttft_s * kMilli) : "",
      limits.ttft_s > 0 && limits.tpot_s > 0 ? " and " : "",
      limits.tpot_s > 0 ? fmt::format("TPOT {:g} ms", limits.tpot_s * kMilli) : "");
  if (capacity.rate == 0) {
    text += fmt::format("\nno rate keeps p99 of {}\n", promised);
  } else {
    text += fmt::format("\n{:.4g} requests/s keep p99 of {}{}\n", capacity.rate, promised,
                        capacity.bounded ? "" : ", and no higher rate was found that does not");
  }
  return text + SimulationNotes(setup);
}

Json CapacityJson(const SimulateSetup& setup, const Capacity& capacity,
                  const LatencyLimits& limits) {
  Json trials = Json::array();
  for (const CapacityTrial& trial : capacity.trials) {
    Json row = {{"rate", trial.rate}, {"holds", trial.holds}};
    row.update(ServingReportJson(trial.result.report));
    trials.push_back(std::move(row));
  }
  return {{"capacity_rate", capacity.rate}, {"bounded", capacity.bounded},
          {"slo_ttft_s", limits.ttft_s},    {"slo_tpot_s", limits.tpot_s},
          {"trials", std::move(trials)},    {"server", setup.server},
          {"source", setup.source}};
}

}  // namespace nibble::cli
