#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grammar/constraint.h"
#include "grammar/gbnf.h"
#include "grammar/regex_syntax.h"

// Shared by the tests of this folder.
namespace nibble::grammar {

using Rules = std::shared_ptr<const Automaton>;

inline Rules MustAutomaton(Result<Automaton> automaton) {
  if (!automaton) {
    ADD_FAILURE() << automaton.error().message;
    return nullptr;
  }
  return std::make_shared<const Automaton>(*std::move(automaton));
}

inline Rules MustGbnf(std::string_view text, const AutomatonLimits& limits = {}) {
  const auto source = ParseGbnf(text);
  if (!source) {
    ADD_FAILURE() << source.error().message;
    return nullptr;
  }
  return MustAutomaton(AutomatonOf(*source, limits));
}

inline Result<Automaton> RegexAutomaton(std::string_view pattern) {
  NIBBLE_TRY(const RegexTree tree, ParseRegex(pattern));
  GrammarSource source;
  NIBBLE_TRY(const ExprId body, WholeMatch(tree, source));
  source.SetRoot(source.AddRule("regex", body));
  return AutomatonOf(source);
}

inline Rules MustRegex(std::string_view pattern) { return MustAutomaton(RegexAutomaton(pattern)); }

inline bool Matches(const Rules& rules, std::string_view text) {
  Configurations configurations(rules);
  Configurations::Id id = configurations.start();
  for (const char byte : text) {
    id = configurations.NextByte(id, static_cast<uint8_t>(byte));
    if (id == Configurations::kDead) return false;
  }
  return configurations.accepting(id);
}

// One token per byte, and no end token.
inline std::shared_ptr<const Vocabulary> BytesOnly() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<TokenId>{});
}

// All bytes, an end token, and pieces of JSON, words and characters of several bytes, also cut
// within a character.
inline std::shared_ptr<const Vocabulary> RandomVocabulary(std::mt19937& random, int size) {
  const std::vector<std::string> parts = {"a",    "b",  "ab",       "x",    "\"",   "\":", ",",
                                          "[",    "]",  "{",        "}",    " ",    "1",   "20",
                                          ".",    "\\", "\n",       "é",    "α",    "ω",   "\xCE",
                                          "\xB1", "😀", "\xF0\x9F", "true", "Word", "_"};
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("<end>");
  while (std::ssize(tokens) < size) {
    std::string token;
    for (size_t n = 1 + random() % 9; n > 0; --n) token += parts[random() % parts.size()];
    tokens.push_back(std::move(token));
  }
  return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<TokenId>{TokenId{256}});
}

inline std::vector<int> Allowed(Constraint& constraint, Constraint::State& state) {
  const auto mask = constraint.Mask(state);
  std::vector<int> out;
  if (!mask) return out;
  for (int i = 0; i < constraint.vocabulary().size(); ++i) {
    if ((*mask)->Allows(TokenId{i})) out.push_back(i);
  }
  EXPECT_EQ((*mask)->only.has_value(), out.size() == 1);
  return out;
}

inline std::vector<int> BruteForce(Constraint& constraint, const Constraint::State& state) {
  std::vector<int> out;
  for (int i = 0; i < constraint.vocabulary().size(); ++i) {
    Constraint::State copy = state;
    if (constraint.Accept(copy, TokenId{i})) out.push_back(i);
  }
  return out;
}

}  // namespace nibble::grammar
