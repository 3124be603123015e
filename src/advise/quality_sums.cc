#include "advise/quality_sums.h"

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

MeanError MeanOfSums(int64_t count, double sum, double squares) {
  if (count < 1) return {};
  const auto n = static_cast<double>(count);
  MeanError result = {.mean = sum / n, .se = 0};
  if (count < 2) return result;
  const double variance = std::max(squares / n - result.mean * result.mean, 0.0);
  result.se = std::sqrt(variance / (n - 1));
  return result;
}

// The parts begin where those of DivergenceResult::depths do.
int PartOf(int position, int span) {
  int part = QualitySums::kDepths - 1;
  while (part > 0 && position < span * part / QualitySums::kDepths) --part;
  return part;
}

}  // namespace

QualitySums& QualitySums::operator+=(const QualitySums& other) {
  windows += other.windows;
  tokens += other.tokens;
  divergence += other.divergence;
  divergence_squared += other.divergence_squared;
  loss += other.loss;
  loss_squared += other.loss_squared;
  base_loss += other.base_loss;
  same_top += other.same_top;
  for (size_t i = 0; i < depths.size() && i < other.depths.size(); ++i) {
    depths[i].tokens += other.depths[i].tokens;
    depths[i].divergence += other.depths[i].divergence;
    depths[i].divergence_squared += other.depths[i].divergence_squared;
  }
  return *this;
}

MeanError QualitySums::Divergence() const {
  return MeanOfSums(tokens, divergence, divergence_squared);
}

MeanError QualitySums::DivergenceAt(int depth) const {
  const Depth& at = depths[static_cast<size_t>(depth)];
  return MeanOfSums(at.tokens, at.divergence, at.divergence_squared);
}

MeanError QualitySums::Perplexity() const {
  const MeanError mean = MeanOfSums(tokens, loss, loss_squared);
  const double value = std::exp(mean.mean);
  return {.mean = value, .se = value * mean.se};
}

double QualitySums::BasePerplexity() const {
  return std::exp(base_loss / static_cast<double>(std::max<int64_t>(tokens, 1)));
}

MeanError QualitySums::SameTop() const {
  const auto n = static_cast<double>(std::max<int64_t>(tokens, 1));
  const double top = static_cast<double>(same_top) / n;
  return {.mean = top, .se = n > 1 ? std::sqrt(top * (1 - top) / (n - 1)) : 0};
}

QualitySums SumsOf(const DivergenceSamples& samples, int from, int to) {
  QualitySums sums;
  sums.windows = samples.chunks;
  sums.tokens = samples.size();
  sums.same_top = samples.same_top;
  const int span = std::max(to - from, 1);
  for (size_t i = 0; i < samples.divergence.size(); ++i) {
    const double divergence = samples.divergence[i];
    sums.divergence += divergence;
    sums.divergence_squared += divergence * divergence;
    sums.loss += samples.candidate_loss[i];
    sums.loss_squared += samples.candidate_loss[i] * samples.candidate_loss[i];
    sums.base_loss += samples.base_loss[i];
    QualitySums::Depth& depth =
        sums.depths[static_cast<size_t>(PartOf(samples.position[i] - from, span))];
    depth.tokens += 1;
    depth.divergence += divergence;
    depth.divergence_squared += divergence * divergence;
  }
  return sums;
}

}  // namespace nibble
