#include "grammar/constraint.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "grammar/fixture_test.h"
#include "grammar/gbnf.h"
#include "grammar/regex_syntax.h"

namespace nibble::grammar {
namespace {

TEST(Constraint, LetsThroughWhatTheGrammarMatches) {
  const auto rules = MustGbnf("root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= [0-9]+ | root\n");
  EXPECT_TRUE(Matches(rules, "[1]"));
  EXPECT_TRUE(Matches(rules, "[1,[2,33],4]"));
  EXPECT_FALSE(Matches(rules, "[1,[2,33,4]"));
  EXPECT_FALSE(Matches(rules, "[]"));
  EXPECT_FALSE(Matches(rules, "[1]]"));
}

TEST(Constraint, RulesThatMatchNothingArePassed) {
  const auto rules =
      MustGbnf("root ::= ws \"a\" ws b ws root?\nb ::= (\"b\" ws)*\nws ::= | \" \" ws\n");
  EXPECT_TRUE(Matches(rules, "a"));
  EXPECT_TRUE(Matches(rules, "  a b b   a"));
  EXPECT_FALSE(Matches(rules, "  b"));
  const auto empty = MustGbnf("root ::= x*\nx ::= y*\ny ::= \"\" | \"q\"\n");
  EXPECT_TRUE(Matches(empty, ""));
  EXPECT_TRUE(Matches(empty, "qqqqqq"));
}

// Ambiguity without bound: every text of n letters has a number of readings that grows like a
// Catalan number.
TEST(Constraint, AmbiguityCostsNoMoreThanPolynomialTime) {
  const auto rules = MustGbnf("root ::= \"a\" root root | \"a\" root | \"a\"\n");
  EXPECT_TRUE(Matches(rules, std::string(100, 'a')));
  EXPECT_FALSE(Matches(rules, std::string(100, 'a') + "b"));
}

TEST(Constraint, ListsThatGoOnToTheRightTakeNoStack) {
  const auto rules = MustGbnf("root ::= \"a\" root | \"b\"\n");
  EXPECT_TRUE(Matches(rules, std::string(100000, 'a') + "b"));
}

// At the deepest level only what can still be closed is let in.
TEST(Constraint, TheStackIsBoundedAndNeverStuck) {
  AutomatonLimits limits;
  limits.max_depth = 10;
  const auto rules = MustGbnf("root ::= \"x\" | \"(\" ws root ws \")\"\nws ::= \" \"*\n", limits);
  const std::string deepest = std::string(10, '(') + "x" + std::string(10, ')');
  EXPECT_TRUE(Matches(rules, deepest));
  EXPECT_FALSE(Matches(rules, "(" + deepest + ")"));
  Constraint constraint(rules, BytesOnly());
  auto state = constraint.Start();
  ASSERT_TRUE(constraint.AcceptBytes(state, std::string(10, '(')));
  const auto mask = constraint.Mask(state);
  ASSERT_TRUE(mask);
  EXPECT_FALSE((*mask)->Allows(TokenId{'('}));
  EXPECT_TRUE((*mask)->Allows(TokenId{'x'}));
}

TEST(Constraint, BadGrammarsAreNamed) {
  const auto error = [](std::string_view text) {
    const auto source = ParseGbnf(text);
    if (!source) return source.error().message;
    AutomatonLimits limits;
    limits.refuse_useless_rules = true;
    const auto automaton = AutomatonOf(*source, limits);
    return automaton ? std::string("fine") : automaton.error().message;
  };
  EXPECT_EQ(error("root ::= x\nx ::= \"a\" | x \"b\"\n"),
            "rule 'x' (line 2) is left recursive: it can begin with itself by way of 'x'");
  EXPECT_EQ(error("root ::= ws y\nws ::= \" \"*\ny ::= ws root | \"z\"\n"),
            "rule 'root' (line 1) is left recursive: it can begin with itself by way of 'y'");
  EXPECT_EQ(error("root ::= nothing\n"), "rule 'nothing' (line 1) is used and nowhere defined");
  EXPECT_EQ(error("root ::= \"a\"\nb ::= \"b\"\n"), "rule 'b' (line 2) is not reached from 'root'");
  EXPECT_EQ(error("root ::= \"a\" | x\nx ::= \"b\" x\n"), "rule 'x' (line 2) can never end");
  EXPECT_EQ(error("x ::= \"a\"\n"), "the grammar has no rule 'root'");
  EXPECT_EQ(error("root ::= \"a\n"), "line 1: expected '\"', found the end of the line");
  EXPECT_EQ(error("root ::= (((\"a{1000}\"){1000}){1000}){1000}\n"),
            "the grammar is too large: more than 262144 states or 1048576 edges, reached in rule "
            "'root' (line 1)");
  EXPECT_EQ(error("root ::= " + std::string(10000, '(') + "\"a\"" + std::string(10000, ')')),
            "line 1: parentheses nest deeper than 200");
}

TEST(Constraint, ForcedBytesAreThoseWithoutAChoice) {
  const auto rules = MustGbnf("root ::= \"{\\\"name\\\": \" (\"1\" | \"2\") \"}\"\n");
  Constraint constraint(rules, BytesOnly());
  auto state = constraint.Start();
  EXPECT_EQ(constraint.ForcedBytes(state, 100), "{\"name\": ");
  EXPECT_EQ(constraint.ForcedBytes(state, 3), "{\"n");
  ASSERT_TRUE(constraint.AcceptBytes(state, "{\"name\": 1"));
  EXPECT_FALSE(constraint.MayEnd(state));
  EXPECT_EQ(constraint.ForcedBytes(state, 100), "}");
  ASSERT_TRUE(constraint.AcceptBytes(state, "}"));
  EXPECT_TRUE(constraint.MayEnd(state));
  EXPECT_TRUE(constraint.MustEnd(state));
}

TEST(Constraint, EndTokensComeWhereTheGrammarMayEnd) {
  const auto rules = MustGbnf("root ::= [0-9]{2,3}\n");
  auto vocabulary = std::make_shared<const Vocabulary>(
      std::vector<std::string>{"<end>", "1", "12", "123", "1234", "a", ""},
      std::vector<TokenId>{TokenId{0}});
  Constraint constraint(rules, vocabulary);
  auto state = constraint.Start();
  EXPECT_EQ(Allowed(constraint, state), (std::vector<int>{1, 2, 3}));
  const auto before = state;
  ASSERT_TRUE(constraint.Accept(state, TokenId{2}));
  EXPECT_EQ(Allowed(constraint, state), (std::vector<int>{0, 1}));
  EXPECT_FALSE(constraint.Accept(state, TokenId{2}));
  ASSERT_TRUE(constraint.Accept(state, TokenId{0}));
  EXPECT_TRUE(constraint.ended(state));
  EXPECT_FALSE(constraint.Accept(state, TokenId{1}));
  state = before;  // as a rolled back draft
  ASSERT_TRUE(constraint.Accept(state, TokenId{3}));
  EXPECT_TRUE(constraint.MustEnd(state));
  EXPECT_EQ(Allowed(constraint, state), (std::vector<int>{0}));
}

TEST(Constraint, ADeadEndOfTheVocabularyIsAnError) {
  const auto rules = MustGbnf("root ::= \"ab\"\n");
  auto vocabulary = std::make_shared<const Vocabulary>(std::vector<std::string>{"a", "c"},
                                                       std::vector<TokenId>{});
  Constraint constraint(rules, vocabulary);
  auto state = constraint.Start();
  ASSERT_TRUE(constraint.Accept(state, TokenId{0}));
  const auto mask = constraint.Mask(state);
  ASSERT_FALSE(mask);
  EXPECT_EQ(mask.error().message,
            "no token of the vocabulary begins what the grammar lets follow here");
}

// 2^20 sets of places: each new character meets new ones.
TEST(Constraint, WorkIsBounded) {
  const auto rules = MustRegex("(a|b)*a(a|b){4000}");
  ConstraintLimits limits;
  limits.max_work = 10000;
  Constraint constraint(rules, BytesOnly(), limits);
  auto state = constraint.Start();
  std::mt19937 random(1);
  bool refused = false;
  for (int i = 0; i < 4000 && !refused; ++i) {
    const auto mask = constraint.Mask(state);
    refused = !mask;
    if (refused) {
      EXPECT_EQ(mask.error().message,
                "the grammar is too ambiguous here: more than 10000 steps for one token");
    } else {
      constraint.Accept(state, TokenId{"ab"[random() % 2]});
    }
  }
  EXPECT_TRUE(refused);
}

// Masks against every token tried byte by byte, on random walks; small limits make the
// configurations begin anew now and then.
TEST(Constraint, MasksAreThoseOfBruteForce) {
  std::mt19937 random(7);
  const char* grammars[] = {
      "root ::= value\n"
      "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
      "object ::= \"{\" (string \":\" value (\",\" string \":\" value)*)? \"}\"\n"
      "array ::= \"[\" (value (\",\" value)*)? \"]\"\n"
      "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt])* \"\\\"\"\n"
      "number ::= \"-\"? [0-9]+ (\".\" [0-9]+)?\n",
      "root ::= [a-z]{3,40} \" \" [a-zA-Z0-9_]{0,20} (\"é\" | [α-ω]){1,9}\n",
      "root ::= (\"ab\" | \"a\" \"b\"* root?)+ [^x]*\n"};
  const auto vocabulary = RandomVocabulary(random, 1500);
  for (const char* text : grammars) {
    const auto rules = MustGbnf(text);
    ConstraintLimits limits;
    limits.max_configuration_bytes = 200'000;
    limits.max_mask_bytes = 2000;
    Constraint constraint(rules, vocabulary, limits);
    for (int walk = 0; walk < 20; ++walk) {
      auto state = constraint.Start();
      std::string text_so_far;
      for (int step = 0; step < 30; ++step) {
        const std::vector<int> allowed = Allowed(constraint, state);
        ASSERT_EQ(allowed, BruteForce(constraint, state)) << text << "\nbehind " << text_so_far;
        if (allowed.empty()) break;
        const TokenId token{allowed[random() % allowed.size()]};
        ASSERT_TRUE(constraint.Accept(state, token));
        if (constraint.ended(state)) break;
        text_so_far += vocabulary->bytes(token);
      }
    }
  }
}

}  // namespace
}  // namespace nibble::grammar
