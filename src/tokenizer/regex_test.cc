#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include "tokenizer/pre_types.h"
#include "tokenizer/pretokenizer.h"

namespace nibble {
namespace {

std::vector<std::string> Find(std::string_view pattern, std::string_view text,
                              RegexDialect dialect = RegexDialect::kOniguruma) {
  std::vector<std::string> out;
  auto regex = Regex::Compile(pattern, dialect);
  EXPECT_TRUE(regex) << regex.error().message;
  if (!regex) return out;
  RegexMatcher matcher(*regex, text.size());
  std::vector<MatchRange> matches;
  const auto status = matcher.FindAll(text, matches);
  EXPECT_TRUE(status) << status.error().message;
  for (const MatchRange& m : matches) out.emplace_back(text.substr(m.begin, m.end - m.begin));
  return out;
}

using Texts = std::vector<std::string>;

TEST(Regex, WhitespaceIsTheUnicodeProperty) {
  EXPECT_EQ(Find("\\s", "a\u00a0b\u2028c\u180ed\u200be\x85"), (Texts{"\u00a0", "\u2028"}));
  EXPECT_EQ(Find("[^\\S\\n]", " \n\t"), (Texts{" ", "\t"}));
}

TEST(Regex, SetsNestAndIntersect) {
  EXPECT_EQ(Find("[\\p{L}&&[^\\p{Han}]]+", "ab漢cd"), (Texts{"ab", "cd"}));
  EXPECT_EQ(Find("[a[bc]]+", "abcd"), (Texts{"abc"}));
  EXPECT_EQ(Find("[^a&&b]", "ab"), (Texts{"a", "b"}));
  EXPECT_EQ(Find("[]a]+", "a]b"), (Texts{"a]"}));
}

TEST(Regex, BoundsWithPlusDependOnTheDialect) {
  EXPECT_EQ(Find("\\d{1,3}+", "1234567"), (Texts{"1234567"}));
  EXPECT_EQ(Find("\\d{1,3}+", "1234567", RegexDialect::kRust), (Texts{"123", "456", "7"}));
}

TEST(Regex, LineAnchorsDependOnTheDialect) {
  EXPECT_EQ(Find("a$", "a\na\n"), (Texts{"a", "a"}));
  EXPECT_EQ(Find("a$", "a\na", RegexDialect::kRust), (Texts{"a"}));
  EXPECT_EQ(Find("a$", "a\n", RegexDialect::kRust), Texts{});
}

TEST(Regex, EmptyMatchesCutButDoNotRepeat) {
  EXPECT_EQ(Find("(?=b)", "abab").size(), 2U);
  EXPECT_EQ(Find("a*", "aab"), (Texts{"aa", ""}));
}

TEST(Regex, IllFormedTextMatchesNothing) {
  EXPECT_EQ(Find(".",
                 "a\xFF"
                 "b\xE2\x82"),
            (Texts{"a", "b"}));
}

TEST(Regex, ErrorsShowTheExpression) {
  for (const char* bad : {"(", "[a", "\\", "\\p{", "a{2,1}", "[[:x"}) {
    EXPECT_FALSE(Regex::Compile(bad, RegexDialect::kOniguruma)) << bad;
  }
  const std::string nested(100, '[');
  EXPECT_FALSE(Regex::Compile(nested, RegexDialect::kOniguruma));
}

TEST(PreTypes, AllCompileAndTakeLongRuns) {
  for (const PreType& type : PreTypes()) {
    PreTokenizers steps;
    for (const std::string_view expression : type.expressions) {
      if (expression.empty()) continue;
      auto step = MakeIsolatedSplit(expression);
      ASSERT_TRUE(step) << type.name << ": " << step.error().message;
      steps.push_back(*std::move(step));
    }
    for (const char* unit : {"a", "A", " ", "7", "\n", "!", "漢", "e\u0301", " a", "\t "}) {
      Pieces pieces;
      while (pieces.text.size() < 20000) pieces.text += unit;
      pieces.pieces.push_back({0, static_cast<uint32_t>(pieces.text.size()), true});
      for (const auto& step : steps) {
        const auto status = step->Apply(pieces);
        ASSERT_TRUE(status) << type.name << ": " << status.error().message;
      }
      size_t total = 0;
      for (const auto& piece : pieces.pieces) total += piece.end - piece.begin;
      EXPECT_EQ(total, pieces.text.size()) << type.name;
    }
  }
}

TEST(PreTypes, UnknownNamesAreNotFound) {
  EXPECT_EQ(FindPreType("llama-9"), nullptr);
  EXPECT_NE(FindPreType("smollm"), nullptr);
}

}  // namespace
}  // namespace nibble
