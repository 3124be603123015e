#include "model/kv_groups.h"

#include <algorithm>

#include "model/config.h"

namespace nibble {
namespace {

// Four steps of a product lie side by side in a sealed page.
constexpr int kHeadMultiple = 4;

Status CheckHeadSize(KvFormat format, int head_dim) {
  const KvFormatTraits& traits = TraitsOf(format);
  if (traits.code_bits > 8 || head_dim % kHeadMultiple == 0) return {};
  return BadInput("KV format {} needs a head size divisible by {}, and this model's is {}",
                  traits.name, kHeadMultiple, head_dim);
}

// Which layers are skipped.
Result<std::vector<bool>> SkippedLayers(const std::vector<int>& numbers, int layers) {
  std::vector<bool> skipped(static_cast<size_t>(layers), false);
  for (const int number : numbers) {
    if (number < -layers || number >= layers) {
      return BadInput("KV layers to skip: expected numbers from {} to {}, found {}", -layers,
                      layers - 1, number);
    }
    skipped[static_cast<size_t>(number < 0 ? number + layers : number)] = true;
  }
  return skipped;
}

}  // namespace

std::string KvFormats::Name() const {
  const std::string keys(TraitsOf(k).name);
  return k == v ? keys : keys + "/" + std::string(TraitsOf(v).name);
}

Result<std::vector<KvGroup>> MakeKvGroups(const ModelConfig& config, const KvFormats& formats) {
  NIBBLE_RETURN_IF_ERROR(CheckHeadSize(formats.k, config.head_dim));
  NIBBLE_RETURN_IF_ERROR(CheckHeadSize(formats.v, config.head_dim));
  NIBBLE_TRY(const std::vector<bool> skipped,
             SkippedLayers(formats.skip_layers, static_cast<int>(config.layers.size())));
  std::vector<KvGroup> groups;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    KvLayout sealed{.kv_heads = config.kv_heads, .head_dim = config.head_dim};
    if (!skipped[i]) {
      sealed.k = formats.k;
      sealed.v = formats.v;
    }
    const int window = config.layers[i].window;
    const bool rotate = formats.Rotates() && !skipped[i];
    auto group = std::ranges::find_if(groups, [&](const KvGroup& other) {
      return other.window == window && other.sealed == sealed && other.rotate == rotate;
    });
    if (group == groups.end()) {
      groups.push_back({.layers = {},
                        .window = window,
                        .layout = OpenLayout(sealed),
                        .sealed = sealed,
                        .rotate = rotate});
      group = groups.end() - 1;
    }
    group->layers.push_back(static_cast<int>(i));
  }
  std::ranges::stable_sort(groups, {}, &KvGroup::window);  // 0, the global ones, comes first
  return groups;
}

}  // namespace nibble
