#include "kernels/pack_floats.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/pack_vectors.h"
#include "kernels/panel_layout.h"

namespace nibble {
namespace {

using Bytes16 = uint8_t __attribute__((vector_size(16)));
using Halves8 = uint16_t __attribute__((vector_size(16)));

// Elements of a and b in turn, from their first or second half.
template <bool kSecondHalf, class Vector, size_t... kAt>
Vector Interleave(Vector a, Vector b, std::index_sequence<kAt...>) {
  constexpr size_t kLanes = sizeof...(kAt);
  constexpr size_t kFirst = kSecondHalf ? kLanes / 2 : 0;
  return __builtin_shufflevector(a, b, (kFirst + kAt / 2 + kAt % 2 * kLanes)...);
}

// 16 rows × 16 bytes to 16 columns of 16 rows. Interleaving the first eight vectors with the last
// eight moves the highest bit of a number's index (row, column) to the end; after four times the
// row is last.
template <class Vector, int kBytes>
void TransposeTile(const std::byte* src, size_t row_bytes, uint8_t* dst) {
  constexpr std::make_index_sequence<16 / kBytes> kLanes{};
  Vector vectors[2][kPanelRows];
  for (size_t r = 0; r < kPanelRows; ++r) {
    vectors[0][r] = LoadVector<Vector>(src + r * row_bytes);
  }
  for (int round = 0; round < 4; ++round) {
    const Vector* from = vectors[round % 2];
    Vector* to = vectors[(round + 1) % 2];
    for (int i = 0; i < kPanelRows / 2; ++i) {
      to[2 * i] = Interleave<false>(from[i], from[i + kPanelRows / 2], kLanes);
      to[2 * i + 1] = Interleave<true>(from[i], from[i + kPanelRows / 2], kLanes);
    }
  }
  for (int i = 0; i < kPanelRows; ++i) StoreVector(dst + i * 16, vectors[0][i]);
}

template <class Vector, int kBytes>
void PackPanel(const FloatRows& rows, uint8_t* panel) {
  constexpr int kTileCols = 16 / kBytes;
  int k = 0;
  for (; rows.rows == kPanelRows && k + kTileCols <= rows.cols; k += kTileCols) {
    TransposeTile<Vector, kBytes>(rows.src + static_cast<ptrdiff_t>(k) * kBytes, rows.row_bytes,
                                  panel + static_cast<ptrdiff_t>(k) * kBytes * kPanelRows);
  }
  for (; k < rows.cols; ++k) {
    uint8_t* column = panel + static_cast<ptrdiff_t>(k) * kBytes * kPanelRows;
    std::memset(column, 0, kBytes * kPanelRows);
    for (int r = 0; r < rows.rows; ++r) {
      std::memcpy(
          column + r * kBytes,
          rows.src + static_cast<size_t>(r) * rows.row_bytes + static_cast<size_t>(k) * kBytes,
          kBytes);
    }
  }
}

}  // namespace

void PackFloatPanel(const FloatRows& rows, uint8_t* panel) {
  switch (rows.element_bytes) {
    case 1:
      return PackPanel<Bytes16, 1>(rows, panel);
    case 2:
      return PackPanel<Halves8, 2>(rows, panel);
    case 4:
      return PackPanel<Words4, 4>(rows, panel);
    default:
      NIBBLE_CHECK(false);
  }
}

}  // namespace nibble
