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

template <class Sequence>
auto& PageBook::Partial(Sequence& sequence, int group) const {
  auto& table = sequence.tables_[static_cast<size_t>(group)];
  const auto page = static_cast<size_t>(sequence.committed_ / kPageTokens);
  return two_forms(group) ? table.open[page] : table.pages[page];
}

SequencePages::SequencePages(PageBook& book) : book_(&book), tables_(book.groups()) {}

void SequencePages::ReserveTables(int positions) {
  const auto pages = static_cast<size_t>(PagesFor(positions));
  for (size_t g = 0; g < tables_.size(); ++g) {
    tables_[g].pages.reserve(pages);
    if (book_->two_forms(static_cast<int>(g))) tables_[g].open.reserve(pages);
  }
}

void SequencePages::Clear() {
  committed_ = 0;
  book_->Shrink(*this, 0);
  book_->LeaveIndex(*this);
}

PageReservation::PageReservation(PageReservation&& other) noexcept
    : sequence_(std::exchange(other.sequence_, nullptr)),
      positions_(other.positions_),
      copies_(std::move(other.copies_)) {}

PageReservation& PageReservation::operator=(PageReservation&& other) noexcept {
  if (this != &other) {
    Release();
    sequence_ = std::exchange(other.sequence_, nullptr);
    positions_ = other.positions_;
    copies_ = std::move(other.copies_);
  }
  return *this;
}

void PageReservation::Commit(int accepted, const TokenList& tokens) {
  NIBBLE_CHECK(sequence_ != nullptr && accepted >= 0 && accepted <= positions_);
  SequencePages& sequence = *std::exchange(sequence_, nullptr);
  PageBook& book = *sequence.book_;
  for (const PageCopy& copy : copies_) {
    PageBook::Group& group = book.groups_[static_cast<size_t>(copy.group)];
    (book.two_forms(copy.group) ? group.open : group.pages).Release(copy.from);
  }
  sequence.committed_ += accepted;
  book.Shrink(sequence, sequence.committed_);
  book.CloseUnits(sequence);
  book.ListUnits(sequence, tokens);
  book.LeaveWindows(sequence);
}

void PageReservation::Release() {
  if (sequence_ == nullptr) return;
  SequencePages& sequence = *std::exchange(sequence_, nullptr);
  PageBook& book = *sequence.book_;
  for (const PageCopy& copy : copies_) {
    PageBook::Group& group = book.groups_[static_cast<size_t>(copy.group)];
    (book.two_forms(copy.group) ? group.open : group.pages).Release(copy.to);
    book.Partial(sequence, copy.group) = copy.from;
  }
  book.Shrink(sequence, sequence.committed_);
}

PageBook::PageBook(std::span<const PoolSpec> groups, const PageBookOptions& options) {
  for (const PoolSpec& spec : groups) {
    NIBBLE_CHECK(spec.unit_pages > 0 && (spec.open_pages > 0 || spec.unit_pages == 1));
    groups_.emplace_back(spec);
    unit_pages_ = std::max(unit_pages_, spec.unit_pages);
    windowed_ |= spec.window > 0;
  }
  for (const PoolSpec& spec : groups) NIBBLE_CHECK(unit_pages_ % spec.unit_pages == 0);
  if (options.prefix_cache) {
    index_.emplace(unit_tokens(), unit_pages_ * this->groups(), options.hash);
  }
}

FormPages PageBook::Ends(int group, int positions) const {
  if (!two_forms(group)) return {PagesFor(positions), 0};
  return {FullUnitPages(spec(group).unit_pages, positions), PagesFor(positions)};
}

int PageBook::FirstVisible(int group, int positions) const {
  return FirstVisiblePage(window(group), positions);
}

int PageBook::Capacity() const {
  constexpr int64_t kEndless = 1 << 30;  // positions
  int64_t capacity = kEndless;
  for (int g = 0; g < groups(); ++g) {
    const PoolSpec& own = spec(g);
    const FormPages endless = Peak(g, static_cast<int>(kEndless));
    if (two_forms(g) && own.open_pages < own.unit_pages) {
      capacity = std::min(capacity, int64_t{own.open_pages} * kPageTokens);
    }
    if (own.window != 0 && own.pages >= endless.pages) continue;
    const int64_t sealed = int64_t{own.pages} / own.unit_pages * own.unit_pages * kPageTokens;
    // With two forms the last unit need not be full.
    capacity = std::min(capacity, sealed + (two_forms(g) ? own.unit_pages * kPageTokens - 1 : 0));
  }
  return static_cast<int>(capacity);
}

FormPages PageBook::Peak(int group, int positions) const {
  const PoolSpec& own = spec(group);
  if (!two_forms(group)) return {PeakPages(own.window, positions, 1), 0};
  const int all = Ends(group, positions).pages;
  const int visible = PeakPages(own.window, positions, 1);
  // A window's pages become sealed a unit at a time.
  return {own.window == 0 ? all : std::min(all, visible + own.unit_pages),
          std::min(PagesFor(positions), own.unit_pages)};
}

int PageBook::Room(const SequencePages& sequence, int wanted) const {
  return RoomFor(sequence, wanted, true);
}

