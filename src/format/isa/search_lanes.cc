// The searches of format/scale_search.cc with eight groups in the lanes of a register.
#include "format/isa/lanes8.h"
#include "format/isa/search_table.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int kMaxGroup = 32;
using Group8 = F32x8[kMaxGroup];

// [8][size] as [size] of eight.
void Gather(const float* src, int size, Group8& to) {
  for (int i = 0; i < size; ++i) {
    for (int lane = 0; lane < kSearchLanes; ++lane) {
      to[i][lane] = src[lane * size + i];
    }
  }
}

// NearestInt of scale_search.h, clamped.
F32x8 ClampedCode(F32x8 value, int low, int high) {
  const auto bits = __builtin_bit_cast(I32x8, value + Splat8(12582912.0F));
  I32x8 code = (bits & Splat8(0x007fffff)) - Splat8(0x00400000);
  code = Select8(code < Splat8(low), Splat8(low), code);
  code = Select8(Splat8(high) < code, Splat8(high), code);
  return ToFloat8(code);
}

F32x8 SignedMax8(const Group8& x, int size) {
  F32x8 largest = Splat8(0.0F);
  F32x8 result = Splat8(0.0F);
  for (int i = 0; i < size; ++i) {
    const F32x8 value = x[i];
    const I32x8 above = Abs8(value) > largest;
    largest = Select8(above, Abs8(value), largest);
    result = Select8(above, value, result);
  }
  return result;
}

class AffineLanes {
 public:
  AffineLanes(const Group8& x, const Group8& w, int size, const AffineSearch& search)
      : x_(x), w_(w), size_(static_cast<size_t>(size)), search_(search) {
    FindRange();
  }

  void Search() {
    const F32x8 largest = Splat8(static_cast<float>(search_.largest_code));
    scale_ = Splat8(1.0F) / (largest / (max_ - min_));
    Round(largest / (max_ - min_));
    best_ = ErrorOf(scale_, min_);
    for (size_t i = 0; i < size_; ++i) kept_[i] = codes_[i];
    for (int i = 0; i <= search_.steps; ++i) {
      const float first = search_.first + search_.step * static_cast<float>(i) +
                          static_cast<float>(search_.largest_code);
      Try(Splat8(first));
    }
  }

  // A group whose values are one has no scale.
  void Store(uint8_t* codes, AffineFit* fits) const {
    for (int lane = 0; lane < kSearchLanes; ++lane) {
      const bool flat = !(max_[lane] > first_min_[lane]);
      fits[lane] = {.scale = flat ? 0.0F : scale_[lane],
                    .min = flat ? -first_min_[lane] : -min_[lane]};
      for (size_t i = 0; i < size_; ++i) {
        *codes++ = flat ? uint8_t{0} : static_cast<uint8_t>(kept_[i][lane]);
      }
    }
  }

 private:
  void FindRange() {
    min_ = max_ = x_[0];
    sum_w_ = w_[0];
    sum_x_ = w_[0] * x_[0];
    for (size_t i = 1; i < size_; ++i) {
      min_ = Select8(x_[i] < min_, x_[i], min_);
      max_ = Select8(max_ < x_[i], x_[i], max_);
      sum_w_ += w_[i];
      sum_x_ += w_[i] * x_[i];
    }
    min_ = Select8(Splat8(0.0F) < min_, Splat8(0.0F), min_);
    first_min_ = min_;
  }

  void Round(F32x8 inverse) {
    sum_l_ = sum_l2_ = sum_xl_ = Splat8(0.0F);
    for (size_t i = 0; i < size_; ++i) {
      const F32x8 l = ClampedCode(inverse * (x_[i] - min_), 0, search_.largest_code);
      codes_[i] = l;
      sum_l_ += w_[i] * l;
      sum_l2_ += w_[i] * l * l;
      sum_xl_ += w_[i] * l * x_[i];
    }
  }

  F32x8 ErrorOf(F32x8 scale, F32x8 min) const {
    F32x8 error = Splat8(0.0F);
    for (size_t i = 0; i < size_; ++i) {
      const F32x8 difference = scale * codes_[i] + min - x_[i];
      error += w_[i] * (search_.absolute_error ? Abs8(difference) : difference * difference);
    }
    return error;
  }

  void Try(F32x8 steps) {
    Round(steps / (max_ - min_));
    const F32x8 determinant = sum_w_ * sum_l2_ - sum_l_ * sum_l_;
    F32x8 scale = (sum_w_ * sum_xl_ - sum_x_ * sum_l_) / determinant;
    F32x8 min = (sum_l2_ * sum_x_ - sum_l_ * sum_xl_) / determinant;
    const I32x8 above = min > Splat8(0.0F);
    min = Select8(above, Splat8(0.0F), min);
    scale = Select8(above, sum_xl_ / sum_l2_, scale);
    const F32x8 error = ErrorOf(scale, min);
    const I32x8 better = (determinant > Splat8(0.0F)) & (error < best_);
    if (!Any8(better)) return;
    best_ = Select8(better, error, best_);
    scale_ = Select8(better, scale, scale_);
    min_ = Select8(better, min, min_);
    for (size_t i = 0; i < size_; ++i) kept_[i] = Select8(better, codes_[i], kept_[i]);
  }

  const Group8& x_;
  const Group8& w_;
  size_t size_;
  const AffineSearch& search_;
  F32x8 min_;  // of the best so far
  F32x8 max_;
  F32x8 first_min_;
  F32x8 sum_w_;
  F32x8 sum_x_;
  F32x8 sum_l_;
  F32x8 sum_l2_;
  F32x8 sum_xl_;
  F32x8 scale_;
  F32x8 best_;
  Group8 codes_;
  Group8 kept_;
};

