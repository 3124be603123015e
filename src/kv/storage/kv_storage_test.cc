#include "kv/storage/kv_storage.h"

#include <gtest/gtest.h>

#include <vector>

namespace nibble {
namespace {

std::vector<KvGroup> TwoGroups() {
  const KvLayout f16{.kv_heads = 2, .head_dim = 8};
  const KvLayout f32{.k = KvFormat::kF32, .v = KvFormat::kF32, .kv_heads = 1, .head_dim = 8};
  return {KvGroup{.layers = {0, 2, 4}, .layout = f16},
          KvGroup{.layers = {1}, .window = 40, .layout = f32}};
}

TEST(KvStorage, PagesDoNotOverlapAndStartZeroed) {
  const int pages[] = {3, 2};
  auto storage = KvStorage::Create(TwoGroups(), pages);
  ASSERT_TRUE(storage) << storage.error().message;
  // f16: 3 layers × 2 heads × (8 × 32 × 2 bytes for K and as much for V).
  EXPECT_EQ(storage->groups()[0].PageBytes(), 3U * 2 * 2 * 8 * 32 * 2);
  EXPECT_EQ(KvStorage::Bytes(storage->groups(), pages), 3U * 6144 + 2U * 2048);
  for (int g = 0; g < 2; ++g) {
    const std::vector<PageId> ids = {PageId{0}, PageId{pages[g] - 1}};
    const KvTable table = storage->Table(g, ids);
    EXPECT_EQ(table.page_bytes, storage->groups()[g].PageBytes());
    std::byte* last = table.arena + table.page_bytes * (static_cast<size_t>(pages[g]) - 1);
    for (size_t i = 0; i < table.page_bytes; ++i) {
      ASSERT_EQ(last[i], std::byte{0});
      last[i] = std::byte{1};
    }
    EXPECT_EQ(table.arena[0], std::byte{0});
  }
}

TEST(KvStorage, BytesReadStopGrowingAtTheWindow) {
  const std::vector<KvGroup> groups = TwoGroups();
  const double global = 6144.0 / 32;
  const double windowed = 2048.0 / 32;
  EXPECT_EQ(KvBytesPerToken(groups), static_cast<size_t>(global + windowed));
  EXPECT_EQ(KvBytesRead(groups, 0), global + windowed);
  EXPECT_EQ(KvBytesRead(groups, 39), 40 * (global + windowed));
  EXPECT_EQ(KvBytesRead(groups, 99), 100 * global + 40 * windowed);
}

}  // namespace
}  // namespace nibble
