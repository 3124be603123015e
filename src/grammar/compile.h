#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/automaton.h"
#include "grammar/tool_syntax.h"

namespace nibble::grammar {

// What an answer must be, as users say it.
struct Wanted {
  enum class Kind : uint8_t {
    kGbnf,        // text: a grammar (gbnf.h)
    kRegex,       // text: an expression that the whole answer matches (regex_syntax.h)
    kChoice,      // choices: the answer is one of them
    kJsonObject,  // any JSON object
    kJsonSchema,  // text: a schema (json_schema.h)
    kTools,       // calls of `tools` (tool_syntax.h)
  };
  Kind kind = Kind::kGbnf;
  std::string text;
  std::vector<std::string> choices;
  // Schemas: keywords that are not supported are left out instead of refused.
  bool best_effort = false;
  ToolCalls tools = {};
  // The answer begins behind the first of these marks: what comes before (reasoning) is free.
  // Empty: at once.
  std::string behind = {};
};

// Errors (kBadInput) say what is wrong and where. Time and memory are bounded by the limits of the
// parsers and of AutomatonLimits, whatever the text is.
Result<std::shared_ptr<const Automaton>> Compile(const Wanted& wanted);

}  // namespace nibble::grammar
