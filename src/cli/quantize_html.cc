#include "cli/quantize_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace nibble::cli {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>
:root{color-scheme:light dark;--line:#8884;--bar:#3b7dd8}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}
.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{width:30%;min-width:6rem}.bar i{display:block;height:.7rem;background:var(--bar);border-radius:2px}
.big{display:flex;flex-wrap:wrap;gap:1rem}.big div{flex:1 1 9rem;border:1px solid var(--line);
border-radius:8px;padding:.6rem .8rem}.big b{display:block;font-size:1.25rem}
</style>
)";

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

void Figure(std::string& out, std::string_view value, std::string_view what) {
  out += fmt::format("<div><b>{}</b>{}</div>\n", EscapeHtml(value), EscapeHtml(what));
}

void Row(std::string& out, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", EscapeHtml(name), EscapeHtml(value));
}

void Figures(std::string& out, const Card& card) {
  out += "<div class=\"big\">\n";
  Figure(out, fmt::format("{:.3f}", card.bits_per_weight), "bits a weight");
  Figure(out, Bytes(card.bytes), fmt::format("from {}", Bytes(card.source_bytes)));
  if (card.quality) {
    const CardQuality& q = *card.quality;
    Figure(out, fmt::format("{:.5f} ± {:.5f}", q.kld, q.kld_se), "divergence, nats a token");
    Figure(out, fmt::format("{:.4f} ± {:.4f}", q.ppl, q.ppl_se),
           fmt::format("perplexity, source {:.4f}", q.ppl_source));
    Figure(out, fmt::format("{:.2f}% ± {:.2f}%", 100 * q.top1, 100 * q.top1_se), "same top token");
  }
  if (card.speed) Figure(out, fmt::format("{:.4g} tokens/s", card.speed->decode), "answering");
  out += "</div>\n";
}

void RecipeTable(std::string& out, const Card& card) {
  out += "<h2>Recipe</h2>\n<table>\n";
  Row(out, "to", card.to);
  Row(out, "method", card.parameters);
  for (const std::string& rule : card.rules) Row(out, "tensor type", rule);
  Row(out, "budget", card.budget);
  if (card.importance) {
    Row(out, "importance",
        fmt::format("{} {}, sha256 {}, {} tokens", card.importance->kind, card.importance->name,
                    card.importance->sha256, card.importance->tokens));
  }
  if (card.calibration) {
    const CardCalibration& c = *card.calibration;
    Row(out, "calibration",
        fmt::format("{}, sha256 {}, {} sequences of {} tokens{}", c.name, c.sha256, c.sequences,
                    c.length, c.seed ? fmt::format(", seed {}", *c.seed) : ""));
  }
  Row(out, "source",
      fmt::format("{}, {}, sha256 {}", card.source_name, Bytes(card.source_bytes),
                  card.source_sha256));
  if (card.quality) {
    const CardQuality& q = *card.quality;
    Row(out, "measured on",
        fmt::format("{}, sha256 {}, {} predictions, windows of {}, --act {}", q.text, q.text_sha256,
                    q.tokens, q.context, q.act));
    Row(out, "verdict", q.verdict);
  } else {
    Row(out, "quality", "not measured");
  }
  if (card.speed) Row(out, "prompt", fmt::format("{:.4g} tokens/s", card.speed->prefill));
  Row(out, "machine", card.machine);
  Row(out, "made in",
      fmt::format("{:.1f} s ({:.1f} s of processors), at most {} resident", card.seconds,
                  card.cpu_seconds, Bytes(card.peak_resident_bytes)));
  for (const std::string& note : card.notes) Row(out, "note", note);
  Row(out, "by", card.tool);
  out += "</table>\n";
}

void TensorTable(std::string& out, const std::vector<TensorReport>& tensors) {
  double worst = 0;
  for (const TensorReport& tensor : tensors) worst = std::max(worst, tensor.loss.RelativeError());
  out +=
      "<h2>Tensors</h2>\n<p>Error: root mean square of what changed, over that of the weights."
      "</p>\n<table>\n<tr><th>name</th><th>type</th><th class=\"n\">error</th><th></th>"
      "<th>note</th></tr>\n";
  for (const TensorReport& tensor : tensors) {
    const double error = tensor.loss.RelativeError();
    if (error == 0) continue;
    const std::string type =
        tensor.type.empty() ? std::string(TraitsOf(tensor.to).name) : tensor.type;
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class=\"n\">{:.5f}</td><td class=\"bar\">"
        "<i style=\"width:{:.1f}%\"></i></td><td>{}</td></tr>\n",
        EscapeHtml(tensor.name), EscapeHtml(type), error, 100 * error / worst,
        EscapeHtml(tensor.note));
  }
  out += "</table>\n";
}

}  // namespace

std::string QuantizeHtml(const Card& card, const std::vector<TensorReport>& tensors) {
  std::string out(kHead);
  const std::string title = fmt::format("{} as {}", card.source_name, card.to);
  out += fmt::format("<title>{0}</title></head><body>\n<h1>{0}</h1>\n", EscapeHtml(title));
  Figures(out, card);
  RecipeTable(out, card);
  TensorTable(out, tensors);
  out += "</body></html>\n";
  return out;
}

}  // namespace nibble::cli
