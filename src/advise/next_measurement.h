#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "advise/advice.h"

namespace nibble {

enum class Measuring : uint8_t { kQuality, kSpeed };

// Something to do next: one more window of text, or a step and a prompt timed.
struct GridMeasurement {
  GridPlace place;
  Measuring what = Measuring::kQuality;
  double seconds = 0;  // that it is expected to take
  bool operator==(const GridMeasurement&) const = default;
};

struct MeasurementInput {
  const AdviceGrid& grid;
  const std::vector<AdviceRow>& rows;  // EstimateRows of it
  const AdviceLimits& limits;
  // Expected seconds of a measurement at a place, making and loading the model included.
  std::function<double(GridPlace, Measuring)> cost;
  int windows = 1;  // of the text
  double seconds_left = 0;
};

// The grid that is measured is chosen by the predictions' own errors: among the rows that could
// still be the one to take (two deviations better than they look), the figure whose error is
// largest for each second that measuring it costs, ten times so for the one that looks best; then
// those of all other rows in front, then of
// the rest; then more text where the divergence's error is above a twentieth of it or leaves open
// whether a row is within the limits. Weights are measured with an f16 cache before any other,
// because predictions of all caches rest on
// it; and one of them before any speed. None: nothing that is left fits the time, or all is
// measured.
std::optional<GridMeasurement> NextMeasurement(const MeasurementInput& input);

}  // namespace nibble
