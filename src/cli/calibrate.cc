#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "advise/validate.h"
#include "cli/commands.h"
#include "cli/here_device.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cost/calibration.h"
#include "platform/thread_pool.h"

namespace nibble::cli {
namespace {

struct CalibrateFlags {
  std::string out;
  bool quick = false;
  bool validate = false;
};

void PrintCalibration(const Calibration& c) {
  fmt::print(
      "{}\n{} threads, {}: memory {:.1f} GB/s (spread {:.0f}%), multiply-adds int4 {:.0f}, "
      "int8 {:.0f}, f32 {:.0f} G/s\n",
      c.machine.Describe(), c.threads, IsaName(c.isa), c.read_bandwidth * 1e-9, 100 * c.read_spread,
      c.int4_macs * 1e-9, c.int8_macs * 1e-9, c.f32_macs * 1e-9);
  fmt::print(
      "barrier {:.2f} µs, parallel region {:.2f} µs, step {:.1f} µs, layer {:.2f} µs "
      "(fit of small models within {:.1f}%)\n\nread, GB/s by working set:",
      c.barrier_s * 1e6, c.region_s * 1e6, c.overheads.step_s * 1e6, c.overheads.layer_s * 1e6,
      100 * c.overheads.spread);
  for (const BandwidthPoint& point : c.cache_bandwidth) {
    fmt::print(" {:.0f} MB {:.1f}", point.bytes * 1e-6, point.bandwidth * 1e-9);
  }
  fmt::print("\n\n{:<10} {:<5} {:>14} {:>14} {:>10} {:>8}\n", "weights", "act", "1 row GB/s",
             "many GMAC/s", "overlap p", "spread");
  for (const KernelRates& one : c.kernels) {
    if (one.isa != c.isa) continue;
    fmt::print("{:<10} {:<5} {:>14.1f} {:>14.0f} {:>10.1f} {:>7.0f}%\n", TraitsOf(one.format).name,
               one.integer ? "int8" : "f32", one.gemv_bandwidth * 1e-9, one.gemm_macs * 1e-9,
               one.overlap_p, 100 * one.spread);
  }
  fmt::print("\n{:<10} {:<5} {:>8} {:>8} {:>14} {:>10} {:>8}\n", "pages", "act", "head_dim",
             "group", "page, µs", "overlap p", "spread");
  for (const AttentionRates& one : c.attention) {
    fmt::print("{:<10} {:<5} {:>8} {:>8} {:>14.3f} {:>10.1f} {:>7.0f}%\n", TraitsOf(one.kv).name,
               one.integer ? "int8" : "f32", one.head_dim, one.group, one.page_s * 1e6,
               one.overlap_p, 100 * one.spread);
  }
}

Json RowJson(const ValidationRow& row) {
  return {{"model", row.model},
          {"weights", row.weights},
          {"kv", row.kv},
          {"batch", row.batch},
          {"context", row.context},
          {"measured_s", row.measured_s},
          {"predicted_s", row.predicted_s},
          {"residual", row.residual()},
          {"calibrated_s", row.calibrated_s},
          {"read_share", row.read},
          {"cpu_share", row.cpu}};
}

Status RunValidate(const GlobalFlags& flags) {
  NIBBLE_TRY(const DeviceShape device, CalibratedHere(flags));
  NIBBLE_TRY(const auto pool, MakeThreads(flags));
  if (!flags.json) {
    fmt::print("{:<15} {:<7} {:<6} {:>5} {:>7} {:>12} {:>12} {:>9} {:>14} {:>7} {:>7}\n", "model",
               "weights", "kv", "batch", "context", "measured ms", "predicted", "residual",
               "as calibrated", "memory", "cores");
  }
  std::vector<ValidationRow> rows;
  {
    Progress progress("validating", !flags.quiet);
    ValidateOptions options;
    options.progress = [&](double part, const ValidationRow* row) {
      progress.Update(part, row == nullptr ? "" : row->model);
      if (row == nullptr || flags.json) return true;
      fmt::print(
          "{:<15} {:<7} {:<6} {:>5} {:>7} {:>12.3f} {:>12.3f} {:>+8.1f}% {:>14.3f} "
          "{:>6.0f}% {:>6.0f}%\n",
          row->model, row->weights, row->kv, row->batch, row->context, 1e3 * row->measured_s,
          1e3 * row->predicted_s, 100 * row->residual(), 1e3 * row->calibrated_s, 100 * row->read,
          100 * row->cpu);
      FlushOutput();
      return true;
    };
    NIBBLE_TRY(rows, Validate(*pool, device.calibration, options));
  }
  const ValidationErrors errors = Summarise(rows);
  if (flags.json) {
    Json out = {{"median_error", errors.median}, {"p90_error", errors.p90}};
    out["rows"] = Json::array();
    for (const ValidationRow& row : rows) out["rows"].push_back(RowJson(row));
    PrintJsonLine(out);
    return {};
  }
  fmt::print(
      "\n{} steps: median error {:.1f}%, 90th percentile {:.1f}%\n"
      "predicted: with the rates of memory and cores at that moment (the last two columns, "
      "as shares of the calibrated ones)\n",
      rows.size(), 100 * errors.median, 100 * errors.p90);
  return {};
}

Status RunCalibrate(const GlobalFlags& flags, const CalibrateFlags& own) {
  if (own.validate && (own.quick || !own.out.empty())) {
    return BadInput("--validate measures no device file that --quick or --out could be about");
  }
  if (own.validate) return RunValidate(flags);
  NIBBLE_TRY(const CalibratedFile file,
             RunCalibration(flags, {.quick = own.quick, .out = own.out}));
  if (flags.json) {
    fmt::print("{}", CalibrationJson(file.calibration));
  } else {
    PrintCalibration(file.calibration);
  }
  if (!flags.quiet) {
    fmt::print(stderr, "calibrated in {:.0f} s: {}\n", file.calibration.seconds,
               file.path.string());
  }
  return {};
}

}  // namespace

void AddCalibrateCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "calibrate", "Measure this machine once, so that plan predicts steps on it");
  auto own = std::make_shared<CalibrateFlags>();
  command
      ->add_option("--out", own->out,
                   "Device file to write; without it where --device here looks for it")
      ->type_name("FILE");
  command->add_flag("--quick", own->quick, "About 20 seconds instead of a minute: fewer points");
  command->add_flag(
      "--validate", own->validate,
      "Instead: steps of whole models as predicted beside as measured, each residual");
  command->footer(
      "Measures memory and cache bandwidth, every weight format's products, attention over every\n"
      "format of pages and the rest of a step, with the threads of -t. Leave the machine alone\n"
      "meanwhile; the file states the spread. docs/cost-model.md has the terms.\n"
      "Examples:\n"
      "  nibble calibrate && nibble calibrate --validate\n"
      "  nibble calibrate --quick -t 1\n"
      "  nibble calibrate --out mine.json && nibble plan --model llama-3-8b --device mine.json\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunCalibrate(flags, *own); }; });
}

}  // namespace nibble::cli
