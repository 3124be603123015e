#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace nibble {

// Searches for the scales of a group of weights, after ggml's k-quants (ggml-quants.c): try several
// scales, round to codes, solve for the best scale in closed form, keep the least weighted error.
// Weights say what an error of each element costs: its own size, or also an importance matrix.
// Where a search has a place for codes it leaves those that it ended with.

inline constexpr int kMaxGroup = 32;               // most weights of a group
inline constexpr float kGroupMaxEpsilon = 1e-15f;  // a group below it is all zero

// The element of largest magnitude, with its sign; the first of several; 0 of none.
float SignedMax(std::span<const float> x);

// Nearest integer, ties to even, for |value| < 2^22; anything for others.
inline int NearestInt(float value) {
  // Adding 1.5 · 2^23 leaves the integer, rounded by the addition, in the low 23 bits.
  const auto bits = std::bit_cast<int32_t>(value + 12582912.0f);
  return (bits & 0x007fffff) - 0x00400000;
}

// Symmetric codes −limit … limit − 1, x ≈ scale × code. Maximises (Σ w·x·l)² / Σ w·l² over 19
// scales near −limit / (largest x). codes: [x.size()], code + limit; all 0 of a group of zeros.
float FitSymmetric(std::span<const float> x, std::span<const float> weights, int limit,
                   uint8_t* codes = nullptr);

// The same aim by coordinate descent: starts at −limit / (largest x) and moves single codes while
// that lowers the error, at most five rounds. Weights are x². At most 32 elements.
// codes: as FitSymmetric's.
float FitSymmetricByDescent(std::span<const float> x, int limit, uint8_t* codes = nullptr);

struct AffineFit {
  float scale = 0.0f;
  float min = 0.0f;  // not negative; x ≈ scale × code − min
};
struct AffineSearch {
  int largest_code;
  float
      first;  // tries (first + i × step + largest_code) / (max x − min of the best), i = 0 … steps
  float step;
  int steps;
  bool absolute_error;  // minimise Σ w·|error| instead of Σ w·error²
};
// At most 32 elements. codes: [x.size()].
AffineFit FitAffine(std::span<const float> x, std::span<const float> weights,
                    const AffineSearch& search, uint8_t* codes = nullptr);

// Levels 0 … top of values that are not negative, x ≈ scale × level: the scale of the nine near
// (largest x) / top with the least Σ w·error², then single levels moved while that lowers the
// error, at most five rounds. levels: [x.size()].
float FitLevels(std::span<const float> x, std::span<const float> weights, int top, uint8_t* levels);

// What an error of each element costs where its column's importance is known:
// importance · √(spread + x²). All of one length.
void WeighByImportance(std::span<const float> x, std::span<const float> importance, float spread,
                       std::span<float> weights);
// Σ x² in order.
float SumOfSquares(std::span<const float> x);

}  // namespace nibble
