#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/globals.h"
#include "cli/serving_flags.h"
#include "cli/speculation_flags.h"
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
  // None: one request at a time, whose prompt makes nobody wait, so that no prices are measured.
  const ServingFlags* serving = nullptr;
  SpeculationFlags speculation = {};
  // Sees the input of every linear layer of every token, so that no prefixes are shared.
  LinearTap* tap = nullptr;
};

// What makes a named model's float copy (PullOptions::make_float_copy), with a progress line of its
// own. keep_running is asked now and then.
std::function<Status(const std::filesystem::path&, const std::filesystem::path&)> FloatCopyMaker(
    const GlobalFlags& flags, std::function<bool()> keep_running);

// What the common flags say of an engine. Errors: a wrong --act, --kv or --kv-memory.
Result<EngineOptions> MakeEngineOptions(const GlobalFlags& flags);

// Finds the model (pulling it where asked to), prints the memory plan to standard error unless
// --quiet, and loads.
Result<Session> OpenSession(const GlobalFlags& flags, const std::string& model,
                            const SessionOptions& options);

// The path of a model by path or name; with pull, a known name that is not on disk is fetched.
Result<std::filesystem::path> FindModel(const GlobalFlags& flags, const std::string& model,
                                        bool pull);

}  // namespace nibble::cli
