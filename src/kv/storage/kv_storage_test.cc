#include "kv/storage/kv_storage.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace nibble {
namespace {

std::vector<KvGroup> TwoGroups() {
  const KvLayout f16{.kv_heads = 2, .head_dim = 8};
  const KvLayout f32{.k = KvFormat::kF32, .v = KvFormat::kF32, .kv_heads = 1, .head_dim = 8};
  return {KvGroup{.layers = {0, 2, 4}, .layout = f16, .sealed = f16},
          KvGroup{.layers = {1}, .window = 40, .layout = f32, .sealed = f32}};
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

TEST(KvStorage, ACopyHasTheFirstPositionsAndZeros) {
  const int pages[] = {3, 2};
  auto storage = KvStorage::Create(TwoGroups(), pages);
  ASSERT_TRUE(storage) << storage.error().message;
  const std::vector<PageId> ids = {PageId{2}, PageId{1}};
  const KvTable table = storage->Table(0, ids);
  for (size_t i = 0; i < table.page_bytes * 3; ++i) table.arena[i] = std::byte(1 + i % 251);
  storage->CopyOpenPage(0, PageId{2}, PageId{1}, 5);
  const std::byte* from = table.arena + 2 * table.page_bytes;
  const std::byte* to = table.arena + table.page_bytes;
  const size_t side = size_t{8} * 32 * 2;  // bytes of K, and of V, of a head
  for (size_t head = 0; head < size_t{3} * 2; ++head) {
    for (size_t d = 0; d < 8; ++d) {
      for (size_t p = 0; p < 32; ++p) {
        for (size_t byte = 0; byte < 2; ++byte) {
          const size_t k = head * 2 * side + (d * 32 + p) * 2 + byte;
          const size_t v = head * 2 * side + side + (p * 8 + d) * 2 + byte;
          ASSERT_EQ(to[k], p < 5 ? from[k] : std::byte{0});
          ASSERT_EQ(to[v], p < 5 ? from[v] : std::byte{0});
        }
      }
    }
  }
  EXPECT_EQ(table.arena[0], std::byte{1});
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

TEST(KvStorage, SealedPagesHaveTheirOwnArenaAndSize) {
  const KvLayout kivi{.k = KvFormat::kKivi2, .v = KvFormat::kInt8, .kv_heads = 3, .head_dim = 64};
  const KvGroup group{.layers = {0, 1, 2, 3, 4}, .layout = OpenLayout(kivi), .sealed = kivi};
  EXPECT_TRUE(group.two_forms());
  EXPECT_EQ(group.unit_pages(), 4);
  EXPECT_EQ(group.PageBytes(), 5U * 3 * 2 * 64 * 32 * 2);
  // Keys: 2 bits and 4 level bytes per channel, one float; values: bytes, 32 halves, one float.
  EXPECT_EQ(kivi.PieceBytes(), 3U * (64 * 32 / 4 + 4 * 64 + 4 + 64 * 32 + 2 * 32 + 4));
  EXPECT_EQ(group.SealedPageBytes(), (5 * kivi.PieceBytes() + 63) / 64 * 64);
  const int open[] = {3};
  const int sealed[] = {7};
  auto storage = KvStorage::Create({group}, open, sealed);
  ASSERT_TRUE(storage) << storage.error().message;
  EXPECT_EQ(KvStorage::Bytes(storage->groups(), open, sealed),
            3 * group.PageBytes() + 7 * group.SealedPageBytes());
  const std::vector<PageId> pages = {kNoPage, PageId{2}};
  const std::vector<PageId> sealed_pages = {PageId{6}};
  const KvTable table = storage->Table(0, pages, sealed_pages);
  const KvView view = group.View(table, 4);
  EXPECT_EQ(view.piece(1), table.arena + 2 * group.PageBytes() + 4 * group.layout.PieceBytes());
  EXPECT_EQ(view.sealed_piece(0),
            table.sealed_arena + 6 * group.SealedPageBytes() + 4 * kivi.PieceBytes());
  EXPECT_EQ(view.SealedPages(127), 0);
  EXPECT_EQ(view.SealedPages(128), 4);
  EXPECT_EQ(view.SealedPages(300), 8);
  std::memset(view.sealed_piece(0), 1, kivi.PieceBytes());
  std::memset(table.arena + 2 * group.PageBytes(), 5, group.PageBytes());
  storage->CopyOpenPage(0, PageId{2}, PageId{0}, 32);
  EXPECT_EQ(table.arena[group.PageBytes() - 1], std::byte{5});
  EXPECT_EQ(table.arena[group.PageBytes()], std::byte{0});
}

TEST(KvStorage, BytesReadFollowTheForms) {
  const KvLayout int8{.k = KvFormat::kInt8, .v = KvFormat::kInt8, .kv_heads = 1, .head_dim = 64};
  const KvGroup group{.layers = {0}, .layout = OpenLayout(int8), .sealed = int8};
  const double open = 2 * 64 * 2;
  const double sealed = static_cast<double>(group.SealedPageBytes()) / 32;
  EXPECT_EQ(KvBytesRead({&group, 1}, 31), 32 * open);
  EXPECT_EQ(KvBytesRead({&group, 1}, 32), open + 32 * sealed);
  EXPECT_EQ(KvBytesRead({&group, 1}, 100), 5 * open + 96 * sealed);
}

}  // namespace
}  // namespace nibble
