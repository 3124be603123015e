#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/expression.h"

namespace nibble::grammar {

inline constexpr size_t kMostGrammarBytes = size_t{1} << 20;

// llama.cpp's GBNF: rules `name ::= …` over "texts", [character classes], `.`, names, ( ), |, and
// the repetitions * + ? {n} {n,} {n,m}; # begins a comment; the answer is what `root` matches.
// Errors name the line, what was expected and what was found. Nothing is checked beyond a rule's
// text: AutomatonOf names rules that are undefined, unused, left recursive or without an end.
Result<GrammarSource> ParseGbnf(std::string_view text);

}  // namespace nibble::grammar
