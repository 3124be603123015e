#include "kv/storage/pool_sizes.h"

#include <algorithm>
#include <cstdint>

#include "base/math.h"
#include "kv/storage/kv_storage.h"

namespace nibble {

std::vector<PoolSpec> PoolsForTokens(std::span<const KvGroup> groups, int tokens,
                                     const PoolLimits& limits) {
  std::vector<PoolSpec> pools;
  for (const KvGroup& group : groups) {
    const int64_t unit = group.two_forms() ? group.unit_pages() : 1;
    int64_t pages = PagesFor(tokens);
    if (group.window > 0) {
      const int64_t peak = PeakPages(group.window, tokens, limits.max_rows) + unit - 1;
      pages = std::min(pages, limits.max_running * peak * (limits.prefix_cache ? 2 : 1));
    }
    PoolSpec pool{.pages = static_cast<int>(pages), .window = group.window};
    if (group.two_forms()) {
      const int64_t open = limits.max_running * unit + PagesFor(limits.max_rows) + 1;
      pool.unit_pages = static_cast<int>(unit);
      pool.pages = static_cast<int>(RoundUp(pages, unit));
      pool.open_pages = static_cast<int>(std::min(open, RoundUp<int64_t>(PagesFor(tokens), unit)));
    }
    pools.push_back(pool);
  }
  return pools;
}

std::vector<int> OpenPagesOf(std::span<const PoolSpec> pools) {
  std::vector<int> pages;
  for (const PoolSpec& pool : pools) {
    pages.push_back(pool.open_pages > 0 ? pool.open_pages : pool.pages);
  }
  return pages;
}

std::vector<int> SealedPagesOf(std::span<const PoolSpec> pools) {
  std::vector<int> pages;
  for (const PoolSpec& pool : pools) pages.push_back(pool.open_pages > 0 ? pool.pages : 0);
  return pages;
}

size_t KvBytesFor(std::span<const KvGroup> groups, int tokens, const PoolLimits& limits) {
  const std::vector<PoolSpec> pools = PoolsForTokens(groups, tokens, limits);
  return KvStorage::Bytes(groups, OpenPagesOf(pools), SealedPagesOf(pools));
}

int TokensIn(std::span<const KvGroup> groups, size_t bytes, int most, const PoolLimits& limits) {
  int low = 0, high = PagesFor(most);  // pages; low fits
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (KvBytesFor(groups, middle * kPageTokens, limits) <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * kPageTokens;
}

}  // namespace nibble
