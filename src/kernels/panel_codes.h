#pragma once

#include <cstdint>

#include "kernels/panel_layout.h"

namespace nibble {

// Codes of 16 rows × 32 depths in panel order (kernels/panel_layout.h). dst has group32_bytes().
void StoreCodes(CodePlanes planes, const uint8_t (&codes)[kPanelRows][32], uint8_t* dst);

// The 32 codes of one row.
void LoadCodes(CodePlanes planes, const uint8_t* src, int row, uint8_t codes[32]);

// What the 32 codes stand for, without the scale.
void ValuesOfCodes(const PanelLayout& layout, const uint8_t codes[32], int16_t values[32]);

}  // namespace nibble
