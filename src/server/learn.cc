#include "server/learn.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "container/hf_linear.h"
#include "engine/attention_probe.h"
#include "model/config/model_file.h"
#include "tokenizer/tokenizer.h"

namespace nibble::server {
namespace {

constexpr uint64_t kMostRows = 512;
constexpr size_t kShownWeights = 64;
constexpr size_t kMostTokens = 128;  // four tiles
constexpr std::string_view kProbeText =
    "A library keeps every book on a long shelf. To answer one question the reader walks along the "
    "whole shelf and looks into each book, from the first to the last, whoever asked. So it is "
    "worth asking for many readers at once: the walk is the same, and each of them gets an answer. "
    "The notes of a reader are another shelf, which grows with every line that is read, and in the "
    "end the notes are longer than the books. Then it pays to write "
    "smaller, as long as what was written can still be read. Whoever saves paper without reading "
    "it "
    "again has saved nothing.";

// |largest| against the median of a row's magnitudes.
double OutlierRatio(std::span<const float> row, std::vector<float>& scratch) {
  scratch.assign(row.begin(), row.end());
  for (float& value : scratch) value = std::fabs(value);
  const auto middle = scratch.begin() + static_cast<ptrdiff_t>(scratch.size() / 2);
  std::ranges::nth_element(scratch, middle);
  const float median = *middle;
  return median > 0 ? *std::ranges::max_element(scratch) / median : 0;
}

}  // namespace

Result<Json> WeightRowJson(const ModelFile& file) {
  const auto& layers = file.tensors().layers;
  const size_t layer = layers.size() / 2;
  const SourceTensor& tensor = *layers[layer][Linear::kDown].weight.tensor;
  const auto cols = static_cast<size_t>(tensor.cols());
  std::vector<float> row(cols);
  std::vector<float> best;
  std::vector<float> scratch;
  double ratio = -1;
  uint64_t chosen = 0;
  for (uint64_t r = 0; r < std::min(tensor.rows(), kMostRows); ++r) {
    ReadRows(tensor, r, 1, row.data());
    const double found = OutlierRatio(row, scratch);
    if (found <= ratio) continue;
    ratio = found;
    chosen = r;
    best = row;
  }
  const auto largest = static_cast<size_t>(
      std::ranges::max_element(best, {}, [](float x) { return std::fabs(x); }) - best.begin());
  const size_t shown = std::min(kShownWeights, cols);
  const size_t first = std::min(largest - std::min(largest, shown / 2), cols - shown);
  const auto begin = best.begin() + static_cast<ptrdiff_t>(first);
  return Json{{"tensor", tensor.name},
              {"type", tensor.type_name},
              {"layer", layer},
              {"row", chosen},
              {"rows", tensor.rows()},
              {"cols", cols},
              {"first", first},
              {"values", std::vector<float>(begin, begin + static_cast<ptrdiff_t>(shown))},
              {"ratio", ratio}};
}

Result<Json> AttentionJson(const ModelFile& file, const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() == 0) return BadInput("the model has no tokenizer");
  NIBBLE_TRY(auto ids, tokenizer.Encode(std::string(kProbeText), {.add_special = true}));
  const size_t most =
      std::min(kMostTokens, static_cast<size_t>(std::max(file.config().context_length, 1)));
  if (ids.size() > most) ids.resize(most);
  NIBBLE_TRY(const AttentionProbe probe, ProbeAttention(file, ids));
  Json tokens = Json::array();
  for (const TokenId id : ids) tokens.push_back(tokenizer.Bytes(id));
  return Json{{"layer", 0},
              {"head", probe.head},
              {"heads", file.config().heads},
              {"tile", probe.tile},
              {"tokens", std::move(tokens)},
              {"scores", probe.scores},
              {"channel", probe.channel},
              {"values", probe.values},
              {"output", probe.output}};
}

}  // namespace nibble::server
