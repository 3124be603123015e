#include "quantize/grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "format/small_float.h"

namespace nibble {
namespace {

struct GridRange {
  float min = 0;
  float max = 0;
};

GridRange SpanRange(std::span<const float> values) {
  GridRange range = {values[0], values[0]};
  for (const float value : values) {
    range.min = value < range.min ? value : range.min;
    range.max = value > range.max ? value : range.max;
  }
  return range;
}

// Nearest integer, ties to even, of any float: what is beyond ±2^22 stays at it, far outside codes.
inline float RoundToEven(float value) {
  constexpr float kMagic = 12582912.0f;  // 1.5 · 2^23
  const float bounded = std::min(std::max(value, -4194304.0f), 4194304.0f);
  return (bounded + kMagic) - kMagic;
}

// |x|^2.4 = x² · (x^(1/5))²; the fifth root by Newton from an estimate of the exponent. Relative
// error below 1e-6, the same bits on every machine, and four divisions instead of a pow.
inline float PowerOfError(float x) {
  x = std::fabs(x);
  if (!(x > 1e-18f)) return 0;
  float root = std::bit_cast<float>(std::bit_cast<uint32_t>(x) / 5 + 0x32c9a3d7u);
  for (int i = 0; i < 4; ++i) {
    const float square = root * root;
    root = 0.8f * root + 0.2f * (x / (square * square));
  }
  return x * x * (root * root);
}

float SmallestOf(ScaleType type) {
  switch (type) {
    case ScaleType::kF16:
      return 0x1p-24f;
    case ScaleType::kBf16:
      return 0x1p-126f;
    case ScaleType::kF32:
      break;
  }
  return std::numeric_limits<float>::min();
}

float EpsilonOf(ScaleType type) {
  switch (type) {
    case ScaleType::kF16:
      return 0x1p-10f;
    case ScaleType::kBf16:
      return 0x1p-7f;
    case ScaleType::kF32:
      break;
  }
  return std::numeric_limits<float>::epsilon();
}

// A scale that rounds to zero would divide by it: the least one of the type stands in.
float StoredScale(float scale, ScaleType type) {
  const float stored = RoundToType(scale, type);
  return stored != 0 ? stored : SmallestOf(type);
}

AffineGrid GridOfRange(GridRange range, const GridSpec& spec) {
  const auto levels = static_cast<float>(spec.Levels());
  const auto middle = static_cast<float>(spec.Middle());
  const bool forced = spec.convention == GridConvention::kGptq ||
                      spec.convention == GridConvention::kCompressedTensors;
  if (forced) range = {std::min(range.min, 0.0f), std::max(range.max, 0.0f)};
  const float absmax = std::max(std::fabs(range.min), std::fabs(range.max));
  AffineGrid grid;
  grid.zero = middle;
  switch (spec.convention) {
    case GridConvention::kGptq:
      if (range.min == 0 && range.max == 0) range = {-1, 1};
      if (spec.symmetric) {
        const float bound = std::max(std::fabs(range.min), range.max);
        range = {-bound, bound};
      }
      grid.scale = StoredScale((range.max - range.min) / levels, spec.scale_type);
      if (!spec.symmetric) {
        grid.zero = std::clamp(RoundToEven(-range.min / grid.scale), 0.0f, levels);
      }
      break;
    case GridConvention::kCompressedTensors:
      grid.scale =
          RoundToType(spec.symmetric ? absmax / (levels / 2) : (range.max - range.min) / levels,
                      spec.scale_type);
      if (grid.scale == 0) grid.scale = EpsilonOf(spec.scale_type);
      if (!spec.symmetric) {
        const float zero = std::clamp(-middle - range.min / grid.scale, -middle, middle - 1);
        grid.zero = RoundToEven(zero) + middle;
      }
      break;
    case GridConvention::kAwq:
      grid.scale = StoredScale(spec.symmetric ? std::max(absmax, 1e-5f) / (middle - 1)
                                              : std::max(range.max - range.min, 1e-5f) / levels,
                               spec.scale_type);
      if (!spec.symmetric) {
        grid.zero = std::clamp(-RoundToEven(range.min / grid.scale), 0.0f, levels);
      }
      break;
    case GridConvention::kSmoothQuant:
      grid.scale = StoredScale(std::max(absmax, 1e-5f) / (middle - 1), spec.scale_type);
      break;
    case GridConvention::kGgml:
      NIBBLE_CHECK(false);  // needs the sign of the largest: FitGgml
  }
  grid.step = grid.scale;
  return grid;
}

AffineGrid FitGgml(std::span<const float> values, const GridSpec& spec) {
  float largest = 0;
  for (const float value : values) {
    if (std::fabs(value) > std::fabs(largest)) largest = value;
  }
  AffineGrid grid;
  grid.zero = static_cast<float>(spec.Middle());
  grid.step = spec.bits == 8 ? std::fabs(largest) / 127 : largest / -grid.zero;
  grid.scale = RoundToType(grid.step, spec.scale_type);
  return grid;
}

void GgmlCodes(const AffineGrid& grid, const GridSpec& spec, std::span<const float> values,
               uint8_t* codes) {
  const float inverse = grid.step != 0 ? 1 / grid.step : 0;
  for (size_t i = 0; i < values.size(); ++i) {
    float code = 0;
    if (spec.bits == 8) {
      code = std::round(values[i] * inverse) + grid.zero;
    } else {
      code = std::trunc(values[i] * inverse + (grid.zero + 0.5f));
    }
    codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0f, static_cast<float>(spec.Levels())));
  }
}

