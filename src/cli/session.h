#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/globals.h"
#include "engine/engine.h"

namespace nibble::cli {

// A model opened for a command.
struct Session {
  std::filesystem::path path;
  std::unique_ptr<Engine> engine;
  double load_s = 0;
};

struct SessionOptions {
  int max_context = 0;  // used when --ctx is not given, at most the model's own
  bool pull = false;    // fetch a known name that is not on disk
  // Whole contexts that the KV cache holds unless --kv-memory says otherwise.
  int min_sequences = 1;
  int max_sequences = 16;  // at the same time
  bool prefix_cache = true;
  bool step_budget = false;  // EngineOptions
  double max_step_s = 0;
};

// Finds the model (pulling it where asked to), prints the memory plan to standard error unless
// --quiet, and loads.
Result<Session> OpenSession(const GlobalFlags& flags, const std::string& model,
                            const SessionOptions& options);

// The path of a model by path or name; with pull, a known name that is not on disk is fetched.
Result<std::filesystem::path> FindModel(const GlobalFlags& flags, const std::string& model,
                                        bool pull);

}  // namespace nibble::cli
