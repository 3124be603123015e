#include "quantize/imatrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "model/config/format_mix.h"
#include "model/config/model_tensors.h"
#include "platform/thread_pool.h"
#include "quantize/encode_tensor.h"
#include "quantize/imatrix_collector.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

Imatrix Example() {
  Imatrix imatrix;
  EXPECT_TRUE(imatrix.Add({.name = "b", .sums = {8, 0, 2}, .count = 4}).has_value());
  EXPECT_TRUE(imatrix.Add({.name = "a", .sums = {1.5f}, .count = 2}).has_value());
  imatrix.SetOrigin({.texts = {"text.txt"}, .chunks = 2, .chunk_tokens = 512});
  return imatrix;
}

std::vector<float> Means(const Imatrix& imatrix, std::string_view name) {
  const Imatrix::Entry* entry = imatrix.Find(name);
  if (entry == nullptr) return {};
  std::vector<float> means = entry->sums;
  for (float& value : means) value /= entry->count;
  return means;
}

void ExpectError(const Result<Imatrix>& result, std::string_view word) {
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
}

std::string Bytes(std::initializer_list<int32_t> values) {
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

Result<Imatrix> ParseText(const std::string& bytes) {
  return Imatrix::Parse(std::as_bytes(std::span(bytes)));
}

TEST(Imatrix, IsReadAsItWasWritten) {
  const testing::TempDir folder;
  const Imatrix imatrix = Example();
  ASSERT_TRUE(imatrix.Write(folder.path() / "i.gguf").has_value());
  const auto read = Imatrix::Read(folder.path() / "i.gguf");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  ASSERT_EQ(read->entries().size(), 2u);
  EXPECT_EQ(read->entries()[0].name, "a");
  EXPECT_EQ(read->Find("b")->sums, imatrix.Find("b")->sums);
  EXPECT_EQ(read->Find("b")->count, 4.0f);
  EXPECT_EQ(read->origin().texts, std::vector<std::string>{"text.txt"});
  EXPECT_EQ(read->origin().chunks, 2u);
  EXPECT_EQ(read->origin().chunk_tokens, 512u);
}

TEST(Imatrix, TheOlderFormKeepsTheMeans) {
  const testing::TempDir folder;
  ASSERT_TRUE(Example().Write(folder.path() / "i.dat").has_value());
  const auto read = Imatrix::Read(folder.path() / "i.dat");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(Means(*read, "b"), (std::vector<float>{2, 0, 0.5f}));
  EXPECT_EQ(Means(*read, "a"), (std::vector<float>{0.75f}));
  EXPECT_EQ(read->origin().texts, std::vector<std::string>{"text.txt"});
}

// The bytes that llama.cpp's imatrix writes, by hand.
TEST(Imatrix, ReadsTheOlderFormByTheByte) {
  const std::string file = Bytes({1, 3}) + "w.q" + Bytes({2, 2}) + Bytes({0x40800000, 0x3f800000});
  for (const std::string& tail : {std::string(), Bytes({7}), Bytes({7, 2}) + "tx"}) {
    const auto read = ParseText(file + tail);
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(Means(*read, "w.q"), (std::vector<float>{2, 0.5f}));
    EXPECT_EQ(read->origin().chunks, tail.empty() ? 0u : 7u);
  }
}

TEST(Imatrix, SaysWhatIsWrongWithAFile) {
  ExpectError(ParseText(""), "the number of matrices");
  ExpectError(ParseText(Bytes({0})), "expected at least 1, found 0");
  ExpectError(ParseText(Bytes({-1})), "found -1");
  ExpectError(ParseText(Bytes({1, 1 << 30})), "matrix 0 of 1");
  const std::string name = Bytes({1, 1}) + "w";
  ExpectError(ParseText(name + Bytes({0, 1, 0})), "a count of calls");
  ExpectError(ParseText(name + Bytes({1, 1 << 30, 0})), "the values");
  ExpectError(ParseText(name + Bytes({1, 1, 0x7fc00000})), "column 0");
  ExpectError(ParseText(name + Bytes({1, 1, static_cast<int32_t>(0xbf800000)})), "found -1");
  ExpectError(ParseText(Bytes({2, 1}) + "w" + Bytes({1, 1, 0, 1}) + "w" + Bytes({1, 1, 0})),
              "'w' is there twice");
  ExpectError(ParseText(name + Bytes({1, 1, 0, 1, 0, 0})), "4 bytes are left");
  ExpectError(Imatrix::Read("/nonexistent/i.dat"), "/nonexistent/i.dat");
  ExpectError(Imatrix::Read(testing::SourcePath("fuzz/corpus/gguf/v3")), "'model'");
}

TEST(Imatrix, ReadsTheSeedsOfTheFuzzTarget) {
  for (const char* name : {"dat", "dat_short", "gguf"}) {
    const auto read =
        Imatrix::Read(testing::SourcePath(std::string("fuzz/corpus/imatrix/") + name));
    EXPECT_TRUE(read.has_value()) << name << ": " << read.error().message;
  }
}

TEST(Imatrix, DeadColumnsCountAsTheLeastOfTheOthers) {
  const Imatrix imatrix = Example();
  EXPECT_EQ(imatrix.ImportanceOf("b", 3).value(), (std::vector<float>{2, 0.5f, 0.5f}));
  EXPECT_TRUE(imatrix.ImportanceOf("c", 3).value().empty());
  const auto wrong = imatrix.ImportanceOf("b", 4);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("4 columns in the model, found 3"), std::string::npos);
  Imatrix zeros;
  ASSERT_TRUE(zeros.Add({.name = "z", .sums = {0, 0}, .count = 1}).has_value());
  EXPECT_TRUE(zeros.ImportanceOf("z", 2).value().empty());
}

