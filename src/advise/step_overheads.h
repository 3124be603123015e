#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost/calibration.h"

namespace nibble {

class MeterBench;

// Solves min |a x − b| with x ≥ 0 by coordinate descent. a: rows of x.size() factors.
std::vector<double> LeastSquaresPositive(std::span<const std::vector<double>> a,
                                         std::span<const double> b);

// What goes with rows and numbers, measured by itself: norms, gates and quantising in rows of one
// tile, rotations, writing of pages, the largest of a row of logits.
Result<StepOverheads> MeasureRowCosts(MeterBench& bench);

// Runs decode steps of small models and fits what a step and a layer cost beside that to what all
// other terms of `calibration` leave over; the rest is as in calibration.overheads. Errors:
// kCancelled when `progress` said so.
Result<StepOverheads> FitOverheads(MeterBench& bench, const Calibration& calibration, int rounds,
                                   const std::function<bool(double part)>& progress);

}  // namespace nibble
