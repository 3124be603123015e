#include "model/kv_groups.h"

#include <algorithm>

#include "model/config.h"

namespace nibble {

std::vector<KvGroup> MakeKvGroups(const ModelConfig& config, KvFormats formats) {
  std::vector<KvGroup> groups;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const int window = config.layers[i].window;
    auto group = std::ranges::find(groups, window, &KvGroup::window);
    if (group == groups.end()) {
      const KvLayout sealed{
          .k = formats.k, .v = formats.v, .kv_heads = config.kv_heads, .head_dim = config.head_dim};
      groups.push_back(
          {.layers = {}, .window = window, .layout = OpenLayout(sealed), .sealed = sealed});
      group = groups.end() - 1;
    }
    group->layers.push_back(static_cast<int>(i));
  }
  std::ranges::stable_sort(groups, {}, &KvGroup::window);  // 0, the global ones, comes first
  return groups;
}

}  // namespace nibble
