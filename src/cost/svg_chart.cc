#include "cost/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace nibble {
namespace {

constexpr double kTitleHeight = 30;

struct TextStyle {
  double size = 12;
  const char* anchor = "start";
  const char* weight = "normal";
};

std::string Text(double x, double y, const std::string& text, const TextStyle& style = {}) {
  return fmt::format(
      R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" font-weight="{}">{}</text>)"
      "\n",
      x, y, style.size, style.anchor, style.weight, EscapeHtml(text));
}

std::string Title(const std::string& title) {
  return Text(0, 16, title, {.size = 14, .weight = "bold"});
}

// The step of about five ticks up to `most`: 1, 2 or 5 times a power of ten.
double TickStep(double most) {
  const double raw = most / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// The frame of a line chart: where values lie on the page.
struct Frame {
  double left = 70, top = kTitleHeight + 8, width = 500, height = 220;
  double most_x = 1, most_y = 1;
  double X(double x) const { return left + width * x / most_x; }
  double Y(double y) const { return top + height * (1 - y / most_y); }
};

std::string Axes(const LineChart& chart, const Frame& frame) {
  std::string out;
  const double bottom = frame.top + frame.height;
  const double step_y = TickStep(frame.most_y), step_x = TickStep(frame.most_x);
  for (int i = 0; i * step_y <= frame.most_y * 1.0001; ++i) {
    const double y = frame.Y(i * step_y);
    out += fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#8884" />)"
                       "\n",
                       frame.left, y, frame.left + frame.width, y);
    out +=
        Text(frame.left - 6, y + 4, fmt::format("{:g}", i * step_y), {.size = 11, .anchor = "end"});
  }
  for (int i = 0; i * step_x <= frame.most_x * 1.0001; ++i) {
    out += Text(frame.X(i * step_x), bottom + 16, fmt::format("{:g}", i * step_x),
                {.size = 11, .anchor = "middle"});
  }
  out += Text(frame.left + frame.width / 2, bottom + 34, chart.x_name, {.anchor = "middle"});
  return out + Text(0, frame.top - 4, chart.y_name, {.size = 11});
}

}  // namespace

DrawnChart Draw(const BarChart& chart) {
  constexpr double kRow = 24, kLabel = 210, kBar = 400;
  double most = 0;
  for (const BarChart::Bar& bar : chart.bars) {
    double sum = 0;
    for (const BarChart::Part& part : bar.parts) sum += part.value;
    most = std::max(most, sum);
  }
  DrawnChart out{.svg = Title(chart.title), .height = kTitleHeight};
  for (const BarChart::Bar& bar : chart.bars) {
    double x = kLabel;
    out.svg += Text(0, out.height + 14, bar.label);
    for (const BarChart::Part& part : bar.parts) {
      const double width = most > 0 ? kBar * part.value / most : 0;
      out.svg +=
          fmt::format(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="16" fill="{}" />)"
                      "\n",
                      x, out.height + 2, width, part.colour);
      x += width;
    }
    out.svg += Text(x + 8, out.height + 14, bar.text);
    out.height += kRow;
  }
  return out;
}

DrawnChart Draw(const LineChart& chart) {
  Frame frame;
  for (const LineChart::Line& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      frame.most_x = std::max(frame.most_x, x);
      frame.most_y = std::max(frame.most_y, y);
    }
  }
  frame.most_y *= 1.05;
  DrawnChart out{.svg = Title(chart.title), .height = frame.top + frame.height + 44};
  out.svg += Axes(chart, frame);
  double legend = frame.top + 10;
  for (const LineChart::Line& line : chart.lines) {
    std::string points;
    for (const auto& [x, y] : line.points) {
      points += fmt::format("{:.1f},{:.1f} ", frame.X(x), frame.Y(y));
      if (!chart.marks) continue;
      out.svg += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}" />)"
                             "\n",
                             frame.X(x), frame.Y(y), line.colour);
    }
    out.svg += fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"{} />)"
                           "\n",
                           points, line.colour, line.dashed ? R"( stroke-dasharray="6 4")" : "");
    const double x = frame.left + frame.width + 14;
    out.svg += fmt::format(
        R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="3" />)"
        "\n",
        x, legend, x + 18, legend, line.colour);
    out.svg += Text(x + 24, legend + 4, line.name);
    legend += 20;
  }
  out.height = std::max(out.height, legend);
  return out;
}

std::string SvgDocument(const std::string& heading, const std::vector<DrawnChart>& charts) {
  constexpr double kMargin = 20, kGap = 24, kHeading = 36;
  std::string body = Text(kMargin, kMargin + 14, heading, {.size = 16, .weight = "bold"});
  double y = kMargin + kHeading;
  for (const DrawnChart& chart : charts) {
    body += fmt::format("<g transform=\"translate({},{:.1f})\">\n{}</g>\n", kMargin, y, chart.svg);
    y += chart.height + kGap;
  }
  const double width = kChartWidth + 2 * kMargin;
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1:.0f}" width="{0}" )"
      R"(height="{1:.0f}" font-family="system-ui, sans-serif" fill="#222" role="img">)"
      "\n<title>{2}</title>\n"
      R"(<rect width="100%" height="100%" fill="#fff" />)"
      "\n{3}</svg>\n",
      width, y, EscapeHtml(heading), body);
}

}  // namespace nibble
