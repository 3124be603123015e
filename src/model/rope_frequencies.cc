#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/scalar_math.h"

namespace nibble {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// YaRN's attention temperature.
double Mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * Log(factor) + 1;
}

double AttentionFactor(const RopeConfig& rope) {
  if (rope.attention_factor > 0) return rope.attention_factor;
  if (rope.scaling == RopeScaling::kYarn) {
    if (rope.mscale != 0 && rope.mscale_all_dim != 0) {
      return Mscale(rope.factor, rope.mscale) / Mscale(rope.factor, rope.mscale_all_dim);
    }
    return Mscale(rope.factor, 1);
  }
  if (rope.scaling == RopeScaling::kLongRope && rope.factor > 1) {
    return std::sqrt(1 + Log(rope.factor) / Log(rope.original_context));
  }
  return 1;
}

double ScaleLlama3(const RopeConfig& rope, double inv_freq) {
  const double wavelength = kTwoPi / inv_freq;
  const double original = rope.original_context;
  if (wavelength < original / rope.high_freq_factor) return inv_freq;
  if (wavelength > original / rope.low_freq_factor) return inv_freq / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * inv_freq / rope.factor + smooth * inv_freq;
}

// Pairs below `low` keep their frequency, those above `high` are interpolated.
struct YarnRange {
  double low;
  double high;
};

YarnRange FindYarnRange(const RopeConfig& rope) {
  const auto dim_of = [&](double rotations) {
    return rope.dims * Log(rope.original_context / (rotations * kTwoPi)) / (2 * Log(rope.theta));
  };
  YarnRange range{.low = dim_of(rope.beta_fast), .high = dim_of(rope.beta_slow)};
  if (rope.truncate) {
    range.low = std::floor(range.low);
    range.high = std::ceil(range.high);
  }
  range.low = std::max(range.low, 0.0);
  range.high = std::min(range.high, rope.dims - 1.0);
  if (range.low == range.high) range.high += 0.001;  // as in transformers: no division by zero
  return range;
}

}  // namespace

RopeFrequencies ComputeRopeFrequencies(const RopeConfig& rope, int max_context) {
  RopeFrequencies result;
  result.factor = static_cast<float>(AttentionFactor(rope) * rope.attention_multiplier);
  const std::vector<double>& long_rope =
      max_context > rope.original_context ? rope.long_factor : rope.short_factor;
  YarnRange yarn{};
  if (rope.scaling == RopeScaling::kYarn && rope.dims > 0) yarn = FindYarnRange(rope);
  for (int i = 0; i < rope.dims / 2; ++i) {
    double inv_freq = 1 / Pow(rope.theta, 2.0 * i / rope.dims);
    if (!rope.frequency_factors.empty()) {
      inv_freq /= rope.frequency_factors[static_cast<size_t>(i)];
    }
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        inv_freq /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        inv_freq = ScaleLlama3(rope, inv_freq);
        break;
      case RopeScaling::kYarn: {
        const double ramp = std::clamp((i - yarn.low) / (yarn.high - yarn.low), 0.0, 1.0);
        inv_freq = inv_freq / rope.factor * ramp + inv_freq * (1 - ramp);
        break;
      }
      case RopeScaling::kLongRope:
        inv_freq /= long_rope[static_cast<size_t>(i)];
        break;
    }
    result.inv_freq.push_back(static_cast<float>(inv_freq));
  }
  return result;
}

}  // namespace nibble
