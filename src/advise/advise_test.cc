#include <cmath>

#include "advise/bench.h"
#include "advise/limits.h"
#include "kernels/kernel_table.h"
#include "model/config/random_model.h"
#include "platform/thread_pool.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

constexpr const char* kTiny = R"({"model_type":"llama","hidden_size":256,"intermediate_size":512,
    "num_hidden_layers":8,"num_attention_heads":4,"num_key_value_heads":1,"vocab_size":300,
    "max_position_embeddings":256,"tie_word_embeddings":false})";

Result<ModelFile> Random(const char* config, const char* mix_name) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(config));
  NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(mix_name));
  return ModelFile::Random(document.root(), mix);
}

// llama.cpp's rule for Q4_K_M (methods report §9.1): more bits for values and down in the first and
// last eighth and every third layer between; the output in Q6_K.
TEST(FormatMix, Q4KMGivesMoreBitsWhereTheyMatter) {
  const auto file = Random(kTiny, "q4_k_m");
  ASSERT_TRUE(file) << file.error().message;
  const ModelTensors& tensors = file->tensors();
  EXPECT_EQ(*tensors.output.weight.tensor->format, Format::kQ6K);
  EXPECT_EQ(*tensors.embedding.tensor->format, Format::kQ4K);
  const std::vector<bool> more = {true, false, false, true, false, false, true, true};
  for (size_t i = 0; i < more.size(); ++i) {
    const Format expected = more[i] ? Format::kQ6K : Format::kQ4K;
    EXPECT_EQ(*tensors.layers[i][Linear::kValue].weight.tensor->format, expected) << i;
    EXPECT_EQ(*tensors.layers[i][Linear::kDown].weight.tensor->format, expected) << i;
    EXPECT_EQ(*tensors.layers[i][Linear::kGate].weight.tensor->format, Format::kQ4K) << i;
  }
}

TEST(FormatMix, FallsBackWhereBlocksDoNotDivideTheColumns) {
  const auto mix = FormatMix::FromName("Q4_K_M");
  ASSERT_TRUE(mix);
  EXPECT_EQ(mix->For({.role = TensorRole::kFfnUp, .cols = 576}), Format::kQ5_0);
  EXPECT_EQ(mix->For({.role = TensorRole::kOutput, .cols = 576}), Format::kQ8_0);
  EXPECT_EQ(mix->For({.role = TensorRole::kFfnUp, .cols = 40}), Format::kF16);
  EXPECT_FALSE(FormatMix::FromName("q9_z"));
}

TEST(ModelWork, CountsEveryMultiplyOnce) {
  const auto file = Random(kTiny, "q8_0");
  ASSERT_TRUE(file) << file.error().message;
  const ModelWork work = ComputeWork(*file, Act::kInt8);
  // q 256², k and v 64 · 256, o 256², gate, up and down 512 · 256; 8 layers.
  EXPECT_EQ(work.per_row.int8, 8.0 * (2 * 256 * 256 + 2 * 64 * 256 + 3 * 512 * 256));
  EXPECT_EQ(work.per_row.int4, 0);
  EXPECT_EQ(work.per_logit_row.int8, 300.0 * 256);
  EXPECT_EQ(work.attention_macs_per_position, 8.0 * 2 * 4 * 64);
  const ModelWork f32 = ComputeWork(*file, Act::kF32);
  EXPECT_EQ(f32.per_row.f32, work.per_row.int8);
}

TEST(ModelBench, CountsTokensStepsAndBytes) {
  const auto file = Random(kTiny, "q4_k_m");
  ASSERT_TRUE(file) << file.error().message;
  ThreadPool pool(2);
  const auto isa = ChooseIsa();
  ASSERT_TRUE(isa);
  const KernelTable& kernels = KernelsFor(*isa);
  LoadOptions options;
  options.max_rows = 64;
  const auto decoder = Decoder::Load(*file, options, kernels, pool);
  ASSERT_TRUE(decoder) << decoder.error().message;
  const ModelWork work = ComputeWork(*file, Act::kInt8);

  const BenchCase prompts{BenchTest::kPrompt, 100, 0, 3, 40};
  auto bench =
      ModelBench::Create(**decoder, kernels, work, {}, prompts.batch, prompts.TokensPerSequence());
  ASSERT_TRUE(bench) << bench.error().message;
  const BenchRow row = bench->Run(prompts, 2);
  EXPECT_EQ(row.tokens, 300);
  EXPECT_EQ(row.steps, 6);  // chunks of 64 and 36
  EXPECT_EQ(row.seconds.size(), 2U);
  EXPECT_GT(row.MedianSeconds(), 0);
  EXPECT_GE(row.bytes, 6.0 * static_cast<double>((*decoder)->WeightBytesPerStep()));

  const BenchCase answers{BenchTest::kGenerate, 0, 5, 4, 0};
  auto generating = ModelBench::Create(**decoder, kernels, work, {}, 4, 5);
  ASSERT_TRUE(generating);
  const BenchRow generated = generating->Run(answers, 1);
  EXPECT_EQ(generated.tokens, 20);
  EXPECT_EQ(generated.steps, 5);

  EXPECT_FALSE(ModelBench::Create(**decoder, kernels, work, {}, 1, 257));
}

TEST(Limits, AreMeasuredAndOrdered) {
  ThreadPool pool(1);
  const auto isa = ChooseIsa();
  ASSERT_TRUE(isa);
  const auto limits = MeasureLimits(pool, *isa, 0.2);
  ASSERT_TRUE(limits) << limits.error().message;
  for (const double rate : {limits->read_bandwidth, limits->int4_macs, limits->int8_macs,
                            limits->f32_macs, limits->barrier_s}) {
    EXPECT_TRUE(std::isfinite(rate) && rate > 0);
  }
  EXPECT_EQ(limits->isa, *isa);
  EXPECT_EQ(limits->cache_bandwidth.size(), 4U);
}

}  // namespace
}  // namespace nibble
