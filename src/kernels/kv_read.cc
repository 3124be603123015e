#include "kernels/kv_read.h"

#include <cstring>

#include "format/kv_codec.h"

namespace nibble {

KvPageValues ReadKvPiece(const std::byte* piece, const KvLayout& layout, int kv_head) {
  const auto count = static_cast<size_t>(kPageTokens * layout.head_dim);
  KvPageValues out{.k = std::vector<float>(count), .v = std::vector<float>(count)};
  const std::byte* keys = piece + layout.HeadOffset(kv_head);
  const std::byte* page_float = piece + layout.FloatOffset(kv_head);
  const auto next_float = [&](KvFormat format, KvSide side) {
    float value = 0;
    if (!TraitsOf(format).page_float[static_cast<size_t>(side)]) return value;
    std::memcpy(&value, page_float, sizeof value);
    page_float += sizeof value;
    return value;
  };
  DecodeKv(layout.k, KvSide::kKeys, keys, next_float(layout.k, KvSide::kKeys), layout.head_dim,
           out.k.data());
  DecodeKv(layout.v, KvSide::kValues, keys + layout.KBytes(), next_float(layout.v, KvSide::kValues),
           layout.head_dim, out.v.data());
  return out;
}

KvPageValues ReadKvPage(const KvView& kv, int page, int kv_head, Position position) {
  if (page < kv.SealedPages(position.value())) {
    return ReadKvPiece(kv.sealed_piece(page), kv.sealed, kv_head);
  }
  return ReadKvPiece(kv.piece(page), kv.layout, kv_head);
}

}  // namespace nibble
