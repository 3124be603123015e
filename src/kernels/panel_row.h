#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format.h"
#include "kernels/panel_layout.h"
#include "kernels/panel_side.h"

namespace nibble {

// One row of a packed matrix, read back scalar: what the twins and DecodeRow stand on.
struct PanelRow {
  Format format;
  PanelLayout layout;
  const uint8_t* panel;  // first chunk of the row's panel
  int row;               // 0 … 15

  const uint8_t* chunk(int i) const {
    return panel + static_cast<size_t>(i) * static_cast<size_t>(layout.chunk_bytes);
  }
  RowSide Side(int chunk_index) const { return LoadSide(layout.side, row, chunk(chunk_index)); }
  // Values without scale of 32 depths of a chunk, a zero of their group subtracted.
  void Values(int chunk_index, int group32, int16_t values[32]) const;

  // Decodes all of cols depths, exactly the format's floats.
  void Decode(int cols, float* dst) const;
};

}  // namespace nibble
