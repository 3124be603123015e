#include "format/block_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace nibble {
namespace {

// Any bytes at all: what is split decodes to what the format's own decoder gives, and joins to the
// same bytes.
TEST(BlockParts, SplitsAndJoinsAnyBlock) {
  std::mt19937 random(1);
  int formats = 0;
  for (const FormatTraits& traits : AllFormats()) {
    const BlockShape* shape = BlockShapeOf(traits.format);
    if (shape == nullptr) continue;
    ++formats;
    ASSERT_EQ(shape->elements, traits.block_elements);
    std::vector<std::byte> bytes(static_cast<size_t>(traits.block_bytes));
    std::vector<float> decoded(static_cast<size_t>(shape->elements));
    for (int trial = 0; trial < 200; ++trial) {
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      traits.decode(bytes.data(), decoded.data(), decoded.size());
      const BlockParts parts = SplitBlock(traits.format, bytes.data());
      for (size_t e = 0; e < decoded.size(); ++e) {
        const size_t g = e / static_cast<size_t>(shape->group);
        ASSERT_LE(parts.scales[g], shape->largest_scale);
        ASSERT_GE(parts.scales[g], shape->lowest_scale);
        ASSERT_LE(parts.mins[g], shape->largest_min);
        ASSERT_LE(parts.codes[e], shape->largest_code);
        const int level =
            shape->table.empty() ? parts.codes[e] - shape->zero : shape->table[parts.codes[e]];
        const float scale = parts.d * static_cast<float>(parts.scales[g]);
        float value = scale * static_cast<float>(level);
        if (shape->IsAffine()) value -= parts.min * static_cast<float>(parts.mins[g]);
        if (std::isnan(decoded[e])) continue;
        ASSERT_EQ(value, decoded[e]) << traits.name << " element " << e;
      }
      std::vector<std::byte> joined(bytes.size());
      JoinBlock(traits.format, parts, joined.data());
      if (std::isnan(parts.d) || std::isnan(parts.min)) continue;  // a NaN's bits may change
      ASSERT_EQ(joined, bytes) << traits.name;
    }
  }
  EXPECT_EQ(formats, 12);
}

}  // namespace
}  // namespace nibble
