#include "kv/storage/kv_storage.h"

#include <algorithm>
#include <utility>

namespace nibble {

size_t KvStorage::Bytes(std::span<const KvGroup> groups, std::span<const int> pages) {
  size_t bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    bytes += groups[g].PageBytes() * static_cast<size_t>(pages[g]);
  }
  return bytes;
}

Result<KvStorage> KvStorage::Create(std::vector<KvGroup> groups, std::span<const int> pages) {
  KvStorage storage;
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t bytes = groups[g].PageBytes() * static_cast<size_t>(pages[g]);
    auto arena = AlignedBuffer::Allocate(bytes);
    if (!arena) return Within("KV pages", std::move(arena).error());
    storage.arenas_.push_back(*std::move(arena));
  }
  storage.groups_ = std::move(groups);
  return storage;
}

KvTable KvStorage::Table(int group, std::span<const PageId> pages) {
  return {arenas_[group].data(), groups_[group].PageBytes(), pages};
}

double KvBytesRead(std::span<const KvGroup> groups, int position) {
  double bytes = 0;
  for (const KvGroup& group : groups) {
    const int visible = group.window == 0 ? position + 1 : std::min(position + 1, group.window);
    bytes += static_cast<double>(group.PageBytes()) / kPageTokens * visible;
  }
  return bytes;
}

size_t KvBytesPerToken(std::span<const KvGroup> groups) {
  size_t bytes = 0;
  for (const KvGroup& group : groups) bytes += group.PageBytes() / kPageTokens;
  return bytes;
}

}  // namespace nibble
