#pragma once

#include <vector>

namespace nibble {

// The middle value; of an even number of them the mean of the two. At least one value.
double Median(std::vector<double> values);

}  // namespace nibble
