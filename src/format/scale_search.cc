#include "format/scale_search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace nibble {
namespace {

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

// Levels with the sums that their best scale follows from.
class LevelDescent {
 public:
  LevelDescent(std::span<const float> x, std::span<const float> weights, int top, uint8_t* levels)
      : x_(x), weights_(weights), top_(top), levels_(levels) {}

  void Start(float inverse) {
    for (size_t i = 0; i < x_.size(); ++i) {
      levels_[i] = static_cast<uint8_t>(ClampedCode(inverse * x_[i], 0, top_));
      Put(i, levels_[i], sum_xl_, sum_l2_);
    }
  }

  // Moves one level if the error falls when the scale follows.
  bool Move(size_t i) {
    const float weight = weights_[i];
    const auto old_level = static_cast<float>(levels_[i]);
    float xl = sum_xl_ - weight * x_[i] * old_level;
    float l2 = sum_l2_ - weight * old_level * old_level;
    if (!(xl > 0.0f && l2 > 0.0f)) return false;
    const int level = ClampedCode(x_[i] * l2 / xl, 0, top_);
    if (level == levels_[i]) return false;
    Put(i, level, xl, l2);
    if (!(xl * xl * sum_l2_ > sum_xl_ * sum_xl_ * l2)) return false;
    levels_[i] = static_cast<uint8_t>(level);
    sum_xl_ = xl;
    sum_l2_ = l2;
    return true;
  }

  float Scale() const { return sum_l2_ > 0.0f ? sum_xl_ / sum_l2_ : 0.0f; }

 private:
  void Put(size_t i, int level, float& xl, float& l2) const {
    const auto l = static_cast<float>(level);
    xl += weights_[i] * x_[i] * l;
    l2 += weights_[i] * l * l;
  }

  std::span<const float> x_;
  std::span<const float> weights_;
  int top_;
  uint8_t* levels_;
  float sum_xl_ = 0.0f;
  float sum_l2_ = 0.0f;
};

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

float FitSymmetric(std::span<const float> x, std::span<const float> weights, int limit,
                   uint8_t* codes) {
  const float largest = SignedMax(x);
  if (std::fabs(largest) < kGroupMaxEpsilon) {
    if (codes != nullptr) std::fill_n(codes, x.size(), uint8_t{0});
    return 0.0f;
  }
  float scale = 0.0f;
  float best = 0.0f;
  float best_inverse = static_cast<float>(-limit) / largest;
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
      best_inverse = inverse;
    }
  };
  attempt(best_inverse, true);
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    attempt(-(static_cast<float>(limit) + 0.1f * static_cast<float>(step)) / largest, false);
  }
  if (codes != nullptr) {
    for (size_t i = 0; i < x.size(); ++i) {
      codes[i] = static_cast<uint8_t>(ClampedCode(best_inverse * x[i], -limit, limit - 1) + limit);
    }
  }
  return scale;
}

float FitSymmetricByDescent(std::span<const float> x, int limit, uint8_t* final_codes) {
  NIBBLE_CHECK(x.size() <= kMaxGroup);
  const float largest = SignedMax(x);
  if (std::fabs(largest) < kGroupMaxEpsilon) {
    if (final_codes != nullptr) std::fill_n(final_codes, x.size(), uint8_t{0});
    return 0.0f;
  }
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
  if (final_codes != nullptr) {
    for (size_t i = 0; i < x.size(); ++i) final_codes[i] = static_cast<uint8_t>(codes[i] + limit);
  }
  return sum_l2 > 0.0f ? sum_xl / sum_l2 : 0.0f;
}

AffineFit FitAffine(std::span<const float> x, std::span<const float> weights,
                    const AffineSearch& search, uint8_t* best_codes) {
  NIBBLE_CHECK(x.size() <= kMaxGroup && weights.size() == x.size());
  const WeightedRange range = RangeOf(x, weights);
  if (!(range.max > range.min)) {
    if (best_codes != nullptr) std::fill_n(best_codes, x.size(), uint8_t{0});
    return {.scale = 0.0f, .min = -range.min};
  }
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

  const auto keep_codes = [&] {
    if (best_codes == nullptr) return;
    for (size_t i = 0; i < x.size(); ++i) best_codes[i] = static_cast<uint8_t>(codes[i]);
  };

  float min = range.min;
  float scale = 1.0f / (largest / (range.max - min));
  round_codes(largest / (range.max - min), min);
  float best = error_of(scale, min);
  keep_codes();
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
      keep_codes();
    }
  }
  return {.scale = scale, .min = -min};
}

float FitLevels(std::span<const float> x, std::span<const float> weights, int top,
                uint8_t* levels) {
  NIBBLE_CHECK(weights.size() == x.size());
  std::fill_n(levels, x.size(), uint8_t{0});
  float largest = 0.0f;
  for (const float value : x) largest = std::max(largest, value);
  if (!(largest >= kGroupMaxEpsilon)) return 0.0f;
  const auto error_of = [&](float inverse) {
    const float scale = 1.0f / inverse;
    float error = 0.0f;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto l = static_cast<float>(ClampedCode(inverse * x[i], 0, top));
      const float difference = x[i] - scale * l;
      error += weights[i] * difference * difference;
    }
    return error;
  };
  float inverse = static_cast<float>(top) / largest;
  float best = error_of(inverse);
  for (int step = -4; step <= 4; ++step) {
    if (step == 0) continue;
    const float candidate = (0.1f * static_cast<float>(step) + static_cast<float>(top)) / largest;
    const float error = error_of(candidate);
    if (error < best) {
      best = error;
      inverse = candidate;
    }
  }
  LevelDescent descent(x, weights, top, levels);
  descent.Start(inverse);
  for (int round = 0; round < 5; ++round) {
    bool moved = false;
    for (size_t i = 0; i < x.size(); ++i) moved |= descent.Move(i);
    if (!moved) break;
  }
  return descent.Scale();
}

float SumOfSquares(std::span<const float> x) {
  float sum = 0.0f;
  for (const float value : x) sum += value * value;
  return sum;
}

void WeighByImportance(std::span<const float> x, std::span<const float> importance, float spread,
                       std::span<float> weights) {
  for (size_t i = 0; i < x.size(); ++i) {
    weights[i] = importance[i] * std::sqrt(spread + x[i] * x[i]);
  }
}

}  // namespace nibble
