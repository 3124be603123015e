#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/format.h"
#include "kernels/panel_layout.h"

namespace nibble {

inline constexpr size_t kLargestBlock = 256;

// Writes one chunk (kernels/panel_layout.h) from one block of each of 16 rows. The blocks may have
// any alignment; nothing beyond their bytes is read.
using PackChunkFn = void (*)(const std::byte* const (&blocks)[kPanelRows], uint8_t* chunk);

// Null for the formats without blocks.
PackChunkFn ChunkPacker(Format format);

// The block that stands for a row that is missing in the last panel: zero codes and scales.
void FillMissingBlock(Format format, std::span<std::byte, kLargestBlock> block);

}  // namespace nibble
