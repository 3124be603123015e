#pragma once

#include <optional>
#include <string>

#include "engine/engine.h"

namespace CLI {
class App;
}

namespace nibble::cli {

// Flags of commands that serve many requests at once.
struct ServingFlags {
  int max_sequences = 16;
  int max_batch_tokens = 512;
  std::optional<double> max_step_ms;  // none: twice what the answers alone take; 0: no limit
  std::string prefix_cache = "on";
};

void AddServingFlags(CLI::App& command, ServingFlags& flags, const std::string& group);

// The options that they stand for.
void ApplyServingFlags(const ServingFlags& flags, EngineOptions& options);

}  // namespace nibble::cli
