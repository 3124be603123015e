#include "server/reasoning.h"

#include <gtest/gtest.h>

namespace nibble::server {
namespace {

constexpr std::string_view kTemplate = "{% if think %}<think>\n{% endif %}";

ReasoningSplitter::Parts Split(std::string_view answer, size_t piece, bool begun = false) {
  ReasoningSplitter splitter({"<think>", "</think>", begun});
  ReasoningSplitter::Parts all;
  const auto add = [&](const ReasoningSplitter::Parts& parts) {
    all.reasoning += parts.reasoning;
    all.text += parts.text;
  };
  for (size_t i = 0; i < answer.size(); i += piece) add(splitter.Add(answer.substr(i, piece)));
  add(splitter.End());
  return all;
}

TEST(Reasoning, MarksAreThoseOfTheTemplate) {
  EXPECT_FALSE(FindReasoning("{{ messages }}", "user: <think>"));
  const auto marks = FindReasoning(kTemplate, "assistant: <think>\n");
  ASSERT_TRUE(marks);
  EXPECT_TRUE(marks->begun);
  EXPECT_FALSE(FindReasoning(kTemplate, "assistant:")->begun);
  EXPECT_FALSE(FindReasoning(kTemplate, "assistant: <think>\n\n</think>\n\n")->begun);
  EXPECT_EQ(FindReasoning("x [/THINK]", "")->open, "[THINK]");
}

TEST(Reasoning, IsSplitOffHoweverThePiecesFall) {
  struct Case {
    std::string_view answer, reasoning, text;
    bool begun = false;
  };
  for (const Case& c :
       {Case{"<think>\nTwo and <two>.\n</think>\n\nFour.\n", "Two and <two>.", "Four.\n"},
        Case{" \n<think></think>Four", "", "Four"},
        Case{"<think> a  b </think> <think>c</think>", "a  b", "<think>c</think>"},
        Case{" <thin air", "", " <thin air"},
        Case{"<think>without end </thin", "without end </thin", ""},
        Case{"a </think> b", "", "a </think> b"}, Case{"\na </think> b", "a", "b", true},
        Case{"<", "", "<"}, Case{"", "", ""}}) {
    for (size_t piece = 1; piece <= c.answer.size() + 1; ++piece) {
      const auto parts = Split(c.answer, piece, c.begun);
      EXPECT_EQ(parts.reasoning, c.reasoning) << c.answer << " by " << piece;
      EXPECT_EQ(parts.text, c.text) << c.answer << " by " << piece;
    }
  }
}

TEST(Reasoning, NothingIsHeldBackThatIsCertain) {
  ReasoningSplitter splitter({"<think>", "</think>", true});
  EXPECT_EQ(splitter.Add("one ").reasoning, "one");
  EXPECT_EQ(splitter.Add("two").reasoning, " two");
  EXPECT_EQ(splitter.Add("</").reasoning, "");
  EXPECT_EQ(splitter.Add("b").reasoning, "</b");
  EXPECT_EQ(splitter.Add("</think>").text, "");
  EXPECT_EQ(splitter.Add("x").text, "x");
}

}  // namespace
}  // namespace nibble::server
