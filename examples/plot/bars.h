#pragma once

#include <span>
#include <string>
#include <vector>

namespace nibble::examples {

struct Series {
  std::string name;
  std::vector<double> values;  // one per category; zero or less is drawn as nothing
};

struct BarChart {
  std::string title;
  std::string y_label;
  std::vector<std::string> categories;
  std::vector<Series> series;
};

// The chart as an SVG document, values on a logarithmic axis of whole decades.
std::string BarsSvg(const BarChart& chart);

}  // namespace nibble::examples
