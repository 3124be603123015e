#pragma once

#include <cstdint>
#include <span>

namespace nibble {

// Searches for the scales of a group of weights, after ggml's k-quants (ggml-quants.c): try several
// scales, round to codes, solve for the best scale in closed form, keep the least weighted error.
// Weights say what an error of each element costs; a later importance matrix replaces them.

inline constexpr float kGroupMaxEpsilon = 1e-15f;  // a group below it is all zero

// The element of largest magnitude, with its sign; the first of several; 0 of none.
float SignedMax(std::span<const float> x);

// Nearest integer, ties to even, for |value| < 2^22; anything for others.
int NearestInt(float value);

// Symmetric codes −limit … limit − 1, x ≈ scale × code. Maximises (Σ w·x·l)² / Σ w·l² over 19
// scales near −limit / (largest x). The caller rounds to codes with the scale as stored.
float FitSymmetric(std::span<const float> x, std::span<const float> weights, int limit);

// The same aim by coordinate descent: starts at −limit / (largest x) and moves single codes while
// that lowers the error, at most five rounds. Weights are x². At most 32 elements.
float FitSymmetricByDescent(std::span<const float> x, int limit);

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
// At most 32 elements.
AffineFit FitAffine(std::span<const float> x, std::span<const float> weights,
                    const AffineSearch& search);

}  // namespace nibble
