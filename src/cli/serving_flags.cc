#include "cli/serving_flags.h"

#include <CLI/CLI.hpp>

#include "cli/number_range.h"

namespace nibble::cli {

void AddServingFlags(CLI::App& command, ServingFlags& flags, const std::string& group) {
  command.add_option("--max-seqs", flags.max_sequences, "Most sequences at the same time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-batch-tokens", flags.max_batch_tokens,
                  "Most tokens of one step, of prompts and answers together")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-step-ms", flags.max_step_ms,
                  "Most milliseconds of one step, by a table of prices made at load; 0: no limit; "
                  "default: twice what the answers in it alone take")
      ->check(NumberFrom(0.0, 3.6e6))
      ->group(group);
  command.add_option("--prefix-cache", flags.prefix_cache, "Compute what prompts share once")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group(group);
}

void ApplyServingFlags(const ServingFlags& flags, EngineOptions& options) {
  options.max_running = flags.max_sequences;
  options.max_rows = flags.max_batch_tokens;
  options.step_budget = flags.max_step_ms.value_or(1) > 0;
  options.max_step_s = flags.max_step_ms.value_or(0) / 1000;
  options.prefix_cache = flags.prefix_cache == "on";
}

}  // namespace nibble::cli
