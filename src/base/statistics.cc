#include "base/statistics.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {

double Median(std::vector<double> values) {
  NIBBLE_CHECK(!values.empty());
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace nibble
