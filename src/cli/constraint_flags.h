#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace CLI {
class App;
}
namespace nibble::grammar {
class Constraint;
}

namespace nibble::cli {

// What an answer must be: at most one of these.
struct ConstraintFlags {
  std::string grammar;      // file of a GBNF grammar
  std::string json_schema;  // file of a JSON schema
  std::string regex;
  std::vector<std::string> choices;
  bool json_object = false;
  bool best_effort = false;  // of a schema: what is not supported is left out

  bool any() const {
    return !grammar.empty() || !json_schema.empty() || !regex.empty() || !choices.empty() ||
           json_object;
  }
};

void AddConstraintFlags(CLI::App& command, ConstraintFlags& flags);

// Errors name the flag or the file, and what is wrong with it.
Status CheckConstraint(const ConstraintFlags& flags);
// None when no flag is given.
Result<std::shared_ptr<grammar::Constraint>> MakeConstraint(const ConstraintFlags& flags,
                                                            const Engine& engine);

}  // namespace nibble::cli
