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
      MakeKvGroups(config, {.k = KvFormat::kF32, .v = KvFormat::kF16});
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
  const std::vector<KvGroup> groups = MakeKvGroups(config, {});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].window, 96);
  EXPECT_EQ(groups[0].layers.size(), 2U);
}

}  // namespace
}  // namespace nibble
