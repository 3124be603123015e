#include "cli/quantize_report.h"

#include <fmt/format.h>

#include "base/text.h"
#include "platform/memory.h"

namespace nibble::cli {

Json QuantizeJson(const Card& card, const std::vector<TensorReport>& tensors, double seconds) {
  Json out;
  out["in_bytes"] = card.source_bytes;
  out["out_bytes"] = card.bytes;
  out["bits_per_weight"] = card.bits_per_weight;
  out["per_tensor"] = Json::array();
  for (const TensorReport& tensor : tensors) {
    Json row;
    row["name"] = tensor.name;
    row["type"] = tensor.type.empty() ? std::string(TraitsOf(tensor.to).name) : tensor.type;
    row["source_type"] = TraitsOf(tensor.from).name;
    row["rel_error"] = tensor.loss.RelativeError();
    row["max_outlier_ratio"] = tensor.loss.OutlierRatio();
    if (!tensor.note.empty()) row["note"] = tensor.note;
    out["per_tensor"].push_back(std::move(row));
  }
  if (card.quality) {
    out["ppl_in"] = card.quality->ppl_source;
    out["ppl_out"] = card.quality->ppl;
    out["kld"] = card.quality->kld;
    out["top1"] = card.quality->top1;
  } else {
    for (const char* key : {"ppl_in", "ppl_out", "kld", "top1"}) out[key] = nullptr;
  }
  out["seconds"] = seconds;
  out["peak_resident_bytes"] = ReadPeakResidentBytes();
  out["card"] = Json::parse(CardJson(card));
  return out;
}

void PrintCard(const Card& card, double seconds) {
  fmt::print("{} → {} ({}), {:.3f} bits a weight, in {:.1f} s\n",
             FormatBytes(static_cast<double>(card.source_bytes)),
             FormatBytes(static_cast<double>(card.bytes)), card.to, card.bits_per_weight, seconds);
  fmt::print("method: {}; peak resident {}\n", card.parameters,
             FormatBytes(static_cast<double>(card.peak_resident_bytes)));
  if (card.speed) {
    fmt::print("speed: prompt {:.4g} tokens/s, answer {:.4g} tokens/s ({})\n", card.speed->prefill,
               card.speed->decode, card.machine);
  }
  if (!card.quality) {
    fmt::print("quality: not measured\n");
    return;
  }
  const CardQuality& q = *card.quality;
  fmt::print("quality on {} ({} predictions, windows of {}, --act {}):\n", q.text, q.tokens,
             q.context, q.act);
  fmt::print("  perplexity  {:.4f} ± {:.4f}, source {:.4f}\n", q.ppl, q.ppl_se, q.ppl_source);
  fmt::print("  divergence  {:.5f} ± {:.5f} nats a token\n", q.kld, q.kld_se);
  fmt::print("  same top    {:.2f}% ± {:.2f}%\n", 100 * q.top1, 100 * q.top1_se);
  fmt::print("  {}\n", q.verdict);
}

}  // namespace nibble::cli
