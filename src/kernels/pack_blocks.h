#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format.h"
#include "kernels/panel_side.h"

namespace nibble {

// One block of a file: its codes in element order (as kernels/panel_layout.h stores them) and its
// scales. block may have any alignment; codes has room for the block's elements (up to 256).
using ReadBlockFn = void (*)(const std::byte* block, uint8_t* codes, RowSide& side);

// The reader of a format; null for the formats without blocks.
ReadBlockFn BlockReader(Format format);

}  // namespace nibble
