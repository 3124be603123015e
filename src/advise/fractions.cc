#include "advise/fractions.h"

#include <algorithm>
#include <vector>

#include "base/statistics.h"

namespace nibble {
namespace {

constexpr double kPieceSeconds = 0.01;
// Neighbours on the machine take half of a limit or nothing; its own noise is a few percent.
constexpr double kSteady = 0.1;

}  // namespace

bool FractionPair::steady() const {
  return std::max(before, after) <= (1 + kSteady) * std::min(before, after);
}

Fraction Summarise(std::span<const FractionPair> pairs) {
  std::vector<double> steady;
  std::vector<double> all;
  for (const FractionPair& pair : pairs) {
    all.push_back(pair.fraction());
    if (pair.steady()) steady.push_back(pair.fraction());
  }
  Fraction fraction;
  fraction.unsteady = static_cast<int>(all.size() - steady.size());
  fraction.all_counted = fraction.unsteady > 0 && 3 * steady.size() < all.size();
  const std::vector<double>& values = fraction.all_counted ? all : steady;
  fraction.best = std::ranges::max(values);
  fraction.median = Median(values);
  return fraction;
}

LimitFractions MeasureFractions(ModelBench& bench, LimitLoops& loops, int alternations) {
  std::vector<FractionPair> bandwidth;
  std::vector<FractionPair> compute;
  LimitRates before = loops.Round();
  for (int steady = 0; steady < alternations && std::ssize(bandwidth) < 3 * alternations;) {
    const BenchWork piece = bench.RunPiece(kPieceSeconds);
    const LimitRates after = loops.Round();
    bandwidth.push_back({piece.bytes / piece.seconds, before.read, after.read});
    // Rates in pieces per second.
    compute.push_back(
        {1 / piece.seconds, 1 / before.SecondsFor(piece.macs), 1 / after.SecondsFor(piece.macs)});
    if (bandwidth.back().steady() && compute.back().steady()) ++steady;
    before = after;
  }
  return {.bandwidth = Summarise(bandwidth),
          .compute = Summarise(compute),
          .alternations = static_cast<int>(bandwidth.size())};
}

}  // namespace nibble
