#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble {

// Rows of numbers without blocks: rows (1 … 16) of cols elements, row_bytes apart.
struct FloatRows {
  const std::byte* src;
  size_t row_bytes;
  int rows;
  int cols;
  int element_bytes;  // 1, 2, 4
};

// One panel: [depth][16 rows], missing rows zero.
void PackFloatPanel(const FloatRows& rows, uint8_t* panel);

}  // namespace nibble
