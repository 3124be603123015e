#include "kernels/kv_read.h"

#include <cstdint>

#include "format/small_float.h"

namespace nibble {
namespace {

float ValueAt(KvFormat format, const std::byte* base, int index) {
  if (format == KvFormat::kF32) return reinterpret_cast<const float*>(base)[index];
  return F16ToF32(reinterpret_cast<const uint16_t*>(base)[index]);
}

}  // namespace

KvPageValues ReadKvPage(const KvView& kv, int page, int kv_head) {
  const KvLayout& layout = kv.layout;
  const int dim = layout.head_dim;
  const std::byte* keys = kv.piece(page) + layout.HeadOffset(kv_head);
  const std::byte* values = keys + layout.KBytes();
  const size_t count = static_cast<size_t>(kPageTokens) * static_cast<size_t>(dim);
  KvPageValues out{.k = std::vector<float>(count), .v = std::vector<float>(count)};
  for (int j = 0; j < kPageTokens; ++j) {
    for (int d = 0; d < dim; ++d) {
      const auto at = static_cast<size_t>(j * dim + d);
      out.k[at] = ValueAt(layout.k, keys, d * kPageTokens + j);
      out.v[at] = ValueAt(layout.v, values, j * dim + d);
    }
  }
  return out;
}

}  // namespace nibble
