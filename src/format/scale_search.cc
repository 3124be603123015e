#include "format/scale_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace nibble {
namespace {

constexpr size_t kMaxGroup = 32;

int ClampedCode(float value, int low, int high) { return std::clamp(NearestInt(value), low, high); }

float Cost(float difference, bool absolute_error) {
  return absolute_error ? std::fabs(difference) : difference * difference;
}

struct WeightedRange {
  float min;
  float max;
  float sum_w;
  float sum_x;  // Σ w·x
};
WeightedRange RangeOf(std::span<const float> x, std::span<const float> weights) {
  WeightedRange range = {x[0], x[0], weights[0], weights[0] * x[0]};
  for (size_t i = 1; i < x.size(); ++i) {
    range.min = std::min(range.min, x[i]);
    range.max = std::max(range.max, x[i]);
    range.sum_w += weights[i];
    range.sum_x += weights[i] * x[i];
  }
  range.min = std::min(range.min, 0.0f);  // zero stays representable
  return range;
}

struct Sums {
  float l = 0.0f;   // Σ w·l
  float l2 = 0.0f;  // Σ w·l²
  float xl = 0.0f;  // Σ w·x·l
};

}  // namespace

float SignedMax(std::span<const float> x) {
  float largest = 0.0f;
  float result = 0.0f;
  for (const float value : x) {
    if (std::fabs(value) > largest) {
      largest = std::fabs(value);
      result = value;
    }
  }
  return result;
}

int NearestInt(float value) {
  // Adding 1.5 · 2^23 leaves the integer, rounded by the addition, in the low 23 bits.
  const auto bits = std::bit_cast<int32_t>(value + 12582912.0f);
  return (bits & 0x007fffff) - 0x00400000;
}

float FitSymmetric(std::span<const float> x, std::span<const float> weights, int limit) {
  const float largest = SignedMax(x);
  if (std::fabs(largest) < kGroupMaxEpsilon) return 0.0f;
  float scale = 0.0f;
  float best = 0.0f;
  const auto attempt = [&](float inverse, bool first) {
    float sum_xl = 0.0f;
    float sum_l2 = 0.0f;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto l = static_cast<float>(ClampedCode(inverse * x[i], -limit, limit - 1));
      sum_xl += weights[i] * x[i] * l;
      sum_l2 += weights[i] * l * l;
    }
    if (sum_l2 > 0.0f && (first || sum_xl * sum_xl > best * sum_l2)) {
      scale = sum_xl / sum_l2;
      best = scale * sum_xl;
    }
  };
  attempt(static_cast<float>(-limit) / largest, true);
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    attempt(-(static_cast<float>(limit) + 0.1f * static_cast<float>(step)) / largest, false);
  }
  return scale;
}

float FitSymmetricByDescent(std::span<const float> x, int limit) {
  NIBBLE_CHECK(x.size() <= kMaxGroup);
  const float largest = SignedMax(x);
  if (std::fabs(largest) < kGroupMaxEpsilon) return 0.0f;
  std::array<int, kMaxGroup> codes = {};
  const float inverse = static_cast<float>(-limit) / largest;
  float sum_xl = 0.0f;
  float sum_l2 = 0.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    codes[i] = ClampedCode(inverse * x[i], -limit, limit - 1);
    const float weight = x[i] * x[i];
    sum_xl += weight * x[i] * static_cast<float>(codes[i]);
    sum_l2 += weight * static_cast<float>(codes[i]) * static_cast<float>(codes[i]);
  }
  // Moves one code if the error falls when the scale follows.
  const auto move = [&](size_t i) {
    const float weight = x[i] * x[i];
    const auto old_code = static_cast<float>(codes[i]);
    float xl = sum_xl - weight * x[i] * old_code;
    if (!(xl > 0.0f)) return false;
    float l2 = sum_l2 - weight * old_code * old_code;
    const int code = ClampedCode(x[i] * l2 / xl, -limit, limit - 1);
    if (code == codes[i]) return false;
    const auto new_code = static_cast<float>(code);
    xl += weight * x[i] * new_code;
    l2 += weight * new_code * new_code;
    if (!(l2 > 0.0f && xl * xl * sum_l2 > sum_xl * sum_xl * l2)) return false;
    codes[i] = code;
    sum_xl = xl;
    sum_l2 = l2;
    return true;
  };
  for (int round = 0; round < 5; ++round) {
    bool moved = false;
    for (size_t i = 0; i < x.size(); ++i) moved |= move(i);
    if (!moved) break;
  }
  return sum_l2 > 0.0f ? sum_xl / sum_l2 : 0.0f;
}

AffineFit FitAffine(std::span<const float> x, std::span<const float> weights,
                    const AffineSearch& search) {
  NIBBLE_CHECK(x.size() <= kMaxGroup && weights.size() == x.size());
  const WeightedRange range = RangeOf(x, weights);
  if (!(range.max > range.min)) return {.scale = 0.0f, .min = -range.min};
  const auto largest = static_cast<float>(search.largest_code);
  std::array<float, kMaxGroup> codes = {};

  // Codes for an inverse scale and a minimum, their sums, and the error of a fit with these codes.
  const auto round_codes = [&](float inverse, float min) {
    Sums sums;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto l =
          static_cast<float>(ClampedCode(inverse * (x[i] - min), 0, search.largest_code));
      codes[i] = l;
      sums.l += weights[i] * l;
      sums.l2 += weights[i] * l * l;
      sums.xl += weights[i] * l * x[i];
    }
    return sums;
  };
  const auto error_of = [&](float scale, float min) {
    float error = 0.0f;
    for (size_t i = 0; i < x.size(); ++i) {
      const float difference = scale * codes[i] + min - x[i];
      error += weights[i] * Cost(difference, search.absolute_error);
    }
    return error;
  };

  float min = range.min;
  float scale = 1.0f / (largest / (range.max - min));
  round_codes(largest / (range.max - min), min);
  float best = error_of(scale, min);
  for (int i = 0; i <= search.steps; ++i) {
    // The minimum of the best fit so far is where the next try begins, as in ggml: the tries are a
    // walk, not a grid. With the data's minimum throughout, Q4_K lost 0.8% on uniform data.
    const float steps = search.first + search.step * static_cast<float>(i) + largest;
    const Sums sums = round_codes(steps / (range.max - min), min);
    const float determinant = range.sum_w * sums.l2 - sums.l * sums.l;
    if (!(determinant > 0.0f)) continue;
    float this_scale = (range.sum_w * sums.xl - range.sum_x * sums.l) / determinant;
    float this_min = (sums.l2 * range.sum_x - sums.l * sums.xl) / determinant;
    if (this_min > 0.0f) {
      this_min = 0.0f;
      this_scale = sums.xl / sums.l2;
    }
    const float error = error_of(this_scale, this_min);
    if (error < best) {
      best = error;
      scale = this_scale;
      min = this_min;
    }
  }
  return {.scale = scale, .min = -min};
}

}  // namespace nibble
