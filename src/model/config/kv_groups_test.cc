#include "model/kv_groups.h"

#include <gtest/gtest.h>

#include "model/config.h"

namespace nibble {
namespace {

TEST(KvGroups, GlobalLayersFirstThenEachWindow) {
  ModelConfig config;
  config.kv_heads = 2;
  config.head_dim = 24;
  for (const int window : {512, 0, 64, 512, 0}) config.layers.push_back({.window = window});
  const std::vector<KvGroup> groups =
      MakeKvGroups(config, {.k = KvFormat::kF32, .v = KvFormat::kF16}).value();
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_EQ(groups[0].layers, (std::vector<int>{1, 4}));
  EXPECT_EQ(groups[1].window, 64);
  EXPECT_EQ(groups[1].layers, (std::vector<int>{2}));
  EXPECT_EQ(groups[2].window, 512);
  EXPECT_EQ(groups[2].layers, (std::vector<int>{0, 3}));
  EXPECT_EQ(groups[0].layout.head_dim, 24);
  // Two heads of 32 positions × 24 channels, K in 4 and V in 2 bytes, of two layers.
  EXPECT_EQ(groups[0].PageBytes(), size_t{2} * 32 * 24 * (4 + 2) * 2);
}

TEST(KvGroups, WindowsOnly) {
  ModelConfig config;
  config.kv_heads = 1;
  config.head_dim = 8;
  config.layers = {{.window = 96}, {.window = 96}};
  const std::vector<KvGroup> groups = MakeKvGroups(config, {}).value();
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].window, 96);
  EXPECT_EQ(groups[0].layers.size(), 2U);
}

ModelConfig SixLayers(int head_dim) {
  ModelConfig config;
  config.kv_heads = 1;
  config.head_dim = head_dim;
  for (const int window : {0, 64, 0, 64, 0, 0}) config.layers.push_back({.window = window});
  return config;
}

TEST(KvGroups, SkippedLayersStayF16InGroupsOfTheirOwn) {
  const auto groups = MakeKvGroups(
      SixLayers(64), {.k = KvFormat::kInt4, .v = KvFormat::kKivi2, .skip_layers = {1, -1, 0, -6}});
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 4U);
  const auto expect = [&](size_t g, int window, std::vector<int> layers, bool skipped) {
    const KvGroup& group = (*groups)[g];
    EXPECT_EQ(group.window, window) << g;
    EXPECT_EQ(group.layers, layers) << g;
    EXPECT_EQ(group.sealed.k, skipped ? KvFormat::kF16 : KvFormat::kInt4) << g;
    EXPECT_EQ(group.sealed.v, skipped ? KvFormat::kF16 : KvFormat::kKivi2) << g;
    EXPECT_EQ(group.layout.k, KvFormat::kF16) << g;
    EXPECT_EQ(group.two_forms(), !skipped) << g;
    EXPECT_EQ(group.unit_pages(), skipped ? 1 : 4) << g;
    EXPECT_EQ(group.rotate, !skipped) << g;
  };
  expect(0, 0, {0, 5}, true);
  expect(1, 0, {2, 4}, false);
  expect(2, 64, {1}, true);
  expect(3, 64, {3}, false);
}

TEST(KvGroups, RotationIsForInt4KeysUnlessSaidOtherwise) {
  const auto rotates = [](const KvFormats& formats) {
    return MakeKvGroups(SixLayers(64), formats)->front().rotate;
  };
  EXPECT_TRUE(rotates({.k = KvFormat::kInt4, .v = KvFormat::kInt8}));
  EXPECT_FALSE(rotates({.k = KvFormat::kInt8, .v = KvFormat::kInt4}));
  EXPECT_FALSE(rotates({.k = KvFormat::kInt4, .v = KvFormat::kInt4, .rotate = false}));
  EXPECT_TRUE(rotates({.rotate = true}));
}

TEST(KvGroups, RefusesByName) {
  const auto message = [](int head_dim, const KvFormats& formats) {
    const auto groups = MakeKvGroups(SixLayers(head_dim), formats);
    return groups ? "" : groups.error().message;
  };
  for (const KvFormatTraits& traits : AllKvFormats()) {
    EXPECT_EQ(message(20, {.k = traits.format, .v = traits.format}), "") << traits.name;
    for (const KvFormats& formats : {KvFormats{.k = traits.format}, {.v = traits.format}}) {
      const std::string refused = message(22, formats);
      EXPECT_EQ(refused.empty(), !traits.sealed_only) << traits.name;
      if (traits.sealed_only) {
        EXPECT_NE(refused.find(traits.name), std::string::npos) << refused;
        EXPECT_NE(refused.find("22"), std::string::npos) << refused;
      }
    }
  }
  EXPECT_NE(message(64, {.skip_layers = {6}}).find("from -6 to 5, found 6"), std::string::npos);
  EXPECT_NE(message(64, {.skip_layers = {-7}}).find("found -7"), std::string::npos);
}

TEST(KvFormats, HaveNames) {
  EXPECT_EQ((KvFormats{.k = KvFormat::kFp8, .v = KvFormat::kFp8}.Name()), "fp8");
  EXPECT_EQ((KvFormats{.k = KvFormat::kInt8, .v = KvFormat::kKivi2}.Name()), "int8/kivi2");
}

}  // namespace
}  // namespace nibble
