#include "kernels/panel_codes.h"

namespace nibble {
namespace {

constexpr int kStepBytes = 64;

int NibbleAt(const uint8_t* src, int step, int i) {
  return src[(step & 3) * kStepBytes + i] >> (step & 4) & 15;
}
int CrumbAt(const uint8_t* src, int step, int i) {
  return src[step / 4 * kStepBytes + i] >> (step % 4 * 2) & 3;
}
int BitAt(const uint8_t* src, int step, int i) { return src[i] >> step & 1; }

int CodeAt(CodePlanes planes, const uint8_t* src, int step, int i) {
  switch (planes) {
    case CodePlanes::kNibble:
      return NibbleAt(src, step, i);
    case CodePlanes::kNibbleBit:
      return NibbleAt(src, step, i) | BitAt(src + 4 * kStepBytes, step, i) << 4;
    case CodePlanes::kNibbleCrumb:
      return NibbleAt(src, step, i) | CrumbAt(src + 4 * kStepBytes, step, i) << 4;
    case CodePlanes::kCrumb:
      return CrumbAt(src, step, i);
    case CodePlanes::kCrumbBit:
      return CrumbAt(src, step, i) | BitAt(src + 2 * kStepBytes, step, i) << 2;
    case CodePlanes::kByte:
      return src[step * kStepBytes + i];
    case CodePlanes::kFloat:
      break;
  }
  return 0;
}

}  // namespace

void LoadCodes(CodePlanes planes, const uint8_t* src, int row, uint8_t codes[32]) {
  for (int k = 0; k < 32; ++k) {
    codes[k] = static_cast<uint8_t>(CodeAt(planes, src, k / 4, row * 4 + k % 4));
  }
}

void ValuesOfCodes(const PanelLayout& layout, const uint8_t codes[32], int16_t values[32]) {
  for (int k = 0; k < 32; ++k) {
    int unsigned_value = codes[k];
    if (layout.table == CodeTable::kIq4) unsigned_value = kIq4Unsigned[codes[k] & 15];
    if (layout.table == CodeTable::kE2M1) unsigned_value = kE2M1Unsigned[codes[k] & 15];
    values[k] = static_cast<int16_t>(unsigned_value - layout.zero());
  }
}

}  // namespace nibble
