#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace nibble {

// A unit of sealed pages that the prefix index knows; an index into its table.
using UnitId = StrongId<struct UnitIdTag, int32_t>;
inline constexpr UnitId kNoUnit{-1};

// The pages of one KV group in one form: a fixed number, each held by one or more owners, free, or
// evictable. A page that the prefix index names becomes evictable when its last owner leaves: it
// keeps its content until it is needed for something else. All operations are O(1). Pages that were
// never touched are handed out last of the free ones, so that their memory stays untouched, and
// evictable ones after all free ones, least recently released first.
class PagePool {
 public:
  explicit PagePool(int pages) : size_(pages) {}

  int size() const { return size_; }
  int free_pages() const { return size_ - touched() + static_cast<int>(free_.size()); }
  int evictable_pages() const { return evictable_; }
  int available_pages() const { return free_pages() + evictable_; }
  int used_pages() const { return size_ - available_pages(); }  // those with owners

  struct Allocation {
    PageId page;
    UnitId evicted = kNoUnit;  // the unit that lost the page by this
  };
  // A page with one reference and no unit; nothing when all have owners.
  std::optional<Allocation> Allocate();
  void Retain(PageId page);   // one more owner of a page that is held or evictable
  void Release(PageId page);  // one owner less
  int references(PageId page) const { return Known(page) ? At(page).references : 0; }

  // The unit in which the prefix index lists the page.
  UnitId unit(PageId page) const { return Known(page) ? At(page).unit : kNoUnit; }
  void SetUnit(PageId page, UnitId unit) { At(page).unit = unit; }

  // For the invariant checker: free pages that were once used, and evictable ones in the order of
  // their eviction.
  std::span<const PageId> free_list() const { return free_; }
  std::vector<PageId> EvictionOrder() const;
  int touched() const { return static_cast<int>(states_.size()); }

 private:
  struct State {
    int references = 0;
    UnitId unit = kNoUnit;
    PageId previous = kNoPage;  // in the list of evictable pages
    PageId next = kNoPage;
  };
  bool Known(PageId page) const { return page.value() < touched(); }
  State& At(PageId page) { return states_[static_cast<size_t>(page.value())]; }
  const State& At(PageId page) const { return states_[static_cast<size_t>(page.value())]; }
  void Unlink(PageId page);

  int size_;
  std::vector<State> states_;  // of pages that were ever handed out
  std::vector<PageId> free_;   // a stack
  PageId oldest_ = kNoPage;    // evicted next
  PageId newest_ = kNoPage;
  int evictable_ = 0;
};

}  // namespace nibble
