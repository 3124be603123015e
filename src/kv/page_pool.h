#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace nibble {

// The pages of one KV group: a fixed number, each free or held by one or more owners. All
// operations are O(1). The page freed last is handed out first, so that memory that was never
// touched stays untouched.
class PagePool {
 public:
  explicit PagePool(int pages);

  int size() const { return static_cast<int>(references_.size()); }
  int free_pages() const { return static_cast<int>(free_.size()); }
  int used_pages() const { return size() - free_pages(); }

  // A free page, with one reference; nothing when there is none.
  std::optional<PageId> Allocate();
  void Retain(PageId page);   // one more owner of a page that has owners
  void Release(PageId page);  // one owner less; the last one frees the page
  int references(PageId page) const { return references_[page.value()]; }

  // For the invariant checker.
  std::span<const PageId> free_list() const { return free_; }

 private:
  std::vector<int> references_;  // [pages]
  std::vector<PageId> free_;     // a stack
};

}  // namespace nibble
