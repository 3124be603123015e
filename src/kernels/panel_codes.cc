#include "kernels/panel_codes.h"

#include <cstring>

namespace nibble {
namespace {

constexpr int kStepBytes = 64;
constexpr int kSteps = 8;  // of 4 depths

// Vector v: step v in the low nibbles, step v + 4 in the high ones.
void StoreNibbles(const uint8_t steps[kSteps][kStepBytes], uint8_t* dst) {
  for (int v = 0; v < 4; ++v) {
    for (int i = 0; i < kStepBytes; ++i) {
      dst[v * kStepBytes + i] =
          static_cast<uint8_t>((steps[v][i] & 15) | (steps[v + 4][i] & 15) << 4);
    }
  }
}

// Bits [shift, shift + 2) of the codes: vector v holds step 4v + i in bits 2i.
void StoreCrumbs(const uint8_t steps[kSteps][kStepBytes], int shift, uint8_t* dst) {
  for (int v = 0; v < 2; ++v) {
    const uint8_t(*s)[kStepBytes] = steps + v * 4;
    for (int i = 0; i < kStepBytes; ++i) {
      dst[v * kStepBytes + i] =
          static_cast<uint8_t>((s[0][i] >> shift & 3) | (s[1][i] >> shift & 3) << 2 |
                               (s[2][i] >> shift & 3) << 4 | (s[3][i] >> shift & 3) << 6);
    }
  }
}

// Bit `shift` of the codes: step s in bit s.
void StoreBits(const uint8_t steps[kSteps][kStepBytes], int shift, uint8_t* dst) {
  for (int i = 0; i < kStepBytes; ++i) {
    int byte = 0;
    for (int s = 0; s < kSteps; ++s) byte |= (steps[s][i] >> shift & 1) << s;
    dst[i] = static_cast<uint8_t>(byte);
  }
}

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

void StoreCodes(CodePlanes planes, const uint8_t codes[kPanelRows][32], uint8_t* dst) {
  alignas(64) uint8_t steps[kSteps][kStepBytes];
  for (int row = 0; row < kPanelRows; ++row) {
    for (int s = 0; s < kSteps; ++s) std::memcpy(&steps[s][row * 4], &codes[row][s * 4], 4);
  }
  switch (planes) {
    case CodePlanes::kNibble:
      StoreNibbles(steps, dst);
      break;
    case CodePlanes::kNibbleBit:
      StoreNibbles(steps, dst);
      StoreBits(steps, 4, dst + 4 * kStepBytes);
      break;
    case CodePlanes::kNibbleCrumb:
      StoreNibbles(steps, dst);
      StoreCrumbs(steps, 4, dst + 4 * kStepBytes);
      break;
    case CodePlanes::kCrumb:
      StoreCrumbs(steps, 0, dst);
      break;
    case CodePlanes::kCrumbBit:
      StoreCrumbs(steps, 0, dst);
      StoreBits(steps, 2, dst + 2 * kStepBytes);
      break;
    case CodePlanes::kByte:
      std::memcpy(dst, steps, sizeof steps);
      break;
    case CodePlanes::kFloat:
      break;
  }
}

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
