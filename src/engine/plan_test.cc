#include "engine/plan.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "kv/storage/kv_storage.h"
#include "model/config.h"

namespace nibble {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

// 4 global layers of 2 × 64 (f16: 512 bytes a token each) and 2 layers with a window of 100.
ModelConfig Config(int context) {
  ModelConfig config;
  config.vocabulary = 1000;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.context_length = context;
  config.layers.resize(6);
  config.layers[1].window = config.layers[4].window = 100;
  return config;
}

Result<PlannedPools> Plan(const ModelConfig& config, const EngineOptions& options,
                          size_t available = 8 * kGiB) {
  return PlanPools({.config = &config,
                    .model = {.weight_bytes = kGiB},
                    .options = options,
                    .threads = 2,
                    .available = available});
}

// Bytes of a page of the global layers.
constexpr size_t kGlobalPage = size_t{32} * 4 * 512;

TEST(PlanPools, PagesGetHalfOfWhatIsLeft) {
  for (const int asked : {0, 1500}) {
    const ModelConfig config = Config(2000);
    const auto pools = Plan(config, {.max_context = asked, .max_rows = 64, .max_running = 3});
    ASSERT_TRUE(pools);
    const EnginePlan& plan = pools->plan;
    EXPECT_EQ(plan.max_context, asked == 0 ? 2000 : 1500);
    EXPECT_TRUE(plan.kv_is_half);
    const size_t left = 8 * kGiB - (plan.Total() - plan.kv_bytes);
    EXPECT_LE(plan.kv_bytes, left / 2);
    EXPECT_GT(plan.kv_bytes + kGlobalPage, left / 2);  // one more page would be too much
    ASSERT_EQ(pools->groups.size(), 2U);
    // A window of 100 and 64 rows touch at most 7 pages of a sequence; as many for the cache.
    EXPECT_EQ(pools->pools[1].pages, 2 * 21);
    EXPECT_EQ(plan.kv_bytes,
              static_cast<size_t>(pools->pools[0].pages) * kGlobalPage + 42U * 32 * 2 * 512);
    EXPECT_EQ(plan.kv_tokens, pools->pools[0].pages * 32);
    EXPECT_EQ(plan.kv_bytes_per_token, 6U * 512);
    EXPECT_TRUE(plan.Fits());
    EXPECT_EQ(plan.fitting_context, plan.max_context);
    EXPECT_NE(plan.Describe().find("weights 1.07 GB"), std::string::npos) << plan.Describe();
    EXPECT_NE(plan.Describe().find("half of what is left"), std::string::npos) << plan.Describe();
  }
}

TEST(PlanPools, WithoutAPrefixCacheWindowsKeepNothing) {
  const auto pools = Plan(Config(2000), {.max_rows = 64, .max_running = 3, .prefix_cache = false});
  ASSERT_TRUE(pools);
  EXPECT_EQ(pools->pools[1].pages, 21);
}

TEST(PlanPools, SeveralContextsMayBeAskedFor) {
  const ModelConfig config = Config(1 << 20);
  const auto pools = Plan(config, {.max_context = 1 << 20, .min_contexts = 3}, kGiB + kGiB / 4);
  ASSERT_TRUE(pools);
  EXPECT_EQ(pools->plan.kv_tokens, 3 << 20);
  EXPECT_FALSE(pools->plan.Fits());
}

TEST(PlanPools, OpenPagesHoldAUnitOfEachSequenceAndAStep) {
  const ModelConfig config = Config(2000);
  const auto pools =
      Plan(config,
           {.kv = {.k = KvFormat::kKivi2, .v = KvFormat::kInt8}, .max_rows = 64, .max_running = 3});
  ASSERT_TRUE(pools);
  EXPECT_EQ(pools->pools[0].unit_pages, 4);
  EXPECT_EQ(pools->pools[0].open_pages, 3 * 4 + 2 + 1);
  EXPECT_EQ(pools->pools[0].pages % 4, 0);
  EXPECT_EQ(pools->OpenPages()[0], 15);
  EXPECT_EQ(pools->SealedPages()[0], pools->pools[0].pages);
  EXPECT_EQ(pools->plan.kv_bytes,
            KvStorage::Bytes(pools->groups, pools->OpenPages(), pools->SealedPages()));
}

ModelConfig Llama(int layers, int kv_heads, int head_dim) {
  ModelConfig config;
  config.vocabulary = 1000;
  config.heads = kv_heads * 3;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.context_length = 1 << 17;
  config.layers.resize(static_cast<size_t>(layers));
  return config;
}

std::vector<KvGroup> Groups(const ModelConfig& config, const KvFormats& formats) {
  return MakeKvGroups(config, formats).value();
}

// The formats with the bytes of one head's page of keys and values, by hand.
struct PageBytes {
  KvFormat format;
  int head_dim;
  size_t keys_and_values;
};

TEST(KvBytes, PerTokenAreTheFormatTables) {
  using enum KvFormat;
  constexpr PageBytes kTable[] = {
      {kF32, 64, size_t{2} * 32 * 64 * 4},
      {kF16, 64, size_t{2} * 32 * 64 * 2},
      {kFp8, 64, 2 * (32 * 64 + 4)},
      {kInt8, 64, 2 * (32 * 64 + 32 * 2) + 4},
      {kInt4, 64, 2 * (32 * 64 / 2 + 32 * 2) + 4},
      // 4 bytes per channel (keys), and per token and 32 channels (values).
      {kKivi4, 64, (32 * 64 / 2 + 64 * 4 + 4) + (32 * 64 / 2 + 32 * 2 * 4 + 4)},
      {kKivi2, 64, (32 * 64 / 4 + 64 * 4 + 4) + (32 * 64 / 4 + 32 * 2 * 4 + 4)},
      {kKivi2, 128, (32 * 128 / 4 + 128 * 4 + 4) + (32 * 128 / 4 + 32 * 4 * 4 + 4)},
  };
  for (const PageBytes& entry : kTable) {
    const ModelConfig config = Llama(16, 4, entry.head_dim);
    const auto pools = Plan(config, {.kv = {.k = entry.format, .v = entry.format}});
    ASSERT_TRUE(pools);
    // 64 heads in all, so that no page is rounded up.
    EXPECT_EQ(pools->groups[0].SealedPageBytes(), 64 * entry.keys_and_values);
    EXPECT_EQ(pools->plan.kv_bytes_per_token, 64 * entry.keys_and_values / 32)
        << TraitsOf(entry.format).name << " " << entry.head_dim;
    EXPECT_EQ(pools->plan.kv_groups.size(), 1U);
    const std::string bytes = fmt::format(": {} bytes", 64 * entry.keys_and_values);
    EXPECT_NE(pools->plan.kv_groups[0].find(bytes), std::string::npos) << pools->plan.kv_groups[0];
  }
}

TEST(KvBytes, TwoBitsHoldNearlyFiveTimesTheTokensOfF16) {
  for (const int head_dim : {64, 128}) {
    const ModelConfig config = Llama(30, 3, head_dim);
    const auto held = [&](KvFormat format, int positions) {
      return static_cast<double>(
          KvBytesHeld(Groups(config, {.k = format, .v = format}), positions));
    };
    // Sequences of 8k tokens whose next token is on its way, wherever in a unit that is: at worst
    // 127 positions are open still.
    for (int positions = 8192 - 128; positions < 8192; ++positions) {
      EXPECT_GE(held(KvFormat::kF16, positions) / held(KvFormat::kKivi2, positions), 4.9)
          << head_dim << " " << positions;
    }
  }
}

// The formula against the bookkeeping, position by position.
TEST(KvBytes, HeldAreThePagesOfASequence) {
  ModelConfig config = Config(1000);
  config.layers[1].window = 140;
  const KvFormats all[] = {{},
                           {.k = KvFormat::kInt8, .v = KvFormat::kF32},
                           {.k = KvFormat::kKivi2, .v = KvFormat::kInt4, .skip_layers = {0, 4}}};
  for (const KvFormats& formats : all) {
    const std::vector<KvGroup> groups = Groups(config, formats);
    PageBook book(PoolsForTokens(groups, 1000, {.max_rows = 64, .max_running = 3}));
    SequencePages pages(book);
    std::vector<TokenId> tokens(1000, TokenId{1});
    for (int position = 0; position < 700; ++position) {
      auto reservation = book.Reserve(pages, 1);
      ASSERT_TRUE(reservation);
      reservation->Commit(1, TokenList{tokens, {}});
      size_t bytes = 0;
      for (size_t g = 0; g < groups.size(); ++g) {
        const FormPages held = pages.held(static_cast<int>(g));
        bytes += groups[g].SealedPageBytes() * static_cast<size_t>(held.pages) +
                 groups[g].PageBytes() * static_cast<size_t>(held.open);
      }
      ASSERT_EQ(KvBytesHeld(groups, position + 1), bytes) << formats.Name() << " " << position;
    }
  }
}

TEST(PlanPools, OpenAndSealedPagesAreCountedApart) {
  const ModelConfig config = Llama(6, 2, 64);
  const auto pools =
      Plan(config, {.kv = {.k = KvFormat::kInt8, .v = KvFormat::kKivi4, .skip_layers = {-1}},
                    .max_context = 2048,
                    .max_rows = 64,
                    .max_running = 3});
  ASSERT_TRUE(pools);
  ASSERT_EQ(pools->groups.size(), 2U);
  const EnginePlan& plan = pools->plan;
  // Five layers of 2 heads: f16 until a unit of four pages is full, for 3 sequences and 64 rows.
  EXPECT_EQ(plan.kv_open_bytes, (3 * 4 + 2 + 1) * size_t{5} * 2 * 2 * 32 * 64 * 2);
  const size_t sealed = RoundUp<size_t>(5 * pools->groups[0].sealed.PieceBytes(), 64);
  const size_t skipped = size_t{2} * 2 * 32 * 64 * 2;
  EXPECT_EQ(plan.kv_bytes, plan.kv_open_bytes +
                               sealed * static_cast<size_t>(pools->pools[0].pages) +
                               skipped * static_cast<size_t>(pools->pools[1].pages));
  EXPECT_EQ(plan.kv_bytes_per_token, sealed / 32 + skipped / 32);
  EXPECT_NE(plan.Describe().find("of open pages"), std::string::npos) << plan.Describe();
  ASSERT_EQ(plan.kv_groups.size(), 2U);
  EXPECT_NE(plan.kv_groups[1].find("1 layers"), std::string::npos) << plan.kv_groups[1];
}

TEST(PlanPools, AContextNobodyAskedForTakesHalfOfWhatIsLeft) {
  const ModelConfig config = Config(1 << 20);
  const size_t available = kGiB + kGiB / 4;
  const auto pools = Plan(config, {.max_rows = 64, .max_running = 3}, available);
  ASSERT_TRUE(pools);
  const EnginePlan& plan = pools->plan;
  EXPECT_TRUE(plan.Fits());
  EXPECT_EQ(plan.max_context, plan.kv_tokens);
  const size_t left = available - (plan.Total() - plan.kv_bytes);
  EXPECT_LE(plan.kv_bytes, left / 2);
  EXPECT_GT(plan.kv_bytes + kGlobalPage, left / 2);
}

TEST(PlanPools, AContextThatWasAskedForIsKeptAndMayNotFit) {
  const ModelConfig config = Config(1 << 20);
  const auto pools = Plan(config, {.max_context = 1 << 20}, kGiB + kGiB / 4);
  ASSERT_TRUE(pools);
  EXPECT_EQ(pools->plan.max_context, 1 << 20);
  EXPECT_FALSE(pools->plan.Fits());
  EXPECT_GT(pools->plan.fitting_context, 10000);
  EngineOptions smaller{.max_context = pools->plan.fitting_context};
  EXPECT_TRUE(Plan(config, smaller, kGiB + kGiB / 4)->plan.Fits());
  smaller.max_context += 32;
  EXPECT_FALSE(Plan(config, smaller, kGiB + kGiB / 4)->plan.Fits());
}

TEST(PlanPools, WhatIsNeededWhileLoadingMustFitToo) {
  const ModelConfig config = Config(2000);
  const EngineOptions options{.max_context = 2000,
                              .kv_memory = 63 * kGlobalPage + size_t{42} * 32 * 2 * 512,
                              .max_rows = 64,
                              .max_running = 3};
  const auto plan_with = [&](size_t scratch, size_t available) {
    return PlanPools({.config = &config,
                      .model = {.weight_bytes = kGiB, .load_scratch_bytes = scratch},
                      .options = options,
                      .threads = 2,
                      .available = available})
        ->plan;
  };
  const size_t total = plan_with(0, 8 * kGiB).Total();
  EXPECT_TRUE(plan_with(0, total).Fits());
  const size_t scratch = size_t{64} << 20;
  const EnginePlan plan = plan_with(scratch, total + scratch - 1);
  EXPECT_EQ(plan.Total(), total);
  EXPECT_FALSE(plan.Fits());
  EXPECT_LT(plan.fitting_context, 2000);
  EXPECT_NE(plan.Describe().find("while loading"), std::string::npos) << plan.Describe();
  EXPECT_TRUE(plan_with(scratch, total + scratch).Fits());
}

TEST(PlanPools, KvMemoryDecidesThePages) {
  const ModelConfig config = Config(1000);
  const size_t memory = size_t{40} << 20;
  const auto pools = Plan(config, {.kv_memory = memory, .max_rows = 64, .max_running = 3});
  ASSERT_TRUE(pools);
  EXPECT_LE(pools->plan.kv_bytes, memory);
  EXPECT_GT(pools->plan.kv_bytes + size_t{32} * 4 * 512, memory);
  EXPECT_GT(pools->plan.kv_tokens, 1000);  // several requests
  EXPECT_EQ(pools->plan.max_context, 1000);
  const auto nothing = Plan(config, {.kv_memory = 1000});
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().kind, ErrorKind::kBadInput);
}

TEST(PlanPools, RefusesMoreContextThanTheModelHas) {
  const ModelConfig config = Config(1000);
  const auto refused = Plan(config, {.max_context = 1001});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("1001"), std::string::npos);
  EXPECT_NE(refused.error().message.find("1000"), std::string::npos);
}

TEST(PlanPools, NoMemoryIsNoContext) {
  const ModelConfig config = Config(1000);
  const auto pools = Plan(config, {}, kGiB / 2);
  ASSERT_TRUE(pools);
  EXPECT_FALSE(pools->plan.Fits());
  EXPECT_EQ(pools->plan.fitting_context, 0);
}

TEST(CheckOptions, NamesWhatIsOutOfRange) {
  EXPECT_TRUE(CheckOptions({}));
  EXPECT_NE(CheckOptions({.threads = -1}).error().message.find("threads"), std::string::npos);
  EXPECT_FALSE(CheckOptions({.max_context = -1}));
  EXPECT_FALSE(CheckOptions({.max_rows = 0}));
  EXPECT_FALSE(CheckOptions({.max_running = 0}));
  EXPECT_FALSE(CheckOptions({.max_queue = 0}));
}

}  // namespace
}  // namespace nibble
