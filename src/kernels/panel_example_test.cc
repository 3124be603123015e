#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "format/kquants.h"
#include "kernels/matmul.h"
#include "kernels/panel_layout.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// The numbers of docs/matmul.md: row 5 of a Q4_K matrix of 16 rows and 2,048 columns, its first
// block zero but for one byte of codes and the scales of group 2.
TEST(PanelExample, PageOnMatmulTellsTheTruth) {
  constexpr int kCols = 2048;
  constexpr int kRow = 5;
  std::vector<BlockQ4K> rows(size_t{16} * kCols / 256);
  BlockQ4K& block = rows[kRow * kCols / 256];
  block.d = 0x2400;     // 2⁻⁶
  block.dmin = 0x2000;  // 2⁻⁷
  block.scales[2] = 45;
  block.scales[6] = 19;
  block.qs[38] = 0xb7;  // group 2, depth 70: 7; group 3, depth 102: 11
  EXPECT_EQ(reinterpret_cast<const std::byte*>(&block.qs[38]) -
                reinterpret_cast<const std::byte*>(&block),
            54);

  const PanelLayout layout = PanelLayoutOf(Format::kQ4K);
  EXPECT_EQ(layout.chunk_bytes, 2304);
  EXPECT_EQ(layout.side_bytes(), 256);
  EXPECT_EQ(layout.group32_bytes(), 256);

  ThreadPool pool(1);
  std::vector<std::byte> packed(PackedMatrix::Bytes(Format::kQ4K, 16, kCols));
  EXPECT_EQ(packed.size(), 8U * 2304);
  const PackedMatrix matrix =
      PackedMatrix::Pack(Format::kQ4K, 16, kCols, std::as_bytes(std::span(rows)), packed, pool);
  std::vector<std::byte> expected(packed.size());
  expected[11] = std::byte{0x24};    // d, high byte
  expected[43] = std::byte{0x20};    // dmin, high byte
  expected[101] = std::byte{0x3d};   // low four bits of 45 and 19
  expected[229] = std::byte{0x12};   // their top two bits
  expected[854] = std::byte{0x07};   // depth 70
  expected[1110] = std::byte{0x0b};  // depth 102
  for (size_t i = 0; i < packed.size(); ++i) EXPECT_EQ(packed[i], expected[i]) << i;

  std::array<float, kCols> decoded;
  matrix.DecodeRow(kRow, decoded.data());
  EXPECT_EQ(decoded[70], 4.7734375F);
  EXPECT_EQ(decoded[71], -0.1484375F);
}

}  // namespace
}  // namespace nibble
