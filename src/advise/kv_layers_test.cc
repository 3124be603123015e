#include "advise/kv_layers.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "advise/base_rows.h"
#include "advise/format_errors.h"
#include "advise/window_compare.h"
#include "advise/window_run.h"
#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "model/config/random_model.h"
#include "model/decoder.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

KvLayers Costs(const std::vector<double>& both, double all) {
  KvLayers costs;
  costs.all.mean = all;
  for (const double cost : both) {
    costs.layers.push_back({.layer = static_cast<int>(costs.layers.size()),
                            .keys = {.mean = cost / 4},
                            .values = {.mean = 3 * cost / 4}});
  }
  return costs;
}

TEST(ChooseSkipLayers, ThoseThatCostMostFirst) {
  const KvLayers costs = Costs({0.01, 0.05, 0.002, 0.03, 0.008}, 0.1);  // the sum
  EXPECT_TRUE(ChooseSkipLayers(costs, 0.1).layers.empty());
  EXPECT_EQ(ChooseSkipLayers(costs, 0.05).layers, std::vector<int>{1});
  EXPECT_EQ(ChooseSkipLayers(costs, 0.021).layers, (std::vector<int>{1, 3}));
  EXPECT_NEAR(ChooseSkipLayers(costs, 0.021).expected, 0.02, 1e-12);
  EXPECT_EQ(ChooseSkipLayers(costs, 0.003).layers, (std::vector<int>{0, 1, 3, 4}));
  EXPECT_EQ(ChooseSkipLayers(costs, 1e-9).layers.size(), 5U);
}

TEST(ChooseSkipLayers, ScaledToWhatAllCostTogether) {
  const KvLayers costs = Costs({0.01, 0.05, 0.002, 0.03, 0.008}, 0.2);
  EXPECT_EQ(ChooseSkipLayers(costs, 0.1).layers, std::vector<int>{1});
  EXPECT_NEAR(ChooseSkipLayers(costs, 0.1).expected, 0.1, 1e-12);
}

TEST(ChooseSkipLayers, NothingCosts) {
  EXPECT_TRUE(ChooseSkipLayers(Costs({0, 0}, 0), 1e-9).layers.empty());
}

TEST(KvSquaredError, OrdersTheFormats) {
  double before = -1;
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kInt8, KvFormat::kFp8, KvFormat::kKivi4,
                                KvFormat::kInt4, KvFormat::kKivi2}) {
    const double error = KvSquaredError(format, 64);
    EXPECT_GT(error, before) << TraitsOf(format).name;
    before = error;
  }
  // Uniform rounding to ±127 of a largest value of about 2.5 σ: step² / 12.
  EXPECT_NEAR(KvSquaredError(KvFormat::kInt8, 64), 2.5 * 2.5 / 127 / 127 / 12, 1.5e-5);
}

class RandomModel : public testing::Test {
 protected:
  void SetUp() override {
    constexpr const char* kConfig =
        R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":3,
            "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":128,
            "max_position_embeddings":512,"rms_norm_eps":1e-5,"rope_theta":10000,
            "tie_word_embeddings":true})";
    const auto document = JsonDocument::Parse(kConfig);
    file_.emplace(ModelFile::Random(document->root(), *FormatMix::FromName("f32")).value());
    decoder_ = Decoder::Load(*file_, {.act = Act::kInt8}, kernels_, pool_).value();
    for (int i = 0; i < 256; ++i) ids_.emplace_back((i * 37 + i / 7) % 128);
  }

  KvLayersInput Input(KvFormat format) {
    return {.decoder = *decoder_,
            .kernels = kernels_,
            .ids = ids_,
            .formats = {.k = format, .v = format},
            .folder = std::filesystem::temp_directory_path()};
  }

  const KernelTable& kernels_ = KernelsFor(ChooseIsa().value());
  ThreadPool pool_{2};
  std::optional<ModelFile> file_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<TokenId> ids_;
};

TEST_F(RandomModel, AnF16CacheCostsNothing) {
  const auto costs = MeasureKvLayers(Input(KvFormat::kF16));
  ASSERT_TRUE(costs) << costs.error().message;
  EXPECT_EQ(costs->all.mean, 0);
  ASSERT_EQ(costs->layers.size(), 3U);
  for (const KvLayerCost& cost : costs->layers) EXPECT_EQ(cost.both(), 0);
}

// Random weights attend evenly, so that a layer costs next to nothing; but both sides of each are
// another model. What real ones cost, and what is skipped for it: tests/cli/test_advise.py.
TEST_F(RandomModel, EverySideOfEveryLayerIsSeen) {
  const auto costs = MeasureKvLayers(Input(KvFormat::kKivi2));
  ASSERT_TRUE(costs) << costs.error().message;
  EXPECT_NE(costs->all.mean, 0);
  for (const KvLayerCost& cost : costs->layers) {
    EXPECT_NE(cost.keys.mean, 0);
    EXPECT_NE(cost.values.mean, 0);
  }
}

TEST_F(RandomModel, TooShortAndStopped) {
  KvLayersInput input = Input(KvFormat::kInt8);
  input.ids.resize(2);
  EXPECT_FALSE(MeasureKvLayers(input));
  KvLayersInput other = Input(KvFormat::kInt8);
  other.keep_going = [] { return false; };
  const auto stopped = MeasureKvLayers(other);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
}

// Chunks do not change a bit, and the rows count from the first that is scored.
TEST_F(RandomModel, WindowsInChunksAndWhole) {
  const auto rows_of = [&](int max_rows) {
    const auto decoder =
        Decoder::Load(*file_, {.act = Act::kInt8, .max_rows = max_rows}, kernels_, pool_).value();
    BaseRows rows = BaseRows::Create(std::filesystem::temp_directory_path(), 127, 128).value();
    KeepingSink sink(rows);
    EXPECT_TRUE(RunWindow(*decoder, {.ids = ids_, .score_from = 128}, sink));
    EXPECT_TRUE(sink.status());
    std::vector<float> all(size_t{127} * 128);
    for (int r = 0; r < 127; ++r) {
      EXPECT_TRUE(rows.Read(r, std::span(all).subspan(static_cast<size_t>(r) * 128, 128)));
    }
    return all;
  };
  const std::vector<float> whole = rows_of(512);
  EXPECT_EQ(rows_of(50), whole);
  EXPECT_EQ(rows_of(128), whole);
}

}  // namespace
}  // namespace nibble
