#pragma once

#include <string>
#include <vector>

namespace nibble {

inline constexpr const char* kWeightColour = "#3b72c4";
inline constexpr const char* kCacheColour = "#e0a12b";

struct BarChart {
  struct Part {
    double value = 0;
    std::string colour;
  };
  struct Bar {
    std::string label;
    std::vector<Part> parts;  // stacked from the left
    std::string text;         // behind the bar
  };
  std::string title;
  std::vector<Bar> bars = {};
};

struct LineChart {
  struct Line {
    std::string name;
    std::string colour;
    std::vector<std::pair<double, double>> points = {};  // rising in x
    bool dashed = false;
  };
  std::string title;
  std::string x_name;
  std::string y_name;
  std::vector<Line> lines = {};
  bool marks = false;  // a dot at each point
};

// A chart as an SVG group whose upper left corner is the origin, kChartWidth wide.
inline constexpr double kChartWidth = 760;
struct DrawnChart {
  std::string svg;
  double height = 0;
};
DrawnChart Draw(const BarChart& chart);
DrawnChart Draw(const LineChart& chart);

// Charts below one another in one SVG document with a heading.
std::string SvgDocument(const std::string& heading, const std::vector<DrawnChart>& charts);

}  // namespace nibble
