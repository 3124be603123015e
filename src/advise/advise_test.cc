#include <cmath>

#include "advise/bench.h"
#include "advise/fractions.h"
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
  // q 256², k and v 64 · 256; o 256², gate, up and down 512 · 256; 8 layers, of which the last one
  // computes the second kind for rows with logits only.
  constexpr double kFirst = 256 * 256 + 2 * 64 * 256;
  constexpr double kSecond = 256 * 256 + 3 * 512 * 256;
  EXPECT_EQ(work.per_row.int8, 8 * kFirst + 7 * kSecond);
  EXPECT_EQ(work.per_row.int4, 0);
  EXPECT_EQ(work.per_logit_row.int8, kSecond + 300.0 * 256);
  constexpr double kPerKey = 2 * 4 * 64;
  ASSERT_EQ(work.attention.size(), 1U);
  EXPECT_EQ(work.attention[0].macs_per_key, 7 * kPerKey);
  EXPECT_EQ(work.last_attention.macs_per_key, kPerKey);
  // Tokens 10, 11 and 12 see 11, 12 and 13 positions; in the last layer the last token only.
  EXPECT_EQ(work.AttentionMacs(10, 3, false, {}).f32, 36 * 7 * kPerKey);
  EXPECT_EQ(work.AttentionMacs(10, 3, true, {}).f32, 36 * 7 * kPerKey + 13 * kPerKey);
  EXPECT_EQ(work.act(), Act::kInt8);
  const ModelWork f32 = ComputeWork(*file, Act::kF32);
  EXPECT_EQ(f32.per_row.f32, work.per_row.int8);
  EXPECT_EQ(f32.act(), Act::kF32);
}

// The peak is that of what is computed: floats have no byte products, IQ4's levels are bytes.
TEST(ModelWork, TakesThePeakOfTheArithmetic) {
  const auto work = [](const char* format) {
    const auto file = Random(kTiny, format);
    EXPECT_TRUE(file) << file.error().message;
    return ComputeWork(*file, Act::kInt8);
  };
  const ModelWork f16 = work("f16");
  EXPECT_EQ(f16.act(), Act::kF32);
  EXPECT_GT(f16.per_row.f32, 0);
  EXPECT_EQ(f16.per_row.f32, work("q4_0").per_row.int4);
  EXPECT_EQ(f16.per_row.f32, work("iq4_nl").per_row.int8);
  EXPECT_EQ(f16.per_row.f32, work("mxfp4").per_row.int4);
  EXPECT_EQ(f16.per_row.f32, work("q5_0").per_row.int8);
}

// Positions before the unit of a query's own page are sealed.
TEST(ModelWork, SealedPagesMayBeInteger) {
  ModelWork work;
  work.attention = {{.window = 0, .macs_per_key = 2}, {.window = 40, .macs_per_key = 200}};
  work.last_attention = {.window = 0, .macs_per_key = 2000};
  const KvPeaks kv = {.k = Peak::kInt8, .v = Peak::kInt4, .unit_tokens = 32};
  // Token 63 sees 0…31 sealed and 32…63 open; with the window 24…31 and 32…63.
  const Macs early = work.AttentionMacs(63, 1, true, kv);
  EXPECT_EQ(early.int8, 32 + 100 * 8 + 1000 * 32);
  EXPECT_EQ(early.int4, early.int8);
  EXPECT_EQ(early.f32, 2 * (32 + 100 * 32 + 1000 * 32));
  // Token 64 sees 0…63 sealed and itself open; with the window 25…63.
  const Macs late = work.AttentionMacs(64, 1, false, kv);
  EXPECT_EQ(late.int8, 64 + 100 * 39);
  EXPECT_EQ(late.f32, 2 * (1 + 100));
  EXPECT_EQ(PeakOf(KvFormat::kInt4, Act::kInt8), Peak::kInt4);
  EXPECT_EQ(PeakOf(KvFormat::kKivi4, Act::kInt8), Peak::kInt8);
  EXPECT_EQ(PeakOf(KvFormat::kFp8, Act::kInt8), Peak::kF32);
  EXPECT_EQ(PeakOf(KvFormat::kInt8, Act::kF32), Peak::kF32);
}

TEST(Fractions, LeaveOutWhatTheMachineDidNotHold) {
  const FractionPair good = {90, 100, 100};
  const FractionPair better = {95, 98, 102};
  const FractionPair disturbed = {90, 100, 40};  // 129%
  const Fraction fraction = Summarise(std::vector<FractionPair>{good, disturbed, better, good});
  EXPECT_EQ(fraction.unsteady, 1);
  EXPECT_FALSE(fraction.all_counted);
  EXPECT_DOUBLE_EQ(fraction.best, 0.95);
  EXPECT_DOUBLE_EQ(fraction.median, 0.9);
  const Fraction all = Summarise(std::vector<FractionPair>{good, disturbed, disturbed, disturbed});
  EXPECT_TRUE(all.all_counted);
  EXPECT_EQ(all.unsteady, 3);
  EXPECT_NEAR(all.best, 90.0 / 70, 1e-12);
}