// Σ |w − grid(w)|^2.4.
float RangeError(const AffineGrid& grid, const GridSpec& spec, std::span<const float> values) {
  const auto levels = static_cast<float>(spec.Levels());
  float error = 0;
  for (const float value : values) {
    const float code =
        std::clamp(RoundToEven(value / grid.step) + grid.zero, 0.0f, levels) - grid.zero;
    error += PowerOfError(grid.scale * code - value);
  }
  return error;
}

AffineGrid SearchRange(std::span<const float> values, const GridSpec& spec) {
  const GridRange whole = SpanRange(values);
  AffineGrid best = GridOfRange(whole, spec);
  float least = std::numeric_limits<float>::infinity();
  constexpr int kGrid = 100;
  constexpr int kTries = 80;
  for (int i = 0; i < kTries; ++i) {
    const float keep = 1 - static_cast<float>(i) / kGrid;
    const AffineGrid grid = GridOfRange({whole.min * keep, whole.max * keep}, spec);
    const float error = RangeError(grid, spec, values);
    if (error < least) {
      least = error;
      best = grid;
    }
  }
  return best;
}

}  // namespace

Status CheckGridSpec(const GridSpec& spec) {
  if (spec.bits < 2 || spec.bits > 8) return BadInput("bits: expected 2 to 8, found {}", spec.bits);
  if (spec.granularity == Granularity::kGroup && spec.group < 1) {
    return BadInput("group: expected at least 1 input, found {}", spec.group);
  }
  const bool only_symmetric =
      spec.convention == GridConvention::kSmoothQuant || spec.convention == GridConvention::kGgml;
  if (!spec.symmetric && only_symmetric) {
    return BadInput("{} grids are symmetric: an asymmetric one was asked for",
                    spec.convention == GridConvention::kGgml ? "ggml" : "SmoothQuant");
  }
  return {};
}

float RoundToType(float scale, ScaleType type) {
  switch (type) {
    case ScaleType::kF16:
      return F16ToF32(F32ToF16Saturating(scale));
    case ScaleType::kBf16:
      return BF16ToF32(F32ToBF16(std::clamp(scale, -0x1.fep127f, 0x1.fep127f)));
    case ScaleType::kF32:
      break;
  }
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(scale, -kLargest, kLargest);
}

AffineGrid FitGrid(std::span<const float> values, const GridSpec& spec) {
  if (spec.convention == GridConvention::kGgml) return FitGgml(values, spec);
  if (spec.search_range) return SearchRange(values, spec);
  return GridOfRange(SpanRange(values), spec);
}

void CodesOn(const AffineGrid& grid, const GridSpec& spec, std::span<const float> values,
             uint8_t* codes) {
  if (spec.convention == GridConvention::kGgml) return GgmlCodes(grid, spec, values, codes);
  const auto levels = static_cast<float>(spec.Levels());
  if (spec.convention == GridConvention::kCompressedTensors) {
    // The zero point is in the signed range, where adding it rounds differently.
    const auto middle = static_cast<float>(spec.Middle());
    const float zero = grid.zero - middle;
    for (size_t i = 0; i < values.size(); ++i) {
      const float signed_code =
          RoundToEven(std::clamp(values[i] / grid.step + zero, -middle, middle - 1));
      codes[i] = static_cast<uint8_t>(static_cast<int>(signed_code + middle));
    }
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const float code = RoundToEven(values[i] / grid.step) + grid.zero;
    codes[i] = static_cast<uint8_t>(static_cast<int>(std::clamp(code, 0.0f, levels)));
  }
}

}  // namespace nibble
