#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/globals.h"
#include "cost/capacity.h"
#include "cost/simulator.h"

namespace nibble::cli {

// The flags of `nibble simulate`, as typed.
struct SimulateFlags {
  std::string trace;
  std::string format;
  std::string model;
  std::string device = "here";
  std::string devices = "1";
  std::string weights;
  bool nominal = false;
  bool true_bytes = false;
  std::string policy = "nibble";
  std::optional<int> max_sequences = {};
  std::optional<int> max_batch_tokens = {};
  std::optional<int> max_queue = {};
  std::optional<double> max_step_ms = {};
  std::string prefix_cache;
  double rate = 0;
  std::string arrivals = "file";
  double cv = 1;
  int64_t limit = 0;
  double slo_ttft_ms = 0;
  double slo_tpot_ms = 0;
  std::string events;
  std::string requests;
  std::string check_steps;
};

// What is simulated.
struct SimulateSetup {
  SimulatorOptions options;
  std::unique_ptr<StepTimer> timer;
  std::string server;         // "llama-3-70b on 8 × h100, weights bf16, cache f16"
  std::string counting = {};  // how bytes were counted; empty: prices of a log
  std::string source;         // of step times, for the report
  std::vector<std::string> left_out = {};
  int kv_tokens = 0;  // that the pages of global layers hold; 0: unknown
};

// From the flags, or, where they name no model, from the first line of our own server's log.
// Errors name the flag.
Result<SimulateSetup> MakeSimulateSetup(const GlobalFlags& flags, const SimulateFlags& own,
                                        const TraceSurvey& survey);

}  // namespace nibble::cli
