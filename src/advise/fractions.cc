#include "advise/fractions.h"

#include <algorithm>
#include <vector>

namespace nibble {
namespace {

constexpr double kPieceSeconds = 0.01;

LimitRates Mean(const LimitRates& a, const LimitRates& b) {
  return {.read = (a.read + b.read) / 2,
          .macs = {.int4 = (a.macs.int4 + b.macs.int4) / 2,
                   .int8 = (a.macs.int8 + b.macs.int8) / 2,
                   .f32 = (a.macs.f32 + b.macs.f32) / 2}};
}

Fraction Summarise(std::vector<double> values) {
  std::ranges::sort(values);
  return {.median = values[values.size() / 2], .best = values.back()};
}

}  // namespace

LimitFractions MeasureFractions(ModelBench& bench, LimitLoops& loops, int alternations) {
  std::vector<double> bandwidth;
  std::vector<double> compute;
  LimitRates before = loops.Round();
  for (int i = 0; i < alternations; ++i) {
    const BenchWork piece = bench.RunPiece(kPieceSeconds);
    const LimitRates after = loops.Round();
    const LimitRates limit = Mean(before, after);
    bandwidth.push_back(piece.bytes / piece.seconds / limit.read);
    compute.push_back(limit.SecondsFor(piece.macs) / piece.seconds);
    before = after;
  }
  return {.bandwidth = Summarise(std::move(bandwidth)),
          .compute = Summarise(std::move(compute)),
          .alternations = alternations};
}

}  // namespace nibble
