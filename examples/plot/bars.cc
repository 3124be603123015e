#include "examples/plot/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nibble::examples {
namespace {

constexpr const char* kColours[] = {"#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3"};
constexpr double kLeft = 70, kTop = 40, kPlotWidth = 640, kPlotHeight = 260;

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     Escaped(text));
}

}  // namespace

std::string BarsSvg(const BarChart& chart) {
  double least = 1e300, most = 0;
  for (const Series& series : chart.series) {
    for (const double value : series.values) {
      if (value > 0) least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  const double low = std::floor(std::log10(std::min(least, std::max(most, 1e-300))));
  const double high = std::max(std::ceil(std::log10(std::max(most, 1e-300))), low + 1);
  const auto y_of = [&](double value) {
    return kTop + kPlotHeight * (high - std::log10(value)) / (high - low);
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      kLeft + kPlotWidth + 20, kTop + kPlotHeight + 60);
  out += Text(kLeft, 20, "start", chart.title + " — " + chart.y_label);
  for (double decade = low; decade <= high; ++decade) {
    const double y = y_of(std::pow(10, decade));
    out += fmt::format("<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/>\n", kLeft, y, kPlotWidth);
    out += Text(kLeft - 6, y + 4, "end", fmt::format("{:g}", std::pow(10, decade)));
  }
  const double slot = kPlotWidth / static_cast<double>(chart.categories.size());
  const double bar = slot * 0.8 / static_cast<double>(chart.series.size());
  for (size_t c = 0; c < chart.categories.size(); ++c) {
    const double x = kLeft + slot * static_cast<double>(c);
    out += Text(x + slot / 2, kTop + kPlotHeight + 18, "middle", chart.categories[c]);
    for (size_t s = 0; s < chart.series.size(); ++s) {
      const double value = chart.series[s].values[c];
      if (!(value > 0)) continue;
      const double y = y_of(value);
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
          "fill=\"{}\"><title>{:g}</title></rect>\n",
          x + slot * 0.1 + bar * static_cast<double>(s), y, bar, kTop + kPlotHeight - y,
          kColours[s % std::size(kColours)], value);
    }
  }
  for (size_t s = 0; s < chart.series.size(); ++s) {
    const double x = kLeft + 160 * static_cast<double>(s);
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", x,
                       kTop + kPlotHeight + 34, kColours[s % std::size(kColours)]);
    out += Text(x + 14, kTop + kPlotHeight + 43, "start", chart.series[s].name);
  }
  return out + "</svg>\n";
}

}  // namespace nibble::examples
