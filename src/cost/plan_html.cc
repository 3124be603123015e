#include "cost/plan_html.h"

#include "base/text.h"
#include "cost/plan_text.h"

namespace nibble {
namespace {

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}"
    "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}.wide{overflow-x:auto}"
    ".no{color:#b8483f}svg{max-width:100%;height:auto}";

std::string Cell(const std::string& text, const char* attributes = "") {
  return fmt::format("<td{}>{}</td>", attributes, EscapeHtml(text));
}

std::string RowHtml(const PlanRow& row, bool priced) {
  const bool fits = row.memory.fits();
  std::string out = "<tr>" + Cell(row.weights) + Cell(row.kv) +
                    Cell(std::to_string(row.point.batch)) +
                    Cell(std::to_string(row.point.context)) + Cell(SumBytes(row.cost.weights)) +
                    Cell(SumBytes(row.cost.kv)) + Cell(StepText(row.cost.step)) +
                    Cell(RateText(row.rate())) + Cell(fmt::format("{:.2f}×", row.speedup())) +
                    Cell(BoundText(row)) + Cell(MemoryText(row), fits ? "" : " class=\"no\"") +
                    Cell(std::to_string(row.max_batch)) + Cell(std::to_string(row.max_context));
  if (priced) out += Cell(fmt::format("{:.4g}", *row.cost_per_million_tokens));
  return out + "</tr>\n";
}

std::string List(const std::vector<std::string>& entries) {
  std::string out = "<ul>\n";
  for (const std::string& entry : entries) out += "<li>" + EscapeHtml(entry) + "</li>\n";
  return out + "</ul>\n";
}

}  // namespace

std::string PlanHtml(const Plan& plan) {
  const PlanRequest& request = plan.request;
  const bool priced = request.price_per_hour.has_value();
  const std::string title = EscapeHtml(PlanTitle(request));
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>nibble plan: {0}</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p>{2}</p>\n<div class=\"wide\">\n",
      title, kStyle, EscapeHtml(CountingText(request)));
  out += "<table>\n<tr>";
  for (const char* head : {"weights", "KV", "batch", "context", "weight bytes", "KV bytes", "step",
                           "tok/s", "speedup", "bound", "memory", "max batch", "max context"}) {
    out += fmt::format("<th>{}</th>", head);
  }
  out += priced ? "<th>per 1M tokens</th></tr>\n" : "</tr>\n";
  for (const PlanRow& row : plan.rows) out += RowHtml(row, priced);
  out += "</table>\n</div>\n<p>" + EscapeHtml(CrossoverText(plan.rows.front())) + "</p>\n";
  out += PlanSvg(plan);
  out += "<h2>Not modelled</h2>\n" + List(LeftOut(request));
  std::vector<std::string> sources;
  for (const DeviceShape::Source& source : request.device.sources) {
    sources.push_back(source.field + ": " + source.text);
  }
  out += "<h2>Where the device's numbers are from</h2>\n" + List(sources);
  return out + "</body>\n</html>\n";
}

}  // namespace nibble
