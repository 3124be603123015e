#include "engine/attention_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/paging.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar_math.h"
#include "model/config/model_file.h"
#include "model/layer_runner.h"
#include "model/workspace.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

struct ProbeInput {
  LayerRunner::AttentionInputs qkv;
  MatrixView<const float> context;
};

std::vector<float> ScoresOf(const ModelConfig& config, const ProbeInput& input, int head) {
  const AttentionShape shape = MakeAttentionShape(config, 0);
  const int kv_head = head / (config.heads / config.kv_heads);
  const int last = input.qkv.q.rows - 1;
  const auto dim = static_cast<ptrdiff_t>(config.head_dim);
  const float* q = input.qkv.q.row(last) + head * dim;
  std::vector<float> scores;
  for (int position = 0; position <= last; ++position) {
    const float* k = input.qkv.k.row(position) + kv_head * dim;
    float sum = 0;
    for (ptrdiff_t i = 0; i < dim; ++i) sum += q[i] * k[i];
    double score = shape.scale * sum;
    if (shape.soft_cap > 0) score = shape.soft_cap * Tanh(score / shape.soft_cap);
    scores.push_back(static_cast<float>(score));
  }
  return scores;
}

double Entropy(std::span<const float> scores) {
  const double most = std::ranges::max(scores);
  double sum = 0;
  double weighted = 0;
  for (const float score : scores) {
    const double weight = Exp(score - most);
    sum += weight;
    weighted += weight * (score - most);
  }
  return std::log(sum) - weighted / sum;
}

AttentionProbe Choose(const ModelConfig& config, const ProbeInput& input) {
  std::vector<std::pair<double, int>> heads;
  for (int head = 0; head < config.heads; ++head) {
    heads.emplace_back(Entropy(ScoresOf(config, input, head)), head);
  }
  std::ranges::sort(heads);
  AttentionProbe probe;
  probe.tile = kPageTokens;
  probe.head = heads[heads.size() / 2].second;
  probe.scores = ScoresOf(config, input, probe.head);
  const int last = input.context.rows - 1;
  const float* out = input.context.row(last) + probe.head * static_cast<ptrdiff_t>(config.head_dim);
  for (int channel = 0; channel < config.head_dim; ++channel) {
    if (std::fabs(out[channel]) > std::fabs(out[probe.channel])) probe.channel = channel;
  }
  probe.output = out[probe.channel];
  const int kv_head = probe.head / (config.heads / config.kv_heads);
  for (int position = 0; position <= last; ++position) {
    probe.values.push_back(input.qkv.v.row(position)[kv_head * config.head_dim + probe.channel]);
  }
  return probe;
}

}  // namespace

Result<AttentionProbe> ProbeAttention(const ModelFile& file, std::span<const TokenId> tokens) {
  const ModelConfig& config = file.config();
  const auto rows = static_cast<int>(tokens.size());
  const int window = config.layers.front().window;
  if (window > 0 && window < rows) {
    return BadInput("the first layer sees {} tokens, not {}", window, rows);
  }
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  ThreadPool pool(1);
  NIBBLE_TRY(const auto runner, LayerRunner::Create(file, rows, KernelsFor(isa), pool));
  std::vector<float> hidden(tokens.size() * static_cast<size_t>(config.width));
  const int inner = config.heads * config.head_dim;
  std::vector<float> context(tokens.size() * static_cast<size_t>(inner));
  const LayerSequence sequence = {.hidden = DenseView(hidden.data(), rows, config.width),
                                  .context = DenseView(context.data(), rows, inner)};
  runner->Embed(tokens, sequence.hidden);
  NIBBLE_RETURN_IF_ERROR(runner->BeginLayer(0));
  NIBBLE_RETURN_IF_ERROR(runner->Load(LayerStage::kQkv));
  runner->Input(LayerStage::kOutput, sequence);
  return Choose(config, {.qkv = runner->LastAttention(), .context = sequence.context});
}

}  // namespace nibble
