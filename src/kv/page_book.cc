#include "kv/page_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nibble {

int PeakPages(int window, int positions, int rows) {
  const int all = PagesFor(positions);
  if (window == 0) return all;
  // n consecutive positions touch at most (n - 2) / 32 + 2 pages (n >= 1).
  const int64_t span = int64_t{window} - 1 + std::min(rows, positions);
  const int64_t touched = (span + kPageTokens - 2) / kPageTokens + 1;
  return static_cast<int>(std::min<int64_t>(all, touched));
}

SequencePages::SequencePages(PageBook& book) : book_(&book), tables_(book.groups()) {}

void SequencePages::Clear() {
  committed_ = 0;
  book_->Shrink(*this, 0);
}

PageReservation::PageReservation(PageReservation&& other) noexcept
    : sequence_(std::exchange(other.sequence_, nullptr)), positions_(other.positions_) {}

PageReservation& PageReservation::operator=(PageReservation&& other) noexcept {
  if (this != &other) {
    Release();
    sequence_ = std::exchange(other.sequence_, nullptr);
    positions_ = other.positions_;
  }
  return *this;
}

void PageReservation::Commit(int accepted) {
  NIBBLE_CHECK(sequence_ != nullptr && accepted >= 0 && accepted <= positions_);
  SequencePages& sequence = *std::exchange(sequence_, nullptr);
  sequence.committed_ += accepted;
  sequence.book_->Shrink(sequence, sequence.committed_);
  sequence.book_->LeaveWindows(sequence);
}

void PageReservation::Release() {
  if (sequence_ == nullptr) return;
  SequencePages& sequence = *std::exchange(sequence_, nullptr);
  sequence.book_->Shrink(sequence, sequence.committed_);
}

PageBook::PageBook(std::span<const PoolSpec> groups) {
  for (const PoolSpec& group : groups) {
    pools_.emplace_back(group.pages);
    windows_.push_back(group.window);
  }
}

int PageBook::Room(const SequencePages& sequence, int wanted) const {
  int64_t room = wanted;
  for (int g = 0; g < groups(); ++g) {
    const int64_t pages =
        static_cast<int64_t>(sequence.tables_[g].pages.size()) + pools_[g].free_pages();
    room = std::min(room, pages * kPageTokens - sequence.committed_);
  }
  return static_cast<int>(room);
}

std::optional<PageReservation> PageBook::Reserve(SequencePages& sequence, int positions) {
  if (Room(sequence, positions) < positions) return std::nullopt;
  const size_t pages = static_cast<size_t>(PagesFor(sequence.committed_ + positions));
  for (int g = 0; g < groups(); ++g) {
    std::vector<PageId>& table = sequence.tables_[g].pages;
    while (table.size() < pages) table.push_back(*pools_[g].Allocate());
  }
  return PageReservation(sequence, positions);
}

void PageBook::Shrink(SequencePages& sequence, int positions) {
  const size_t pages = static_cast<size_t>(PagesFor(positions));
  for (int g = 0; g < groups(); ++g) {
    SequencePages::Table& table = sequence.tables_[g];
    while (table.pages.size() > pages) {
      if (table.pages.back() != kNoPage) pools_[g].Release(table.pages.back());
      table.pages.pop_back();
    }
    table.first_live = std::min(table.first_live, static_cast<int>(table.pages.size()));
  }
}

void PageBook::LeaveWindows(SequencePages& sequence) {
  for (int g = 0; g < groups(); ++g) {
    if (windows_[g] == 0) continue;
    SequencePages::Table& table = sequence.tables_[g];
    // The next query stands at committed and sees positions > committed - window.
    const int hidden = std::max(0, sequence.committed_ - windows_[g] + 1);
    const int gone = std::min(hidden / kPageTokens, static_cast<int>(table.pages.size()));
    for (; table.first_live < gone; ++table.first_live) {
      PageId& page = table.pages[table.first_live];
      pools_[g].Release(page);
      page = kNoPage;
    }
  }
}

}  // namespace nibble
