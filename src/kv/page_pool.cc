#include "kv/page_pool.h"

#include "base/check.h"

namespace nibble {

PagePool::PagePool(int pages) : references_(pages, 0) {
  free_.reserve(pages);
  for (int page = pages - 1; page >= 0; --page) free_.push_back(PageId{page});
}

std::optional<PageId> PagePool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  references_[page.value()] = 1;
  return page;
}

void PagePool::Retain(PageId page) {
  NIBBLE_CHECK(references_[page.value()] > 0);
  ++references_[page.value()];
}

void PagePool::Release(PageId page) {
  NIBBLE_CHECK(references_[page.value()] > 0);
  if (--references_[page.value()] == 0) free_.push_back(page);
}

}  // namespace nibble
