#include "advise/advise_journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace nibble {
namespace {

class Journal : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("advise_journal_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "journal.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

JournalQuality Quality() {
  JournalQuality quality{.place = {.weights = "q4_k_m", .kv = "int4", .skip_layers = {0, 5}},
                         .context = 512,
                         .window = 3,
                         .sums = {}};
  quality.sums.windows = 1;
  quality.sums.tokens = 255;
  quality.sums.divergence = 1.0 / 3;
  quality.sums.divergence_squared = 0.1;
  quality.sums.loss = 700.25;
  quality.sums.loss_squared = 2000.125;
  quality.sums.base_loss = 690.0625;
  quality.sums.same_top = 200;
  quality.sums.depths[7] = {.tokens = 31, .divergence = 0.7, .divergence_squared = 0.01};
  return quality;
}

JournalSpeed Speed() {
  return {.place = {.weights = "own", .kv = "f16"},
          .batch = 8,
          .context = 2048,
          .speed = {.tpot_s = 0.0123, .tpot_error = 1e-4, .ttft_s = 1.5, .ttft_error = 0.1}};
}

TEST_F(Journal, WhatWasWrittenIsReadBitForBit) {
  {
    auto journal = AdviseJournal::Open(path_, "key");
    ASSERT_TRUE(journal) << journal.error().message;
    ASSERT_TRUE(journal->Add(Quality()));
    ASSERT_TRUE(journal->Add(Speed()));
  }
  const auto journal = AdviseJournal::Open(path_, "key");
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->complaint(), "");
  ASSERT_EQ(journal->qualities().size(), 1U);
  ASSERT_EQ(journal->speeds().size(), 1U);
  const JournalQuality& quality = journal->qualities()[0];
  EXPECT_EQ(quality.place, Quality().place);
  EXPECT_EQ(quality.window, 3);
  EXPECT_EQ(quality.sums.divergence, 1.0 / 3);
  EXPECT_EQ(quality.sums.loss_squared, 2000.125);
  EXPECT_EQ(quality.sums.same_top, 200);
  EXPECT_EQ(quality.sums.depths[7].divergence, 0.7);
  EXPECT_EQ(journal->speeds()[0].speed.tpot_s, 0.0123);
  EXPECT_EQ(journal->speeds()[0].batch, 8);
}

TEST_F(Journal, AKilledRunLeavesAtMostOneLineCutOff) {
  {
    auto journal = AdviseJournal::Open(path_, "key");
    ASSERT_TRUE(journal->Add(Quality()));
    ASSERT_TRUE(journal->Add(Speed()));
  }
  const std::string whole = Text();
  const size_t second = whole.find('\n', whole.find('\n') + 1) + 1;
  for (const size_t cut : {second + 1, whole.size() - 1}) {
    std::ofstream(path_, std::ios::binary) << whole.substr(0, cut);
    auto journal = AdviseJournal::Open(path_, "key");
    ASSERT_TRUE(journal);
    EXPECT_EQ(journal->qualities().size(), 1U);
    EXPECT_TRUE(journal->speeds().empty());
    EXPECT_EQ(Text(), whole.substr(0, second));
    ASSERT_TRUE(journal->Add(Speed()));
    EXPECT_EQ(Text(), whole);
  }
}

TEST_F(Journal, OtherKeysBeginAgain) {
  {
    auto journal = AdviseJournal::Open(path_, "key");
    ASSERT_TRUE(journal->Add(Speed()));
  }
  const auto journal = AdviseJournal::Open(path_, "another");
  ASSERT_TRUE(journal);
  EXPECT_TRUE(journal->speeds().empty());
  EXPECT_NE(journal->complaint().find("another model"), std::string::npos);
}

TEST_F(Journal, BrokenLinesAreNamed) {
  auto journal = AdviseJournal::Open(path_, "key");
  ASSERT_TRUE(journal->Add(Quality()));
  const std::string whole = Text();
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
    const auto lines = AdviseJournal::Parse(text, "key");
    EXPECT_FALSE(lines) << to;
    return lines ? std::string() : lines.error().message;
  };
  EXPECT_NE(message("\"nibble_advise\":1", "\"nibble_advise\":7").find("line 1"),
            std::string::npos);
  EXPECT_NE(message("\"tokens\":255", "\"tokens\":-1").find("'tokens'"), std::string::npos);
  EXPECT_NE(message("\"same_top\":200", "\"same_top\":256").find("'same_top'"), std::string::npos);
  EXPECT_NE(message("\"quality\"", "\"beauty\"").find("beauty"), std::string::npos);
  EXPECT_NE(message("\"loss\":700.25", "\"loss\":\"x\"").find("line 2"), std::string::npos);
  EXPECT_NE(message("[0,5]", "[0,-5]").find("layer -5"), std::string::npos);
  EXPECT_NE(message("\"depths\":[", "\"depths\":[{},").find("'depths'"), std::string::npos);
  EXPECT_FALSE(AdviseJournal::Parse("", "key"));
  EXPECT_FALSE(AdviseJournal::Parse("{}\n", "key"));
  EXPECT_FALSE(AdviseJournal::Parse(std::string(1 << 17, 'x') + "\n", "key"));
}

}  // namespace
}  // namespace nibble
