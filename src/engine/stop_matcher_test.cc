#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace nibble {
namespace {

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"END", "\n\n"});
  EXPECT_EQ(matcher.Add("a E"), "a ");
  EXPECT_EQ(matcher.Add("N"), "");
  EXPECT_EQ(matcher.Add("X\n"), "ENX");
  EXPECT_EQ(matcher.Add("b\n"), "\nb");
  EXPECT_EQ(matcher.Add("\nrest"), "");
  ASSERT_TRUE(matcher.matched());
  EXPECT_EQ(*matcher.matched(), "\n\n");
  EXPECT_EQ(matcher.Add("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, FlushGivesWhatWasHeld) {
  StopMatcher matcher({"<stop>"});
  EXPECT_EQ(matcher.Add("x<sto"), "x");
  EXPECT_EQ(matcher.Flush(), "<sto");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, TheOneThatBeginsFirstWins) {
  StopMatcher matcher({"cd", "abcde"});
  EXPECT_EQ(matcher.Add("xabcd"), "xab");
  EXPECT_EQ(*matcher.matched(), "cd");
  StopMatcher together({"cd", "abcde"});
  EXPECT_EQ(together.Add("xabcde"), "x");
  EXPECT_EQ(*together.matched(), "abcde");
}

TEST(StopMatcher, EqualsASearchInTheWholeTextUpToTheFirstCompleteMatch) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    auto word = [&](int longest) {
      std::string text(1 + random() % longest, ' ');
      for (char& c : text) c = static_cast<char>('a' + random() % 2);
      return text;
    };
    const std::vector<std::string> stops = {word(5), word(5)};
    StopMatcher matcher(stops);
    std::string whole, shown;
    while (!matcher.matched() && whole.size() < 40) {
      const std::string piece = word(4);
      whole += piece;
      shown += matcher.Add(piece);
    }
    if (!matcher.matched()) shown += matcher.Flush();
    const size_t expected = std::min(whole.find(stops[0]), whole.find(stops[1]));
    EXPECT_EQ(matcher.matched().has_value(), expected != std::string::npos);
    EXPECT_EQ(shown, whole.substr(0, expected));
  }
}

}  // namespace
}  // namespace nibble
