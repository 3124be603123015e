#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/automaton.h"
#include "grammar/expression.h"

namespace nibble::grammar {

// The automata of the rules that the root reaches, before anything is left out or ordered.
struct RawAutomaton {
  static constexpr uint32_t kNone = UINT32_MAX;
  struct ByteEdge {
    uint32_t source;
    uint8_t low, high;
    uint32_t target;
  };
  struct EmptyEdge {
    uint32_t source, target;
  };
  struct CallEdge {
    uint32_t source, rule, target;
  };
  struct Rule {
    RuleId id{};
    uint32_t start = 0;
    uint32_t end = 0;
  };
  uint32_t states = 0;
  std::vector<ByteEdge> bytes;
  std::vector<EmptyEdge> empties;
  std::vector<CallEdge> calls;  // rule: index into rules
  std::vector<Rule> rules;      // the root is first
};

// "rule 'value' (line 3)".
std::string RuleName(const GrammarSource::Rule& rule);

Result<RawAutomaton> BuildRaw(const GrammarSource& source, const AutomatonLimits& limits);

}  // namespace nibble::grammar
