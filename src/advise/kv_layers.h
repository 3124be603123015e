#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "eval/statistics.h"
#include "model/kv_groups.h"

namespace nibble {

class Decoder;
struct KernelTable;

// What one layer's keys, or its values, cost alone in a format: the mean divergence of the model
// from itself with an f16 cache, nats a prediction.
struct KvLayerCost {
  int layer = 0;
  MeanError keys;
  MeanError values;

  double both() const { return keys.mean + values.mean; }
};

struct KvLayersInput {
  Decoder& decoder;
  const KernelTable& kernels;
  std::vector<TokenId> ids;               // a window; its second half is scored
  KvFormats formats;                      // of all layers together
  std::filesystem::path folder;           // for logits
  std::function<bool()> keep_going = {};  // false: stop
};

struct KvLayers {
  std::vector<KvLayerCost> layers;
  MeanError all;  // of all layers together, keys and values
};

// 2 · layers + 2 passes over the window. Errors: those of RunWindow, a full disk, kCancelled.
Result<KvLayers> MeasureKvLayers(const KvLayersInput& input);

// Layers to keep in f16.
struct SkipChoice {
  std::vector<int> layers;  // ascending; empty: none need be
  double expected = 0;      // divergence of what is left, from the single layers' costs
  MeanError measured = {};  // and as it was then measured
};

// The fewest so that the others are expected to cost at most `target`: those that cost most first,
// the sum of the single costs being scaled to what all cost together.
SkipChoice ChooseSkipLayers(const KvLayers& costs, double target);

// The same, and measured: as long as more than `target` is left, more layers are kept. A few passes
// over the window.
Result<SkipChoice> FindSkipLayers(const KvLayersInput& input, const KvLayers& costs, double target);

}  // namespace nibble
