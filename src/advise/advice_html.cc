#include <fmt/format.h>

#include <algorithm>

#include "advise/advice_report.h"
#include "base/text.h"
#include "cost/svg_chart.h"

namespace nibble {
namespace {

constexpr std::string_view kPageStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}"
    "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}.wide{overflow-x:auto}"
    ".predicted{color:#8a5a00;font-style:italic}.unknown{color:#888}tr.front{background:#eef4fc}"
    "tr.choice{background:#dcebd5;font-weight:600}svg{max-width:100%;height:auto}"
    "pre{background:#f5f5f5;padding:.6rem;overflow-x:auto}";

constexpr const char* kColours[] = {"#3b72c4", "#e0a12b", "#4f9a5b", "#b8483f",
                                    "#7b5aa6", "#2d9c9c", "#8c8c8c"};

std::string FigureCell(const Figure& figure, const std::string& text) {
  const char* source = FigureSourceName(figure.source);
  return fmt::format("<td class=\"{}\" title=\"{}\">{}</td>", source, source,
                     figure.known() ? EscapeHtml(text) : "–");
}

std::string RowHtml(const AdviceRow& row, bool chosen) {
  std::string kv = row.kv;
  if (!row.skip_layers.empty()) {
    kv += fmt::format(", {} layers f16", row.skip_layers.size());
  }
  return fmt::format("<tr class=\"{}\">", chosen       ? "choice"
                                          : row.pareto ? "front"
                                                       : "") +
         fmt::format("<td>{}</td><td>{}</td><td>{}</td>", EscapeHtml(row.weights), EscapeHtml(kv),
                     row.batch) +
         FigureCell(row.tpot_s, fmt::format("{:.4g} ± {:.2g}", row.tok_s(), row.tok_s_error())) +
         FigureCell(row.ttft_s, fmt::format("{:.4g} s", row.ttft_s.value)) +
         FigureCell(row.tpot_s, fmt::format("{:.4g} ms", 1e3 * row.tpot_s.value)) +
         FigureCell(row.memory, FormatBytes(row.memory.value)) +
         FigureCell(row.kld, fmt::format("{:.5f} ± {:.5f}", row.kld.value, row.kld.error)) +
         FigureCell(row.ppl, fmt::format("{:.4g}", row.ppl.value)) + "</tr>\n";
}

// The rows in front by rising divergence, as points of a line.
template <class Y>
LineChart FrontChart(const AdviceReport& report, const char* title, const char* y_name, Y y) {
  std::vector<const AdviceRow*> front;
  for (const AdviceRow& row : report.rows) {
    if (row.pareto) front.push_back(&row);
  }
  std::ranges::sort(front, {}, [](const AdviceRow* row) { return row->kld.value; });
  LineChart chart{.title = title, .x_name = "divergence, nats a token", .y_name = y_name};
  chart.marks = true;
  LineChart::Line measured{.name = "measured", .colour = kWeightColour};
  LineChart::Line all{.name = "all in front", .colour = kCacheColour, .dashed = true};
  for (const AdviceRow* row : front) {
    all.points.emplace_back(row->kld.value, y(*row));
    if (row->kld.measured()) measured.points.emplace_back(row->kld.value, y(*row));
  }
  if (!all.points.empty()) chart.lines.push_back(std::move(all));
  if (!measured.points.empty()) chart.lines.push_back(std::move(measured));
  return chart;
}

BarChart SpeedBars(const AdviceReport& report) {
  BarChart chart{.title = "Tokens a second, rows in front (amber: predicted)"};
  for (const AdviceRow& row : report.rows) {
    if (!row.pareto) continue;
    chart.bars.push_back(
        {.label = row.weights + " / " + row.kv,
         .parts = {{.value = row.tok_s(),
                    .colour = row.tpot_s.measured() ? kWeightColour : kCacheColour}},
         .text = fmt::format("{:.4g}, {:.5f} nats", row.tok_s(), row.kld.value)});
  }
  std::ranges::stable_sort(chart.bars, std::greater(),
                           [](const BarChart::Bar& bar) { return bar.parts[0].value; });
  return chart;
}

LineChart DepthChart(const AdviceReport& report) {
  LineChart chart{.title = "Divergence by depth of the context and format of the cache",
                  .x_name = "position",
                  .y_name = "nats a token"};
  chart.marks = true;
  size_t colour = 0;
  for (const KvDepthReport& kv : report.kv_depths) {
    LineChart::Line line{.name = kv.kv, .colour = kColours[colour++ % std::size(kColours)]};
    for (const KvDepthReport::Depth& depth : kv.depths) {
      line.points.emplace_back((depth.from + depth.to) / 2.0, depth.divergence.mean);
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

LineChart LayerChart(const KvLayerReport& kv) {
  LineChart chart{.title = "What each layer's " + kv.kv + " cache costs alone",
                  .x_name = "layer",
                  .y_name = "nats a token"};
  chart.marks = true;
  LineChart::Line keys{.name = "keys", .colour = kWeightColour};
  LineChart::Line values{.name = "values", .colour = kCacheColour};
  for (const KvLayerCost& cost : kv.costs.layers) {
    keys.points.emplace_back(cost.layer, cost.keys.mean);
    values.points.emplace_back(cost.layer, cost.values.mean);
  }
  chart.lines = {std::move(keys), std::move(values)};
  return chart;
}

std::string Charts(const AdviceReport& report) {
  std::vector<DrawnChart> charts;
  const bool any = std::ranges::any_of(report.rows, &AdviceRow::pareto);
  if (any) {
    charts.push_back(Draw(SpeedBars(report)));
    charts.push_back(Draw(FrontChart(report, "Speed against divergence", "tokens a second",
                                     [](const AdviceRow& row) { return row.tok_s(); })));
    charts.push_back(Draw(FrontChart(report, "Memory against divergence", "MB",
                                     [](const AdviceRow& row) { return row.memory.value / 1e6; })));
  }
  if (!report.kv_depths.empty()) charts.push_back(Draw(DepthChart(report)));
  for (const KvLayerReport& kv : report.kv_layers) charts.push_back(Draw(LayerChart(kv)));
  return charts.empty() ? "" : SvgDocument("", charts);
}

std::string Notes(const AdviceReport& report) {
  if (report.notes.empty()) return "";
  std::string out = "<h2>Notes</h2>\n<ul>\n";
  for (const std::string& note : report.notes) out += "<li>" + EscapeHtml(note) + "</li>\n";
  return out + "</ul>\n";
}

}  // namespace

std::string AdviceHtml(const AdviceReport& report) {
  const std::string title = EscapeHtml(AdviceTitle(report));
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>nibble advise: {0}</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p>{2}</p>\n<p>{3}</p>\n",
      title, kPageStyle, EscapeHtml(LimitsText(report.limits)), EscapeHtml(report.explanation));
  if (!report.commands.empty()) {
    out += "<pre>";
    for (const std::string& command : report.commands) out += EscapeHtml(command) + "\n";
    out += "</pre>\n";
  }
  out += fmt::format(
      "<p>Quality on {}, windows of {} tokens. Italic figures are predicted, the others measured; "
      "blue rows are in front, the green one is the one to take.</p>\n<div class=\"wide\">\n<table>"
      "\n<tr>",
      EscapeHtml(report.text), report.window);
  for (const char* head :
       {"weights", "KV", "batch", "tok/s", "TTFT", "TPOT", "memory", "divergence", "perplexity"}) {
    out += fmt::format("<th>{}</th>", head);
  }
  out += "</tr>\n";
  for (size_t i = 0; i < report.rows.size(); ++i) {
    out += RowHtml(report.rows[i], report.choice == i);
  }
  out += "</table>\n</div>\n" + Charts(report) + Notes(report);
  return out + "</body>\n</html>\n";
}

}  // namespace nibble
