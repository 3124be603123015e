#include "cli/divergence_output.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace nibble::cli {
namespace {

struct NamedQuantile {
  double q;
  const char* key;
  const char* title;
};
constexpr std::array kQuantiles = {
    NamedQuantile{1, "max", "maximum"},     NamedQuantile{0.999, "p999", "99.9%"},
    NamedQuantile{0.99, "p99", "99%"},      NamedQuantile{0.95, "p95", "95%"},
    NamedQuantile{0.9, "p90", "90%"},       NamedQuantile{0.75, "p75", "75%"},
    NamedQuantile{0.5, "median", "median"}, NamedQuantile{0.25, "p25", "25%"},
    NamedQuantile{0.1, "p10", "10%"},       NamedQuantile{0.05, "p05", "5%"},
    NamedQuantile{0.01, "p01", "1%"},       NamedQuantile{0.001, "p001", "0.1%"},
    NamedQuantile{0, "min", "minimum"},
};

Json Distribution(const MeanError& mean, std::span<const double> sorted) {
  Json out;
  out["mean"] = mean.mean;
  out["se"] = mean.se;
  for (const NamedQuantile& quantile : kQuantiles) {
    out[quantile.key] = Quantile(sorted, quantile.q);
  }
  return out;
}

void PrintDistribution(std::string_view title, const MeanError& mean,
                       std::span<const double> sorted, double factor, int digits) {
  fmt::print("{}\n  {:<8} {:>12.{}f} ± {:.{}f}\n", title, "mean", factor * mean.mean, digits,
             factor * mean.se, digits);
  for (const NamedQuantile& quantile : kQuantiles) {
    fmt::print("  {:<8} {:>12.{}f}\n", quantile.title, factor * Quantile(sorted, quantile.q),
               digits);
  }
}

}  // namespace

Json DivergenceJson(const DivergenceResult& result) {
  Json out;
  out["ppl"] = result.ppl.mean;
  out["ppl_se"] = result.ppl.se;
  out["ppl_base"] = result.ppl_base.mean;
  out["ppl_base_se"] = result.ppl_base.se;
  out["ppl_ratio"] = result.ppl_ratio.mean;
  out["ppl_ratio_se"] = result.ppl_ratio.se;
  out["ln_ppl_ratio"] = result.ln_ratio.mean;
  out["ln_ppl_ratio_se"] = result.ln_ratio.se;
  out["correlation"] = result.correlation;
  out["kld"] = Distribution(result.divergence, result.divergence_sorted);
  out["dp"] = Distribution(result.probability, result.probability_sorted);
  out["rms_dp"] = result.rms_probability.mean;
  out["rms_dp_se"] = result.rms_probability.se;
  out["top1"] = result.same_top.mean;
  out["top1_se"] = result.same_top.se;
  out["tokens"] = result.tokens;
  out["chunks"] = result.chunks;
  Json depths = Json::array();
  for (const DivergenceAtDepth& depth : result.depths) {
    Json row;
    row["from"] = depth.from;
    row["to"] = depth.to;
    row["tokens"] = depth.tokens;
    row["kld"] = depth.divergence.mean;
    row["kld_se"] = depth.divergence.se;
    row["ppl_ratio"] = depth.ppl_ratio;
    depths.push_back(std::move(row));
  }
  out["depths"] = std::move(depths);
  out["verdict"] = Verdict(result);
  return out;
}

void PrintDivergence(const DivergenceResult& result) {
  fmt::print("perplexity        {:>10.4f} ± {:.4f}  ({} windows, {} predictions)\n",
             result.ppl.mean, result.ppl.se, result.chunks, result.tokens);
  fmt::print("of the base       {:>10.4f} ± {:.4f}\n", result.ppl_base.mean, result.ppl_base.se);
  fmt::print(
      "ratio             {:>10.6f} ± {:.6f}  (of the logarithms: {:.6f} ± {:.6f}, "
      "correlation {:.2f}%)\n",
      result.ppl_ratio.mean, result.ppl_ratio.se, result.ln_ratio.mean, result.ln_ratio.se,
      100 * result.correlation);
  fmt::print("same top token    {:>9.3f}% ± {:.3f}%\n", 100 * result.same_top.mean,
             100 * result.same_top.se);
  PrintDistribution("divergence from the base, nats a token", result.divergence,
                    result.divergence_sorted, 1, 6);
  PrintDistribution("change of the next token's probability, percent points", result.probability,
                    result.probability_sorted, 100, 3);
  fmt::print("  {:<8} {:>12.3f} ± {:.3f}\n", "rms", 100 * result.rms_probability.mean,
             100 * result.rms_probability.se);
  fmt::print("by depth in the window\n");
  for (const DivergenceAtDepth& depth : result.depths) {
    fmt::print("  {:>6} to {:<6} {:>10.6f} ± {:.6f}  ratio {:.4f}\n", depth.from, depth.to - 1,
               depth.divergence.mean, depth.divergence.se, depth.ppl_ratio);
  }
  fmt::print("{}\n", Verdict(result));
}

}  // namespace nibble::cli