// Of the next `wanted` positions behind committed(): as many as the tables and available pages hold
// together; with_copies: when a partly filled page that others hold, too, has to be replaced.
int PageBook::RoomFor(const SequencePages& sequence, int wanted, bool with_copies) const {
  int64_t room = wanted;
  for (int g = 0; g < groups(); ++g) {
    const SequencePages::Table& table = sequence.tables_[g];
    const int copy = with_copies && NeedsCopy(sequence, g) ? 1 : 0;
    if (!two_forms(g)) {
      const int64_t available = pool(g).available_pages() - copy;
      if (available < 0) return 0;
      const int64_t pages = static_cast<int64_t>(table.pages.size()) + available;
      room = std::min(room, pages * kPageTokens - sequence.committed_);
      continue;
    }
    const int64_t available = open_pool(g).available_pages() - copy;
    if (available < 0) return 0;
    const int64_t open = static_cast<int64_t>(table.open.size()) + available;
    room = std::min(room, open * kPageTokens - sequence.committed_);
    const int unit = spec(g).unit_pages;
    const int64_t units =
        static_cast<int64_t>(table.pages.size()) / unit + pool(g).available_pages() / unit;
    room = std::min(room, (units + 1) * unit * kPageTokens - 1 - sequence.committed_);
  }
  return static_cast<int>(room);
}

PageId PageBook::Take(int group, bool open) {
  Group& own = groups_[static_cast<size_t>(group)];
  const auto taken = (open ? own.open : own.pages).Allocate();
  NIBBLE_CHECK(taken.has_value());
  if (taken->evicted != kNoUnit) {
    int slot = group * unit_pages_;
    while (index_->page(taken->evicted, slot) != taken->page) ++slot;
    NIBBLE_CHECK(slot < (group + 1) * unit_pages_);
    index_->RemovePage(taken->evicted, slot);
  }
  return taken->page;
}

bool PageBook::NeedsCopy(const SequencePages& sequence, int group) const {
  if (sequence.committed_ % kPageTokens == 0) return false;
  const PageId page = Partial(sequence, group);
  const PagePool& from = two_forms(group) ? open_pool(group) : pool(group);
  return from.references(page) > 1 || from.unit(page) != kNoUnit;
}

std::optional<PageReservation> PageBook::Reserve(SequencePages& sequence, int positions) {
  if (Room(sequence, positions) < positions) return std::nullopt;
  PageReservation reservation(sequence, positions);
  for (int g = 0; g < groups(); ++g) {
    const bool open = two_forms(g);
    if (NeedsCopy(sequence, g)) {
      PageId& page = Partial(sequence, g);
      const PageId own = Take(g, open);
      reservation.copies_.push_back(
          {.group = g, .from = page, .to = own, .filled = sequence.committed_ % kPageTokens});
      page = own;
    }
    Grow(sequence, g, sequence.committed_ + positions);
  }
  return reservation;
}

void PageBook::Grow(SequencePages& sequence, int group, int positions) {
  const FormPages ends = Ends(group, positions);
  SequencePages::Table& table = sequence.tables_[group];
  while (static_cast<int>(table.pages.size()) < ends.pages) {
    table.pages.push_back(Take(group, false));
  }
  while (static_cast<int>(table.open.size()) < ends.open) table.open.push_back(Take(group, true));
}

int PageBook::Extend(PageReservation& reservation, int wanted) {
  SequencePages& sequence = *reservation.sequence_;
  const int before = reservation.positions_;
  reservation.positions_ = std::max(before, RoomFor(sequence, before + wanted, false));
  for (int g = 0; g < groups(); ++g) {
    Grow(sequence, g, sequence.committed_ + reservation.positions_);
  }
  return reservation.positions_ - before;
}

void PageBook::Shrink(SequencePages& sequence, int positions) {
  for (int g = 0; g < groups(); ++g) {
    SequencePages::Table& table = sequence.tables_[g];
    Group& own = groups_[static_cast<size_t>(g)];
    const FormPages ends = Ends(g, positions);
    while (static_cast<int>(table.open.size()) > ends.open) {
      if (table.open.back() != kNoPage) own.open.Release(table.open.back());
      table.open.pop_back();
    }
    table.open_first = std::min(table.open_first, ends.open);
    while (static_cast<int>(table.pages.size()) > ends.pages) {
      if (table.pages.back() != kNoPage) own.pages.Release(table.pages.back());
      table.pages.pop_back();
    }
    table.first_live = std::min(table.first_live, static_cast<int>(table.pages.size()));
  }
}

void PageBook::CloseUnits(SequencePages& sequence) {
  for (int g = 0; g < groups(); ++g) {
    if (!two_forms(g)) continue;
    SequencePages::Table& table = sequence.tables_[g];
    const int full = Ends(g, sequence.committed_).pages;
    for (; table.open_first < full; ++table.open_first) {
      PageId& page = table.open[static_cast<size_t>(table.open_first)];
      groups_[static_cast<size_t>(g)].open.Release(page);
      page = kNoPage;
    }
  }
}

void PageBook::LeaveWindows(SequencePages& sequence) {
  for (int g = 0; g < groups(); ++g) {
    SequencePages::Table& table = sequence.tables_[g];
    const int gone =
        std::min(FirstVisible(g, sequence.committed_), static_cast<int>(table.pages.size()));
    for (; table.first_live < gone; ++table.first_live) {
      PageId& page = table.pages[static_cast<size_t>(table.first_live)];
      groups_[static_cast<size_t>(g)].pages.Release(page);
      page = kNoPage;
    }
  }
}

}  // namespace nibble
