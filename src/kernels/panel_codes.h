#pragma once

#include <cstdint>

#include "kernels/panel_layout.h"

namespace nibble {

// The 32 codes of one row, from 16 rows × 32 depths in panel order (kernels/panel_layout.h).
void LoadCodes(CodePlanes planes, const uint8_t* src, int row, uint8_t codes[32]);

// What the 32 codes stand for, without the scale.
void ValuesOfCodes(const PanelLayout& layout, const uint8_t codes[32], int16_t values[32]);

}  // namespace nibble
