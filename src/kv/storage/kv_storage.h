#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/kv_groups.h"
#include "platform/memory.h"

namespace nibble {

// The bytes of all KV pages, one arena per group. Address space is taken at once, memory only when
// a page is first written.
class KvStorage {
 public:
  // pages[g]: pages of groups[g].
  static size_t Bytes(std::span<const KvGroup> groups, std::span<const int> pages);
  // kNoRoom when the system refuses the address space.
  static Result<KvStorage> Create(std::vector<KvGroup> groups, std::span<const int> pages);

  std::span<const KvGroup> groups() const { return groups_; }

  // What kernels read of one sequence: its page table in one group, over that group's arena.
  KvTable Table(int group, std::span<const PageId> pages);

 private:
  std::vector<KvGroup> groups_;
  std::vector<AlignedBuffer> arenas_;
};

// Bytes of keys and values that one query at `position` reads, over all groups.
double KvBytesRead(std::span<const KvGroup> groups, int position);

// Bytes that one more position takes in all groups while it is visible.
size_t KvBytesPerToken(std::span<const KvGroup> groups);

}  // namespace nibble