TEST(ModelWork, WindowsEndAttention) {
  ModelWork work;
  work.attention = {{.window = 0, .macs_per_key = 1}, {.window = 4, .macs_per_key = 100}};
  work.last_attention = {.window = 4, .macs_per_key = 1000};
  EXPECT_EQ(work.AttentionMacs(2, 3, false, {}).f32, 3 + 4 + 5 + 100 * (3 + 4 + 4));
  EXPECT_EQ(work.AttentionMacs(2, 3, true, {}).f32, 3 + 4 + 5 + 100 * (3 + 4 + 4) + 4000);
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
  auto bench = ModelBench::Create(
      **decoder, kernels, work, {.formats = {}, .batch = 3, .tokens = prompts.TokensPerSequence()});
  ASSERT_TRUE(bench) << bench.error().message;
  const BenchRow row = bench->Run(prompts, 2);
  EXPECT_EQ(row.work.tokens, 300);
  EXPECT_EQ(row.work.steps, 6);  // chunks of 64 and 36
  EXPECT_EQ(row.seconds.size(), 2U);
  EXPECT_GT(row.MedianSeconds(), 0);
  EXPECT_GE(row.work.bytes, 6.0 * static_cast<double>((*decoder)->WeightBytesPerStep()));

  // Pieces go on where the last one ended, and begin again after the end.
  double tokens = 0;
  for (int i = 0; i < 6; ++i) {
    const BenchWork piece = bench->RunPiece(0);
    EXPECT_EQ(piece.steps, 1);
    EXPECT_GT(piece.seconds, 0);
    tokens += static_cast<double>(piece.tokens);
  }
  EXPECT_EQ(tokens, 300);
  EXPECT_EQ(bench->RunPiece(0).tokens, 64);
  EXPECT_GE(bench->RunPiece(1e-3).seconds, 1e-3);

  const BenchCase answers{BenchTest::kGenerate, 0, 5, 4, 0};
  auto generating =
      ModelBench::Create(**decoder, kernels, work, {.formats = {}, .batch = 4, .tokens = 5});
  ASSERT_TRUE(generating);
  const BenchRow generated = generating->Run(answers, 1);
  EXPECT_EQ(generated.work.tokens, 20);
  EXPECT_EQ(generated.work.steps, 5);

  EXPECT_FALSE(ModelBench::Create(**decoder, kernels, work, {.formats = {}, .tokens = 257}));
}

TEST(Limits, AreMeasuredAndOrdered) {
  ThreadPool pool(2);
  const auto isa = ChooseIsa();
  ASSERT_TRUE(isa);
  auto loops = LimitLoops::Create(pool, *isa);
  if (!loops && loops.error().kind == ErrorKind::kNoRoom) GTEST_SKIP() << loops.error().message;
  ASSERT_TRUE(loops) << loops.error().message;
  const auto limits = MeasureLimits(*loops, 0);
  ASSERT_TRUE(limits) << limits.error().message;
  const auto ordered = [](double median, double best) {
    EXPECT_TRUE(std::isfinite(best) && median > 0 && median <= best) << median << " " << best;
  };
  ordered(limits->median.read, limits->best.read);
  ordered(limits->median.macs.int4, limits->best.macs.int4);
  ordered(limits->median.macs.int8, limits->best.macs.int8);
  ordered(limits->median.macs.f32, limits->best.macs.f32);
  EXPECT_GT(limits->barrier_s, 0);
  EXPECT_GT(limits->region_s, 0);
  EXPECT_EQ(limits->isa, *isa);
  EXPECT_EQ(limits->cache_bandwidth.size(), 4U);
  EXPECT_GE(limits->read_bytes, 4 * ReadTopology().last_level_cache);

  const auto file = Random(kTiny, "q8_0");
  ASSERT_TRUE(file);
  const KernelTable& kernels = KernelsFor(*isa);
  const auto decoder = Decoder::Load(*file, {}, kernels, pool);
  ASSERT_TRUE(decoder);
  auto bench = ModelBench::Create(**decoder, kernels, ComputeWork(*file, Act::kInt8),
                                  {.formats = {}, .tokens = 64});
  ASSERT_TRUE(bench);
  bench->Run({BenchTest::kBoth, 32, 32, 1, 0}, 1);
  const LimitFractions fractions = MeasureFractions(*bench, *loops, 3);
  EXPECT_GE(fractions.alternations, 3);
  EXPECT_LE(fractions.alternations, 9);
  for (const Fraction& fraction : {fractions.bandwidth, fractions.compute}) {
    EXPECT_GT(fraction.median, 0);
    EXPECT_GE(fraction.best, fraction.median);
  }
}

}  // namespace
}  // namespace nibble
