#include "eval/logits_base.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "eval/divergence.h"
#include "eval/fixture_test.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

using testing::Logprobs;
using testing::OpenExact;

template <class T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// llama-perplexity's log_softmax for the file, from exact log-probabilities.
void AppendRow(std::string& out, const std::vector<double>& logprobs) {
  const auto highest = static_cast<float>(std::ranges::max(logprobs));
  const float lowest = std::max(static_cast<float>(std::ranges::min(logprobs)), highest - 16);
  const float step = (highest - lowest) / 65535;
  Append(out, step);
  Append(out, lowest);
  for (const double x : logprobs) {
    const auto value = static_cast<float>(x);
    Append(out, static_cast<uint16_t>(value > lowest ? std::lrintf((value - lowest) / step) : 0));
  }
  if (logprobs.size() % 2 != 0) Append(out, uint16_t{0});
}

class LogitsBaseTest : public ::testing::Test {
 protected:
  static constexpr int kContext = 65;
  static constexpr int kWindows = 3;

  void SetUp() override {
    base_ = OpenExact("models/shakespeare");
    ids_ = base_->tokenizer()
               .Encode(testing::ReadFile(testing::SourcePath("examples/shakespeare/input.txt"))
                           .substr(0, kContext * kWindows))
               .value();
    bytes_ = "_logits_";
    for (const int value : {kContext, 65, kWindows}) Append(bytes_, value);
    for (const TokenId id : ids_) Append(bytes_, id.value());
    for (int window = 0; window < kWindows; ++window) {
      rows_.push_back(Logprobs(*base_, Window(window)));
      for (size_t at = kContext / 2; at + 1 < kContext; ++at) AppendRow(bytes_, rows_.back()[at]);
    }
  }

  std::span<const TokenId> Window(int window) const {
    return std::span(ids_).subspan(static_cast<size_t>(window) * kContext, kContext);
  }
  std::span<const std::byte> Bytes() const { return std::as_bytes(std::span(bytes_)); }
  std::filesystem::path Write() {
    const auto path = folder_.path() / "base.kld";
    std::ofstream(path, std::ios::binary) << bytes_;
    return path;
  }
  void ExpectRefused(std::initializer_list<const char*> words) {
    const auto base = LogitsBase::Parse(Bytes());
    ASSERT_FALSE(base);
    for (const char* word : words) {
      EXPECT_NE(base.error().message.find(word), std::string::npos) << base.error().message;
    }
  }
  void Put(size_t at, int32_t value) { std::memcpy(bytes_.data() + at, &value, sizeof value); }

  testing::TempDir folder_;
  std::unique_ptr<Engine> base_;
  std::vector<TokenId> ids_;
  std::string bytes_;
  std::vector<std::vector<std::vector<double>>> rows_;  // [windows][context][vocabulary]
};

TEST_F(LogitsBaseTest, RowsAreTheLogprobsToSixteenBits) {
  const auto path = Write();
  EXPECT_TRUE(LogitsBase::Recognise(path));
  EXPECT_FALSE(LogitsBase::Recognise(testing::SourcePath("models/shakespeare")));
  EXPECT_FALSE(LogitsBase::Recognise(testing::SourcePath("README.md")));
  const auto base = LogitsBase::Open(path);
  ASSERT_TRUE(base) << base.error().message;
  EXPECT_EQ(base->Ids(), ids_);
  std::vector<float> row(65);
  int cut = 0;
  for (int window = 0; window < kWindows; ++window) {
    for (int at = kContext / 2; at + 1 < kContext; ++at) {
      ASSERT_TRUE(base->Row(window, Position{at}, row));
      const auto& want = rows_[static_cast<size_t>(window)][static_cast<size_t>(at)];
      for (size_t i = 0; i < row.size(); ++i) {
        if (std::isinf(row[i])) {
          EXPECT_LT(want[i], -15.99);
          ++cut;
        } else {
          EXPECT_NEAR(row[i], want[i], 16.0 / 65535);
          EXPECT_EQ(base->Logprob(window, Position{at}, TokenId{static_cast<int32_t>(i)}), row[i]);
        }
      }
    }
  }
  EXPECT_GT(cut, 0);
}