// The best scale among tries that are scored by (Σ w·x·q)² / Σ w·q².
struct ScaleChoice {
  F32x8 scale = {};
  F32x8 best = {};
  F32x8 inverse = {};

  void Take(F32x8 candidate, F32x8 sum_xq, F32x8 sum_q2, bool first) {
    I32x8 better = sum_q2 > Splat8(0.0F);
    if (!first) better &= sum_xq * sum_xq > best * sum_q2;
    scale = Select8(better, sum_xq / sum_q2, scale);
    best = Select8(better, sum_xq / sum_q2 * sum_xq, best);
    inverse = Select8(better, candidate, inverse);
  }
};

// IQ4's table in steps: between two neighbours the middle, and how far they are apart.
struct Iq4Steps {
  F32x8 middle[15];
  F32x8 step[15];
  F32x8 lowest;

  explicit Iq4Steps(const int8_t values[16]) : lowest(Splat8(static_cast<float>(values[0]))) {
    for (int k = 0; k < 15; ++k) {
      middle[k] = Splat8(0.5F * static_cast<float>(values[k] + values[k + 1]));
      step[k] = Splat8(static_cast<float>(values[k + 1] - values[k]));
    }
  }
  // The value nearest to each, of two equally near ones the upper. Near the middle of two values
  // the differences to both are exact, so that comparing with the middle decides alike.
  F32x8 Nearest(F32x8 x) const {
    F32x8 value = lowest;
    for (int k = 0; k < 15; ++k) {
      value += Select8(x >= middle[k], step[k], Splat8(0.0F));
    }
    return value;
  }
};

void FitAffine8(const float* x, const float* weights, int size, const AffineSearch& search,
                uint8_t* codes, AffineFit* fits) {
  Group8 values;
  Group8 costs;
  Gather(x, size, values);
  Gather(weights, size, costs);
  AffineLanes lanes(values, costs, size, search);
  lanes.Search();
  lanes.Store(codes, fits);
}

void FitSymmetric8(const float* x, const float* weights, int size, int limit, uint8_t* codes,
                   float* scales) {
  Group8 values;
  Group8 costs;
  Gather(x, size, values);
  Gather(weights, size, costs);
  const F32x8 largest = SignedMax8(values, size);
  ScaleChoice choice = {.inverse = Splat8(static_cast<float>(-limit)) / largest};
  const auto attempt = [&](F32x8 inverse, bool first) {
    F32x8 sum_xl = Splat8(0.0F);
    F32x8 sum_l2 = Splat8(0.0F);
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
      const F32x8 l = ClampedCode(inverse * values[i], -limit, limit - 1);
      sum_xl += costs[i] * values[i] * l;
      sum_l2 += costs[i] * l * l;
    }
    choice.Take(inverse, sum_xl, sum_l2, first);
  };
  attempt(choice.inverse, true);
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    attempt(Splat8(-(static_cast<float>(limit) + 0.1F * static_cast<float>(step))) / largest,
            false);
  }
  const I32x8 zero = Abs8(largest) < Splat8(kGroupMaxEpsilon);
  for (int i = 0; i < size; ++i) {
    const F32x8 l = ClampedCode(choice.inverse * values[i], -limit, limit - 1);
    for (int lane = 0; lane < kSearchLanes; ++lane) {
      codes[lane * size + i] =
          zero[lane] != 0 ? uint8_t{0} : static_cast<uint8_t>(static_cast<int>(l[lane]) + limit);
    }
  }
  for (int lane = 0; lane < kSearchLanes; ++lane) {
    scales[lane] = zero[lane] != 0 ? 0.0F : choice.scale[lane];
  }
}

void FitIq4Scales8(const float* x, const float* weights, const int8_t values_of_codes[16],
                   float* scales) {
  constexpr int kTries = 7;
  Group8 values;
  Group8 costs;
  Gather(x, kMaxGroup, values);
  Gather(weights, kMaxGroup, costs);
  const F32x8 largest = SignedMax8(values, kMaxGroup);
  const auto lowest = static_cast<float>(values_of_codes[0]);
  const Iq4Steps steps(values_of_codes);
  ScaleChoice choice;
  const auto attempt = [&](F32x8 inverse, bool first) {
    F32x8 sum_qx = Splat8(0.0F);
    F32x8 sum_q2 = Splat8(0.0F);
    for (size_t i = 0; i < kMaxGroup; ++i) {
      const F32x8 q = steps.Nearest(inverse * values[i]);
      sum_qx += costs[i] * q * values[i];
      sum_q2 += costs[i] * q * q;
    }
    choice.Take(inverse, sum_qx, sum_q2, first);
  };
  attempt(Splat8(1.0F) / (-largest / Splat8(lowest)), true);
  for (int step = -kTries; step <= kTries; ++step) {
    attempt(Splat8(static_cast<float>(step) + lowest) / largest, false);
  }
  for (int lane = 0; lane < kSearchLanes; ++lane) {
    const bool zero = Abs8(largest)[lane] < kGroupMaxEpsilon;
    scales[lane] = zero ? 0.0F : choice.scale[lane];
  }
}

}  // namespace

const ScaleSearches kScaleSearches = {FitAffine8, FitSymmetric8, FitIq4Scales8};

}  // namespace nibble::NIBBLE_ISA_NS
