#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/globals.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace nibble::cli {

// Guesses that are verified several at a time (docs/speculation.md).
struct SpeculationFlags {
  bool ngram = false;
  bool no_forms = false;
  std::string draft;  // a model by path or name, or "self:FORMAT"; empty: none

  bool on() const { return ngram || !draft.empty(); }
};
void AddSpeculationFlags(CLI::App& command, SpeculationFlags& flags);

// What they stand for; finds the draft model, pulls it by name, or makes it.
struct MadeSpeculation {
  Speculation speculation;
  std::shared_ptr<const void> files;  // to be kept until the engine is made
};
Result<MadeSpeculation> MakeSpeculation(const GlobalFlags& flags, const SpeculationFlags& own,
                                        const ModelFile& model);

}  // namespace nibble::cli