TEST(Imatrix, RefusesWhatCannotBe) {
  Imatrix imatrix;
  EXPECT_FALSE(imatrix.Add({.name = "", .sums = {1}, .count = 1}).has_value());
  EXPECT_FALSE(imatrix.Add({.name = "a", .sums = {}, .count = 1}).has_value());
  EXPECT_FALSE(imatrix.Add({.name = "a", .sums = {1}, .count = 0}).has_value());
  EXPECT_FALSE(
      imatrix.Add({.name = "a", .sums = {std::numeric_limits<float>::infinity()}, .count = 1})
          .has_value());
  EXPECT_TRUE(imatrix.entries().empty());
}

TEST(ImatrixCollector, SumsSquaresOverCallsByTheMatricesNames) {
  SourceTensor query;
  query.name = "q";
  SourceTensor down;
  down.name = "d";
  ModelTensors tensors;
  tensors.layers.resize(1);
  tensors.layers[0].linears[static_cast<size_t>(Linear::kQuery)].weight.tensor = &query;
  tensors.layers[0].linears[static_cast<size_t>(Linear::kDown)].weight.tensor = &down;
  ImatrixCollector collector;
  const std::vector<float> x = {1, 2, 0, /*not a column*/ 100, 3, -4, 0, 100};
  collector.Input(0, "qkv", {.data = x.data(), .rows = 2, .cols = 3, .stride = 4});
  collector.Input(0, "qkv", {.data = x.data(), .rows = 1, .cols = 3, .stride = 4});
  collector.Input(0, "down", {.data = x.data(), .rows = 1, .cols = 1, .stride = 4});
  collector.Input(-1, "head", {.data = x.data(), .rows = 1, .cols = 3, .stride = 4});
  const auto imatrix = collector.Finish(tensors);
  ASSERT_TRUE(imatrix.has_value()) << imatrix.error().message;
  ASSERT_EQ(imatrix->entries().size(), 2u);
  EXPECT_EQ(imatrix->Find("q")->sums, (std::vector<float>{11, 24, 0}));
  EXPECT_EQ(imatrix->Find("q")->count, 3.0f);
  EXPECT_EQ(imatrix->Find("d")->count, 1.0f);
}

// Σ importance · error² of a tensor's encoding.
double WeightedError(const std::vector<float>& values, std::span<const float> importance,
                     std::span<const float> used) {
  const size_t columns = importance.size();
  SourceTensor tensor;
  tensor.name = "w";
  tensor.format = Format::kF32;
  tensor.rank = 2;
  tensor.shape = {values.size() / columns, columns};
  tensor.bytes = std::as_bytes(std::span(values));
  ThreadPool pool(2);
  std::vector<std::byte> codes;
  const auto loss = EncodeTensor(
      TensorView{.name = "w", .tensor = &tensor}, {.format = Format::kQ4K, .importance = used},
      pool,
      [&](std::span<const std::byte> bytes) {
        codes.insert(codes.end(), bytes.begin(), bytes.end());
        return Status();
      },
      [](uint64_t) {});
  EXPECT_TRUE(loss.has_value());
  std::vector<float> decoded(values.size());
  TraitsOf(Format::kQ4K).decode(codes.data(), decoded.data(), decoded.size());
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = double{decoded[i]} - double{values[i]};
    sum += importance[i % columns] * error * error;
  }
  return sum;
}

TEST(EncodeTensor, MakesTheErrorsThatMatterSmaller) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(size_t{64} * 512);
  for (float& value : values) value = normal(generator);
  std::vector<float> importance(512);
  for (float& value : importance) value = std::exp(2 * normal(generator));
  const double without = WeightedError(values, importance, {});
  EXPECT_LT(WeightedError(values, importance, importance), 0.85 * without);
}

TEST(FormatMix, AnImportanceChangesAFewChoices) {
  const auto down = [](std::string_view name, int layer, bool importance) {
    auto mix = FormatMix::FromName(name);
    EXPECT_TRUE(mix.has_value());
    if (importance) mix->UseImportance();
    return mix->For({.role = TensorRole::kFfnDown, .layer = layer, .layers = 16, .cols = 256});
  };
  EXPECT_EQ(down("iq4_xs", 1, false), Format::kQ5K);
  EXPECT_EQ(down("iq4_xs", 1, true), Format::kIq4Xs);
  EXPECT_EQ(down("q4_0", 1, false), Format::kQ4_0);
  EXPECT_EQ(down("q4_0", 1, true), Format::kQ4_1);
  EXPECT_EQ(down("q4_0", 2, true), Format::kQ4_0);
  EXPECT_EQ(down("q5_0", 0, true), Format::kQ5_1);
  EXPECT_EQ(down("q8_0", 0, true), Format::kQ8_0);
  EXPECT_EQ(down("q4_k_s", 1, true), Format::kQ5K);
  EXPECT_EQ(down("q2_k_s", 1, true), Format::kQ4K);
  EXPECT_EQ(down("q2_k_s", 2, true), Format::kQ2K);
  EXPECT_TRUE(FormatMix::FromName("q2_k_s")->NeedsImportance());
  EXPECT_FALSE(FormatMix::FromName("q2_k")->NeedsImportance());
}

}  // namespace
}  // namespace nibble
