#include "kv/page_pool.h"

#include "base/check.h"

namespace nibble {

std::optional<PagePool::Allocation> PagePool::Allocate() {
  Allocation taken;
  if (!free_.empty()) {
    taken.page = free_.back();
    free_.pop_back();
  } else if (touched() < size_) {
    taken.page = PageId{touched()};
    states_.emplace_back();
  } else if (oldest_ != kNoPage) {
    taken.page = oldest_;
    Unlink(oldest_);
    taken.evicted = At(taken.page).unit;
    At(taken.page).unit = kNoUnit;
  } else {
    return std::nullopt;
  }
  At(taken.page).references = 1;
  return taken;
}

void PagePool::Retain(PageId page) {
  State& state = At(page);
  if (state.references == 0) {
    NIBBLE_CHECK(state.unit != kNoUnit);
    Unlink(page);
  }
  ++state.references;
}

void PagePool::Release(PageId page) {
  State& state = At(page);
  NIBBLE_CHECK(state.references > 0);
  if (--state.references > 0) return;
  if (state.unit == kNoUnit) {
    free_.push_back(page);
    return;
  }
  state.previous = newest_;
  state.next = kNoPage;
  if (newest_ != kNoPage) At(newest_).next = page;
  newest_ = page;
  if (oldest_ == kNoPage) oldest_ = page;
  ++evictable_;
}

void PagePool::Unlink(PageId page) {
  State& state = At(page);
  (state.previous == kNoPage ? oldest_ : At(state.previous).next) = state.next;
  (state.next == kNoPage ? newest_ : At(state.next).previous) = state.previous;
  state.previous = state.next = kNoPage;
  --evictable_;
}

std::vector<PageId> PagePool::EvictionOrder() const {
  std::vector<PageId> order;
  for (PageId page = oldest_; page != kNoPage; page = At(page).next) order.push_back(page);
  return order;
}

}  // namespace nibble
