#include "advise/residuals.h"

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

constexpr double kLeastNoise = 1e-3;

// L x = b, in place.
void SolveLower(const std::vector<double>& lower, std::vector<double>& x) {
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) x[i] -= lower[i * n + j] * x[j];
    x[i] /= lower[i * n + i];
  }
}

// Lᵀ x = b, in place.
void SolveUpper(const std::vector<double>& lower, std::vector<double>& x) {
  const size_t n = x.size();
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) x[i] -= lower[j * n + i] * x[j];
    x[i] /= lower[i * n + i];
  }
}

}  // namespace

double Residuals::Covariance(GridPlace a, GridPlace b) const {
  double sum = prior_.common * prior_.common;
  if (a.weights == b.weights) sum += prior_.weights * prior_.weights;
  if (a.kv == b.kv) sum += prior_.kv * prior_.kv;
  if (a == b) sum += prior_.place * prior_.place;
  return sum;
}

void Residuals::Add(GridPlace at, double log_ratio, double error) {
  const double noise = std::max(error, kLeastNoise);
  places_.push_back(at);
  ratios_.push_back(log_ratio);
  noises_.push_back(noise * noise);
  Factor();
}

void Residuals::Factor() {
  const size_t n = places_.size();
  lower_.assign(n * n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = Covariance(places_[i], places_[j]) + (i == j ? noises_[i] : 0);
      for (size_t k = 0; k < j; ++k) sum -= lower_[i * n + k] * lower_[j * n + k];
      // The noise keeps the diagonal above its square but for rounding.
      lower_[i * n + j] =
          i == j ? std::sqrt(std::max(sum, noises_[i] / 2)) : sum / lower_[j * n + j];
    }
  }
  alpha_ = ratios_;
  SolveLower(lower_, alpha_);
  SolveUpper(lower_, alpha_);
}

Residuals::Posterior Residuals::At(GridPlace place) const {
  std::vector<double> shared;
  for (const GridPlace& other : places_) shared.push_back(Covariance(place, other));
  Posterior result;
  for (size_t i = 0; i < shared.size(); ++i) result.mean += shared[i] * alpha_[i];
  SolveLower(lower_, shared);
  double variance = Covariance(place, place);
  for (const double x : shared) variance -= x * x;
  result.error = std::sqrt(std::max(variance, 0.0));
  return result;
}

}  // namespace nibble
