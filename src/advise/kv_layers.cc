#include "advise/kv_layers.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "advise/base_rows.h"
#include "advise/window_compare.h"
#include "advise/window_run.h"
#include "model/decoder.h"

namespace nibble {
namespace {

class Sweep {
 public:
  // Computes the window with an f16 cache, which all others are compared with.
  static Result<Sweep> Create(const KvLayersInput& input) {
    const auto size = static_cast<int>(input.ids.size());
    const int rows = size - 1 - size / 2;
    if (rows < 1) return BadInput("a window of {} tokens has nothing to score", size);
    NIBBLE_TRY(BaseRows base,
               BaseRows::Create(input.folder, rows, input.decoder.config().vocabulary));
    Sweep sweep(input, std::move(base));
    KeepingSink sink(sweep.base_);
    NIBBLE_RETURN_IF_ERROR(sweep.Run({}, sink));
    NIBBLE_RETURN_IF_ERROR(sink.status());
    return sweep;
  }

  Result<MeanError> Cost(const KvFormats& formats) {
    ComparingSink sink(input_.kernels, base_, input_.ids, score_from_);
    NIBBLE_RETURN_IF_ERROR(Run(formats, sink));
    NIBBLE_RETURN_IF_ERROR(sink.status());
    return MeanOf(sink.samples().divergence);
  }

 private:
  Sweep(const KvLayersInput& input, BaseRows base)
      : input_(input),
        base_(std::move(base)),
        score_from_(static_cast<int>(input.ids.size()) / 2) {}

  Status Run(const KvFormats& formats, LogitsSink& sink) {
    return RunWindow(input_.decoder, {.ids = input_.ids, .score_from = score_from_, .kv = formats},
                     sink);
  }

  const KvLayersInput& input_;
  BaseRows base_;
  int score_from_;
};

// One side of one layer in its format, everything else in f16.
KvFormats OnlyLayer(const KvFormats& all, int layer, int layers, KvSide side) {
  KvFormats one = all;
  one.rotate = all.Rotates();  // as it is among the others
  if (side == KvSide::kKeys) {
    one.v = KvFormat::kF16;
  } else {
    one.k = KvFormat::kF16;
  }
  one.skip_layers.clear();
  for (int i = 0; i < layers; ++i) {
    if (i != layer) one.skip_layers.push_back(i);
  }
  return one;
}

}  // namespace

Result<KvLayers> MeasureKvLayers(const KvLayersInput& input) {
  const auto layers = static_cast<int>(input.decoder.config().layers.size());
  NIBBLE_TRY(Sweep sweep, Sweep::Create(input));
  KvLayers result;
  NIBBLE_TRY(result.all, sweep.Cost(input.formats));
  for (int layer = 0; layer < layers; ++layer) {
    if (input.keep_going && !input.keep_going()) return Fail(ErrorKind::kCancelled, "stopped");
    KvLayerCost cost{.layer = layer, .keys = {}, .values = {}};
    NIBBLE_TRY(cost.keys, sweep.Cost(OnlyLayer(input.formats, layer, layers, KvSide::kKeys)));
    NIBBLE_TRY(cost.values, sweep.Cost(OnlyLayer(input.formats, layer, layers, KvSide::kValues)));
    result.layers.push_back(cost);
  }
  return result;
}

SkipChoice ChooseSkipLayers(const KvLayers& costs, double target) {
  double sum = 0;
  for (const KvLayerCost& cost : costs.layers) sum += cost.both();
  const double scale = sum > 0 ? costs.all.mean / sum : 0;
  std::vector<size_t> order(costs.layers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return costs.layers[i].both(); });
  SkipChoice choice{.layers = {}, .expected = costs.all.mean};
  double left = sum;
  for (const size_t i : order) {
    if (choice.expected <= target) break;
    left -= costs.layers[i].both();
    choice.layers.push_back(costs.layers[i].layer);
    choice.expected = std::max(left, 0.0) * scale;
  }
  std::ranges::sort(choice.layers);
  return choice;
}

Result<SkipChoice> FindSkipLayers(const KvLayersInput& input, const KvLayers& costs,
                                  double target) {
  constexpr int kMostTries = 8;
  NIBBLE_TRY(Sweep sweep, Sweep::Create(input));
  SkipChoice choice;
  double aim = target;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (input.keep_going && !input.keep_going()) return Fail(ErrorKind::kCancelled, "stopped");
    choice = ChooseSkipLayers(costs, aim);
    KvFormats formats = input.formats;
    formats.skip_layers = choice.layers;
    NIBBLE_TRY(choice.measured, sweep.Cost(formats));
    if (choice.measured.mean <= target) return choice;
    // What is left costs more than its parts alone did: one layer more at least.
    aim = std::min(aim * target / choice.measured.mean, 0.999 * choice.expected);
  }
  choice.layers.clear();  // every layer in f16 is no int4 cache
  for (const KvLayerCost& cost : costs.layers) choice.layers.push_back(cost.layer);
  choice.expected = 0;
  choice.measured = {};
  return choice;
}

}  // namespace nibble
