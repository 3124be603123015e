#pragma once

#include <vector>

#include "kernels/kv_view.h"

namespace nibble {

struct ModelConfig;

// Layers whose keys and values live equally long and look alike share pages: one page id stands for
// all layers and KV heads of its group.
struct KvGroup {
  std::vector<int> layers;  // ascending layer indices; layer layers[i] lies at i * piece bytes
  int window = 0;           // 0: global, else positions that stay visible (own included)
  KvLayout layout;

  size_t PageBytes() const { return layout.PieceBytes() * layers.size(); }
};

struct KvFormats {
  KvFormat k = KvFormat::kF16;
  KvFormat v = KvFormat::kF16;
};

// Global layers first, then one group per window size.
std::vector<KvGroup> MakeKvGroups(const ModelConfig& config, KvFormats formats);

}  // namespace nibble