TEST_F(LogitsBaseTest, DivergenceIsThatOfTheFormula) {
  const auto base = LogitsBase::Parse(Bytes());
  ASSERT_TRUE(base) << base.error().message;
  const auto candidate = OpenExact("models/shakespeare", KvFormat::kInt4);
  DivergenceOptions options;
  const auto samples = MeasureDivergence(*candidate, *base, options);
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_EQ(samples->chunks, kWindows);
  ASSERT_EQ(samples->size(), kWindows * (kContext - 1 - kContext / 2));
  std::vector<float> row(65);
  size_t sample = 0;
  for (int window = 0; window < kWindows; ++window) {
    const auto ids = Window(window);
    const auto got = Logprobs(*candidate, ids);
    for (int at = kContext / 2; at + 1 < kContext; ++at, ++sample) {
      ASSERT_TRUE(base->Row(window, Position{at}, row));
      const auto& q = got[static_cast<size_t>(at)];
      double divergence = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        if (row[i] > -16) divergence += std::exp(double{row[i]}) * (double{row[i]} - q[i]);
      }
      const auto next = static_cast<size_t>(at) + 1;
      EXPECT_NEAR(samples->divergence[sample], divergence, 1e-5);
      EXPECT_NEAR(samples->base_loss[sample], -base->Logprob(window, Position{at}, ids[next]),
                  1e-6);
      EXPECT_NEAR(samples->candidate_loss[sample], -q[static_cast<size_t>(ids[next].value())],
                  1e-5);
      EXPECT_EQ(samples->position[sample], at);
    }
  }
  // Beside the same comparison with the engine itself: all that differs is the rounding.
  options.windows.context = kContext;
  const auto direct = MeasureDivergence(*candidate, *base_, ids_, options);
  ASSERT_TRUE(direct);
  EXPECT_NEAR(Summarise(*samples).divergence.mean, Summarise(*direct).divergence.mean, 1e-4);
  EXPECT_GT(Summarise(*direct).divergence.mean, 1e-3);
  options.windows.chunks = 1;
  EXPECT_EQ(MeasureDivergence(*candidate, *base, options)->chunks, 1);
}

TEST_F(LogitsBaseTest, OneWindowIsEnough) {
  Put(16, 1);
  // The ids of one window, then its rows.
  const size_t ids = sizeof(int32_t) * kContext;
  bytes_.erase(20 + ids, (kWindows - 1) * ids);
  const auto base = LogitsBase::Parse(Bytes());
  ASSERT_TRUE(base) << base.error().message;
  const auto samples = MeasureDivergence(*base_, *base, {});
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_EQ(samples->chunks, 1);
  EXPECT_LT(Summarise(*samples).divergence.mean, 1e-4);
  EXPECT_EQ(samples->same_top, samples->size());
}

TEST_F(LogitsBaseTest, FilesThatLieAreRefused) {
  const std::string good = bytes_;
  bytes_.resize(bytes_.size() - 1);
  ExpectRefused({"3 windows of 65", "cut off"});
  bytes_ = good;
  Put(8, 3);
  ExpectRefused({"context", "found 3"});
  Put(8, 1 << 24);
  Put(12, 1 << 24);
  Put(16, 0x7fffffff);
  ExpectRefused({"2147483647 windows", "cut off"});
  bytes_ = good;
  Put(12, -1);
  ExpectRefused({"vocabulary", "found -1"});
  bytes_ = good;
  Put(16, 0);
  ExpectRefused({"windows", "found 0"});
  bytes_ = good;
  Put(20 + 4 * 70, 65);
  ExpectRefused({"token 70", "0 to 64", "found 65"});
  bytes_ = "_logits";
  ExpectRefused({"_logits_", "20 bytes"});
  bytes_ = good;
  bytes_[0] = '?';
  ExpectRefused({"_logits_"});
}

TEST_F(LogitsBaseTest, NumbersThatAreNoLogprobsNameTheirPlace) {
  // The second window's first row: its step.
  const size_t row = 8 + 2 * 66;
  const size_t at = 20 + sizeof(int32_t) * ids_.size() + 32 * row;
  for (const float step : {std::nanf(""), -1.0F, 1.0F}) {
    std::memcpy(bytes_.data() + at, &step, sizeof step);
    const auto base = LogitsBase::Parse(Bytes());
    ASSERT_TRUE(base);
    const auto samples = MeasureDivergence(*base_, *base, {});
    ASSERT_FALSE(samples);
    EXPECT_NE(samples.error().message.find("window 1, position 32"), std::string::npos)
        << samples.error().message;
  }
}

TEST_F(LogitsBaseTest, AnotherVocabularyIsRefused) {
  Put(12, 64);
  bytes_.resize(bytes_.size() + 2);
  for (size_t i = 0; i < ids_.size(); ++i) Put(20 + 4 * i, 0);
  const auto base = LogitsBase::Parse(Bytes());
  ASSERT_TRUE(base);
  const auto samples = MeasureDivergence(*base_, *base, {});
  ASSERT_FALSE(samples);
  EXPECT_NE(samples.error().message.find("65 tokens"), std::string::npos);
}

}  // namespace
}  // namespace nibble
