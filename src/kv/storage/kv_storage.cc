#include "kv/storage/kv_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kv/page_book.h"

namespace nibble {

namespace {

size_t SealedBytes(const KvGroup& group, std::span<const int> sealed_pages, size_t g) {
  if (!group.two_forms() || sealed_pages.empty()) return 0;
  return group.SealedPageBytes() * static_cast<size_t>(sealed_pages[g]);
}

size_t LastingPageBytes(const KvGroup& group) {
  return group.two_forms() ? group.SealedPageBytes() : group.PageBytes();
}

}  // namespace

size_t KvStorage::Bytes(std::span<const KvGroup> groups, std::span<const int> pages,
                        std::span<const int> sealed_pages) {
  size_t bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    bytes += groups[g].PageBytes() * static_cast<size_t>(pages[g]) +
             SealedBytes(groups[g], sealed_pages, g);
  }
  return bytes;
}

Result<KvStorage> KvStorage::Create(std::vector<KvGroup> groups, std::span<const int> pages,
                                    std::span<const int> sealed_pages) {
  KvStorage storage;
  const auto add = [](std::vector<AlignedBuffer>& arenas, size_t bytes) -> Status {
    auto arena = AlignedBuffer::Allocate(bytes);
    if (!arena) return Within("KV pages", std::move(arena).error());
    arenas.push_back(*std::move(arena));
    return {};
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t open = groups[g].PageBytes() * static_cast<size_t>(pages[g]);
    NIBBLE_RETURN_IF_ERROR(add(storage.arenas_, open));
    const size_t sealed = SealedBytes(groups[g], sealed_pages, g);
    if (sealed == 0) {
      storage.sealed_arenas_.emplace_back();
    } else {
      NIBBLE_RETURN_IF_ERROR(add(storage.sealed_arenas_, sealed));
    }
  }
  storage.groups_ = std::move(groups);
  return storage;
}

Status KvStorage::Interleave(std::span<const NumaNode> nodes) {
  for (std::vector<AlignedBuffer>* arenas : {&arenas_, &sealed_arenas_}) {
    for (AlignedBuffer& arena : *arenas) {
      NIBBLE_RETURN_IF_ERROR(InterleaveMemory(arena.as<std::byte>(), nodes));
    }
  }
  return {};
}

KvTable KvStorage::Table(int group, std::span<const PageId> pages, std::span<const PageId> sealed) {
  const KvGroup& own = groups_[group];
  KvTable table = {.arena = arenas_[group].data(), .page_bytes = own.PageBytes(), .pages = pages};
  if (own.two_forms()) {
    table.sealed_arena = sealed_arenas_[group].data();
    table.sealed_page_bytes = own.SealedPageBytes();
    table.sealed = sealed;
  }
  return table;
}

void KvStorage::CopyOpenPage(int group, PageId from, PageId to, int positions) {
  NIBBLE_CHECK(from != kNoPage && to != kNoPage && positions <= kPageTokens);
  const KvGroup& own = groups_[group];
  const KvLayout& layout = own.layout;
  const auto page = [&](PageId id) {
    return arenas_[group].data() + own.PageBytes() * static_cast<size_t>(id.value());
  };
  std::memcpy(page(to), page(from), own.PageBytes());
  // Keys [head_dim][32], values [32][head_dim].
  const size_t rest = static_cast<size_t>(kPageTokens - positions);
  const size_t key_row = layout.KBytes() / static_cast<size_t>(layout.head_dim);
  const size_t value_row = layout.VBytes() / kPageTokens;
  for (size_t slot = 0; slot < own.layers.size(); ++slot) {
    for (int head = 0; head < layout.kv_heads; ++head) {
      std::byte* keys = page(to) + layout.PieceBytes() * slot + layout.HeadOffset(head);
      std::byte* values = keys + layout.KBytes();
      for (int d = 1; d <= layout.head_dim; ++d) {
        const size_t bytes = rest * (key_row / kPageTokens);
        std::memset(keys + key_row * static_cast<size_t>(d) - bytes, 0, bytes);
      }
      std::memset(values + layout.VBytes() - rest * value_row, 0, rest * value_row);
    }
  }
}

double KvBytesRead(std::span<const KvGroup> groups, int position) {
  double bytes = 0;
  for (const KvGroup& group : groups) {
    const int visible = group.window == 0 ? position + 1 : std::min(position + 1, group.window);
    int sealed = 0;  // of the visible positions
    if (group.two_forms()) {
      const int unit = group.unit_pages() * kPageTokens;
      sealed = std::max(0, visible - (position % unit + 1));
    }
    bytes += static_cast<double>(group.PageBytes()) / kPageTokens * (visible - sealed) +
             static_cast<double>(group.SealedPageBytes()) / kPageTokens * sealed;
  }
  return bytes;
}

size_t KvBytesHeld(std::span<const KvGroup> groups, int positions) {
  size_t bytes = 0;
  for (const KvGroup& group : groups) {
    const int pages = PagesFor(positions);
    const int sealed = group.two_forms() ? FullUnitPages(group.unit_pages(), positions) : 0;
    const int first = FirstVisiblePage(group.window, positions);
    const int live_sealed = std::max(0, sealed - first);
    // Open pages stay until their unit is full, visible or not.
    const int live_open = group.two_forms() ? pages - sealed : pages - std::min(first, pages);
    bytes += group.SealedPageBytes() * static_cast<size_t>(live_sealed) +
             group.PageBytes() * static_cast<size_t>(live_open);
  }
  return bytes;
}

size_t KvBytesPerToken(std::span<const KvGroup> groups) {
  size_t bytes = 0;
  for (const KvGroup& group : groups) bytes += LastingPageBytes(group) / kPageTokens;
  return bytes;
}

}  // namespace nibble
