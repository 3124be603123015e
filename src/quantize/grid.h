#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace nibble {

// How a grid's scale and zero follow from the weights that share it. Toolkits differ (D: what the
// largest magnitude is divided by in a symmetric grid of b bits):
//
// - kGptq: D = 2^(b-1) - 1/2. The range is made to contain 0; no range: [-1, 1]. Zero point
//   round(-min / s).
// - kCompressedTensors: D and 0 as kGptq; no range: s = epsilon. Zero points of the signed range,
//   added before rounding.
// - kAwq: D = 2^(b-1) - 1. The range as it is, at least 1e-5. Zero point -round(min / s), clamped.
// - kSmoothQuant: D = 2^(b-1) - 1, at least 1e-5. Symmetric only.
// - kGgml: D = -2^(b-1), and 127 for 8 bits. No range: all codes zero. Symmetric only.
//
// kGgml is Q4_0's and Q8_0's: the element of largest magnitude, with its sign, becomes the lowest
// code. Rounding is to even, ggml's half away from zero. GPTQ's own code mirrors the range only
// where the least weight is negative, so that a group of positive weights clips at its middle; here
// it is mirrored always.
enum class GridConvention : uint8_t { kGptq, kCompressedTensors, kAwq, kSmoothQuant, kGgml };

// What a checkpoint stores scales as. Codes are chosen for the scale as it is stored, except
// ggml's, which divides by the scale before rounding it.
enum class ScaleType : uint8_t { kF32, kF16, kBf16 };

// The weights that share a scale: the matrix, one output, or consecutive inputs of one output.
enum class Granularity : uint8_t { kTensor, kChannel, kGroup };

struct GridSpec {
  int bits = 4;  // 2 to 8
  Granularity granularity = Granularity::kGroup;
  int group = 128;  // of kGroup; the last of a row may be shorter
  bool symmetric = true;
  GridConvention convention = GridConvention::kGptq;
  ScaleType scale_type = ScaleType::kF16;
  // GPTQ's "mse": tries ranges shrunk by 0 to 79% and keeps the least Σ |error|^2.4.
  bool search_range = false;

  int Levels() const { return (1 << bits) - 1; }  // the largest code
  int Middle() const { return 1 << (bits - 1); }
  int GroupOf(int cols) const {
    return granularity == Granularity::kGroup && group < cols ? group : cols;
  }
};

// Errors: bits, a group below 1, asymmetric with a convention that has only symmetric grids.
Status CheckGridSpec(const GridSpec& spec);

// w ≈ scale × (code − zero).
struct AffineGrid {
  float scale = 1;  // as stored
  float zero = 0;   // a code
  float step = 1;   // what codes are chosen with: scale, or ggml's before it is rounded
};

float RoundToType(float scale, ScaleType type);

// values: at least one, all finite.
AffineGrid FitGrid(std::span<const float> values, const GridSpec& spec);

// The code of each value. codes: [values.size()].
void CodesOn(const AffineGrid& grid, const GridSpec& spec, std::span<const float> values,
             uint8_t* codes);

inline float ValueOf(const AffineGrid& grid, uint8_t code) {
  return grid.scale * (static_cast<float>(code) - grid.zero);
}

}  // namespace nibble
