#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kv_view.h"

namespace nibble {

struct ModelConfig;

// Layers whose keys and values live equally long and look alike share pages: one page id stands for
// all layers and KV heads of its group.
struct KvGroup {
  std::vector<int> layers;  // ascending layer indices; layer layers[i] lies at i * piece bytes
  int window = 0;           // 0: global, else positions that stay visible (own included)
  KvLayout layout;          // of open pages
  KvLayout sealed;          // of sealed pages; equal to `layout`: pages have one form
  bool rotate = false;      // queries and keys are turned (kernels/hadamard.h) before they are used

  bool two_forms() const { return sealed != layout; }
  int unit_pages() const { return UnitPages(sealed); }  // pages that seal together
  // Multiples of 64, so that pages start at lines.
  size_t PageBytes() const { return RoundUp<size_t>(layout.PieceBytes() * layers.size(), 64); }
  size_t SealedPageBytes() const {
    return RoundUp<size_t>(sealed.PieceBytes() * layers.size(), 64);
  }
  // The cache of layers[slot] of the sequence whose pages are in `table`.
  KvView View(const KvTable& table, int slot) const {
    const auto at = static_cast<size_t>(slot);
    return {.table = table,
            .layer_offset = layout.PieceBytes() * at,
            .layout = layout,
            .sealed_offset = sealed.PieceBytes() * at,
            .sealed = sealed,
            .unit_pages = unit_pages()};
  }
};

struct KvFormats {
  KvFormat k = KvFormat::kF16;
  KvFormat v = KvFormat::kF16;
  std::vector<int> skip_layers = {};  // kept in f16 and unrotated; -1 is the last layer
  std::optional<bool> rotate = {};    // of the other layers; none: where keys are int4

  bool Rotates() const { return rotate.value_or(k == KvFormat::kInt4); }
  std::string Name() const;  // "int8", or "int8/kivi2" for keys and values apart
};

// Global layers first, then each window size; layers that are skipped make groups of their own.
// Errors: a layer that the model does not have; a head size that a format cannot hold.
Result<std::vector<KvGroup>> MakeKvGroups(const ModelConfig& config, const KvFormats& formats);

}  // namespace nibble
