#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "eval/statistics.h"
#include "eval/windows.h"
#include "kernels/elementwise.h"

namespace nibble {

class Engine;
class LogitsBase;
struct KernelTable;

struct DivergenceOptions {
  WindowOptions windows = {};
  // Called after every window with the number done, of how many, and the mean so far.
  std::function<void(int done, int total, double mean_divergence)> progress = {};
};

// One number per scored prediction: what all statistics are made of.
struct DivergenceSamples {
  std::vector<double> divergence;      // of the candidate's distribution from the base's, nats
  std::vector<double> base_loss;       // -ln p of the text's next token
  std::vector<double> candidate_loss;  // the same
  std::vector<double> probability;     // change in the probability of the text's next token
  std::vector<int> position;           // in its window
  int64_t same_top = 0;                // predictions with the same most probable token
  int chunks = 0;

  int64_t size() const { return static_cast<int64_t>(divergence.size()); }
};

// One prediction by both models, of the text's token `next` behind position `at`.
struct PredictionPair {
  LogitsPair row;
  double base_loss = 0;  // -ln p of it under the base
  TokenId next;
  Position at;
};
void AddSample(const KernelTable& kernels, const PredictionPair& pair, DivergenceSamples& samples);

// The predictions made at positions [from, to) of their windows.
struct DivergenceAtDepth {
  int from = 0;
  int to = 0;
  int64_t tokens = 0;
  MeanError divergence;
  double ppl_ratio = 0;
};

// llama-perplexity's statistics (methods: `docs/quality.md`).
struct DivergenceResult {
  int64_t tokens = 0;
  int chunks = 0;
  MeanError ppl;  // the candidate's; error: perplexity · error of the mean loss
  MeanError ppl_base;
  MeanError ln_ratio;      // mean of candidate loss - base loss, per token: paired
  MeanError ppl_ratio;     // exp of that
  double correlation = 0;  // of the losses
  MeanError divergence;
  std::vector<double> divergence_sorted;
  MeanError probability;  // mean change of the next token's probability
  MeanError rms_probability;
  std::vector<double> probability_sorted;
  MeanError same_top;  // share of predictions
  std::vector<DivergenceAtDepth> depths;
};

// Runs both models over the same windows and compares their logits row by row while both are in
// memory: nothing is stored but the numbers above. The engines take turns; one computes while the
// other waits. Errors: vocabularies that differ (the first token that does), and those of
// MeasurePerplexity.
Result<DivergenceSamples> MeasureDivergence(Engine& candidate, Engine& base,
                                            std::span<const TokenId> ids,
                                            const DivergenceOptions& options);

// The same with a file of llama-perplexity's as the base, over its own windows (options.windows: of
// those the first `chunks`), with its rounding: the figures are llama-perplexity's. Errors: another
// size of vocabulary, an id or a context beyond the model's, numbers that are no log-probabilities.
Result<DivergenceSamples> MeasureDivergence(Engine& candidate, const LogitsBase& base,
                                            const DivergenceOptions& options);

DivergenceResult Summarise(const DivergenceSamples& samples);

// In words, at 95%: better, worse, or no difference seen and how many more tokens would settle half
// a percent.
std::string Verdict(const DivergenceResult& result);

}  // namespace nibble
