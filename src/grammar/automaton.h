#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/expression.h"

namespace nibble::grammar {

struct AutomatonLimits {
  uint32_t max_states = 1 << 18;
  uint32_t max_edges = 1 << 20;
  int max_depth = 1000;  // rules inside one another while text is read
  // Rules that nothing uses and rules that can never end are errors, not left out.
  bool refuse_useless_rules = false;
};

// A grammar as an automaton over bytes with one stack: per rule a nondeterministic automaton whose
// edges take a byte, nothing, or a whole rule. By construction every state lies on a way to its
// rule's end that needs `need` more rules on the stack at most, no rule is left recursive (so what
// is called without reading a byte is ordered by `rank`), and a rule that matches nothing is passed
// by an empty edge beside each call, so that a call that is really made reads at least a byte.
struct Automaton {
  using State = uint32_t;
  using Class = uint8_t;

  struct ByteEdge {
    Class low = 0;
    Class high = 0;  // included
    State target = 0;
  };
  struct Call {
    uint32_t rule = 0;
    State target = 0;
    bool tail = false;  // nothing is left to do behind it
  };
  struct Rule {
    std::string name;
    State start = 0;
    uint32_t rank = 0;  // callers without a byte read come before those they call
  };

  std::span<const ByteEdge> bytes(State s) const {
    return std::span(byte_edges).subspan(byte_begin[s], byte_begin[s + 1] - byte_begin[s]);
  }
  std::span<const State> empties(State s) const {
    return std::span(empty_edges).subspan(empty_begin[s], empty_begin[s + 1] - empty_begin[s]);
  }
  std::span<const Call> calls(State s) const {
    return std::span(call_edges).subspan(call_begin[s], call_begin[s + 1] - call_begin[s]);
  }
  size_t states() const { return need.size(); }

  std::vector<ByteEdge> byte_edges;
  std::vector<State> empty_edges;
  std::vector<Call> call_edges;
  std::vector<uint32_t> byte_begin, empty_begin, call_begin;  // [states + 1]
  std::vector<uint16_t> need;                                 // [states]
  std::vector<bool> final;                                    // [states]: a rule's end
  std::vector<Rule> rules;
  uint32_t root = 0;
  bool root_matches_empty = false;
  int max_depth = 0;

  // Bytes that no edge tells apart are one class; a class is a run of bytes.
  std::array<Class, 256> class_of{};
  std::array<uint8_t, 256> class_first{};  // [classes]: its least byte
  int classes = 0;
  int class_size(int c) const {
    return (c + 1 < classes ? int{class_first[static_cast<size_t>(c) + 1]} : 256) -
           class_first[static_cast<size_t>(c)];
  }
};

// Errors name the rule, its line and what is wrong: undefined, left recursive, never ending, or too
// large for the limits.
Result<Automaton> AutomatonOf(const GrammarSource& source, const AutomatonLimits& limits = {});

}  // namespace nibble::grammar
