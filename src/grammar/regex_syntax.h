#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/code_points.h"
#include "grammar/expression.h"

namespace nibble::grammar {

inline constexpr size_t kMostRegexBytes = 65536;

// A regular expression as a tree; node 0 is nowhere used, `root` is the whole.
struct RegexTree {
  enum class Kind : uint8_t { kChars, kSequence, kChoice, kRepeat, kBegin, kEnd };
  struct Node {
    Kind kind = Kind::kSequence;
    CodePointSet set;  // of kChars
    std::vector<uint32_t> parts;
    int min = 0, max = 0;  // of kRepeat; kUnbounded
  };
  std::vector<Node> nodes;
  uint32_t root = 0;
};

// The subset of ECMA-262 (with u) and Python's re that is regular: characters, escapes, classes
// with
// \d \w \s (of ECMA: digits and words are ASCII), \p{general category}, groups that capture, name
// or do not, alternatives, repetitions (lazy ones too: the language is the same), ^ and $. Refused
// by name, with the place: references to groups, looking around, word borders, possessive and
// atomic groups, flags.
Result<RegexTree> ParseRegex(std::string_view pattern);

// What matches as a whole, as re.fullmatch: ^ and $ may stand where they say nothing, at the two
// ends; elsewhere they are refused.
Result<ExprId> WholeMatch(const RegexTree& tree, GrammarSource& source);

}  // namespace nibble::grammar
