#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/code_points.h"
#include "grammar/regex_syntax.h"

namespace nibble::grammar {

// A set of texts as a deterministic automaton over code points (surrogates are none): what schemas
// say of strings, names and spelled numbers, closed under all that allOf, anyOf, oneOf and not ask
// for. State 0 is the start; a missing edge leads nowhere. Operations fail (kBadInput) beyond
// kMostDfaStates.
class CharDfa {
 public:
  // While it lives, operations on this thread make at most so many states together, so that a
  // schema of many expensive parts takes bounded time; beyond, they fail.
  class Budget {
   public:
    explicit Budget(int64_t states);
    ~Budget();
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;
    // False when it is used up.
    static bool Take(int64_t states);

   private:
    int64_t before_;
  };

  static constexpr size_t kMostStates = 120'000;

  struct Edge {
    char32_t low = 0;
    char32_t high = 0;  // included
    uint32_t target = 0;
    bool operator==(const Edge&) const = default;
  };
  struct State {
    std::vector<Edge> edges;  // ascending, disjoint
    bool final = false;
  };

  static CharDfa Everything();
  static CharDfa Nothing() { return CharDfa({State{}}); }
  static CharDfa OfTexts(const std::vector<std::string>& texts);
  // Texts of min to max characters; max kUnbounded. Errors: too long.
  static Result<CharDfa> OfLength(int64_t min, int64_t max);
  // Texts in which the expression is found (^ and $ are the text's ends), or that it matches whole.
  static Result<CharDfa> OfRegex(const RegexTree& tree, bool whole);
  // States as given, state 0 first.
  explicit CharDfa(std::vector<State> states) : states_(std::move(states)) {}

  Result<CharDfa> Intersect(const CharDfa& other) const;
  Result<CharDfa> Unite(const CharDfa& other) const;
  CharDfa Complement() const;
  // Without states that lead nowhere; small ones also with the fewest states.
  CharDfa Reduced() const;

  bool Contains(std::string_view text) const;
  bool IsEmpty() const;

  const std::vector<State>& states() const { return states_; }

 private:
  std::vector<State> states_;
};

}  // namespace nibble::grammar
