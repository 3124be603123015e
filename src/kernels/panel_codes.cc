#include "kernels/panel_codes.h"

#include <cstring>

namespace nibble {
namespace {

constexpr int kStepBytes = 64;
constexpr int kSteps = 8;  // of 4 depths

// Eight codes of a step at once, one per byte; no operation below carries from byte to byte.
using Word = uint64_t;
constexpr int kStepWords = kStepBytes / static_cast<int>(sizeof(Word));
using RowCodes = uint8_t[kPanelRows][32];

constexpr Word EveryByte(Word byte) { return byte * 0x0101010101010101u; }

// Word i of step s: rows 2i and 2i + 1. Gathered anew at every use: through an array of steps it
// took twice as long, since loads wider than the stores before them wait for the cache.
Word StepWord(const RowCodes& codes, int s, int i) {
  uint32_t low = 0;
  uint32_t high = 0;
  std::memcpy(&low, &codes[2 * i][4 * s], sizeof low);
  std::memcpy(&high, &codes[2 * i + 1][4 * s], sizeof high);
  return low | static_cast<Word>(high) << 32;
}

void PutWord(uint8_t* dst, int i, Word word) {
  std::memcpy(dst + i * static_cast<int>(sizeof word), &word, sizeof word);
}

// Vector v: step v in the low nibbles, step v + 4 in the high ones.
void StoreNibbles(const RowCodes& codes, uint8_t* dst) {
  constexpr Word kMask = EveryByte(15);
  for (int v = 0; v < 4; ++v) {
    for (int i = 0; i < kStepWords; ++i) {
      PutWord(dst, v * kStepWords + i,
              (StepWord(codes, v, i) & kMask) | (StepWord(codes, v + 4, i) & kMask) << 4);
    }
  }
}

// Bits [kShift, kShift + 2) of the codes: vector v holds step 4v + i in bits 2i.
template <int kShift>
void StoreCrumbs(const RowCodes& codes, uint8_t* dst) {
  constexpr Word kMask = EveryByte(3);
  for (int v = 0; v < 2; ++v) {
    for (int i = 0; i < kStepWords; ++i) {
      Word word = 0;
      for (int s = 0; s < 4; ++s) {
        word |= (StepWord(codes, v * 4 + s, i) >> kShift & kMask) << (2 * s);
      }
      PutWord(dst, v * kStepWords + i, word);
    }
  }
}

// Bit kShift of the codes: step s in bit s.
template <int kShift>
void StoreBits(const RowCodes& codes, uint8_t* dst) {
  constexpr Word kMask = EveryByte(1);
  for (int i = 0; i < kStepWords; ++i) {
    Word word = 0;
    for (int s = 0; s < kSteps; ++s) word |= (StepWord(codes, s, i) >> kShift & kMask) << s;
    PutWord(dst, i, word);
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

void StoreCodes(CodePlanes planes, const uint8_t (&codes)[kPanelRows][32], uint8_t* dst) {
  switch (planes) {
    case CodePlanes::kNibble:
      StoreNibbles(codes, dst);
      break;
    case CodePlanes::kNibbleBit:
      StoreNibbles(codes, dst);
      StoreBits<4>(codes, dst + 4 * kStepBytes);
      break;
    case CodePlanes::kNibbleCrumb:
      StoreNibbles(codes, dst);
      StoreCrumbs<4>(codes, dst + 4 * kStepBytes);
      break;
    case CodePlanes::kCrumb:
      StoreCrumbs<0>(codes, dst);
      break;
    case CodePlanes::kCrumbBit:
      StoreCrumbs<0>(codes, dst);
      StoreBits<2>(codes, dst + 2 * kStepBytes);
      break;
    case CodePlanes::kByte:
      for (int s = 0; s < kSteps; ++s) {
        for (int i = 0; i < kStepWords; ++i) {
          PutWord(dst, s * kStepWords + i, StepWord(codes, s, i));
        }
      }
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
