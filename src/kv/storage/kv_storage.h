#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/kv_groups.h"
#include "platform/memory.h"
#include "platform/numa.h"

namespace nibble {

// The bytes of all KV pages: per group one arena of open pages and, where its pages have two forms
// (kernels/kv_view.h), one of sealed pages. Open and sealed pages are numbered apart, each from 0.
// Address space is taken at once, memory only when a page is first written.
class KvStorage {
 public:
  // pages[g] and sealed_pages[g]: open and sealed pages of groups[g]. Groups whose pages have one
  // form have no sealed pages; with none in any group the span may be empty.
  static size_t Bytes(std::span<const KvGroup> groups, std::span<const int> pages,
                      std::span<const int> sealed_pages = {});
  // kNoRoom when the system refuses the address space.
  static Result<KvStorage> Create(std::vector<KvGroup> groups, std::span<const int> pages,
                                  std::span<const int> sealed_pages = {});

  // Spreads the pages over the nodes of memory; before any has been written.
  Status Interleave(std::span<const NumaNode> nodes);

  std::span<const KvGroup> groups() const { return groups_; }

  // What kernels read of one sequence: its page tables in one group, over that group's arenas.
  // Entry p of each is page p of the sequence, kNoPage where it is not there in that form. Spans
  // may differ in length. Must stay valid while the table is in use.
  KvTable Table(int group, std::span<const PageId> pages, std::span<const PageId> sealed = {});

  // Copies the first `positions` positions of an open page into another, the partly filled page of
  // a fork. The others become zero: behind them may be another sequence's NaN.
  void CopyOpenPage(int group, PageId from, PageId to, int positions);

 private:
  std::vector<KvGroup> groups_;
  std::vector<AlignedBuffer> arenas_;
  std::vector<AlignedBuffer> sealed_arenas_;  // empty ones for groups of one form
};

// Bytes of keys and values that one query at `position` reads, over all groups, each page in the
// form that the query sees.
double KvBytesRead(std::span<const KvGroup> groups, int position);

// Bytes of the pages that one sequence of so many committed positions holds, over all groups:
// sealed ones of its full units, open ones of the rest, none that have left a window.
size_t KvBytesHeld(std::span<const KvGroup> groups, int positions);

// Bytes that one more position takes in all groups while it is visible, in the form that lasts.
size_t KvBytesPerToken(std::span<const KvGroup> groups);

}  // namespace nibble
