// Sharing of pages between sequences: the prefix cache and forks.
#include <algorithm>

#include "base/check.h"
#include "kv/page_book.h"

namespace nibble {

// Whether a page of the sequence's next unit is listed in another unit than `unit`: it was forked
// in the middle of a unit of several pages, and the other one went on differently. A page is listed
// once, and a unit without its page would break the rule that a global page follows another.
bool PageBook::SharesWithAnother(const SequencePages& sequence, UnitId unit) const {
  for (int g = 0; g < groups() && unit_pages_ > 1; ++g) {
    for (int i = 0; i < unit_pages_; ++i) {
      const auto p = static_cast<size_t>(sequence.units_ * unit_pages_ + i);
      const PageId page = sequence.tables_[g].pages[p];
      if (page == kNoPage) continue;
      const UnitId listed = pool(g).unit(page);
      if (listed != kNoUnit && listed != unit) return true;
    }
  }
  return false;
}

void PageBook::ListUnits(SequencePages& sequence, const TokenList& tokens) {
  if (!index_) return;
  while (!sequence.unlisted_ && (sequence.units_ + 1) * unit_tokens() <= sequence.committed_) {
    const int begin = sequence.units_ * unit_tokens();
    UnitId unit = index_->Find(sequence.unit_, tokens, begin);
    sequence.unlisted_ = SharesWithAnother(sequence, unit);
    if (!sequence.unlisted_ && unit == kNoUnit) {
      unit = index_->Add(sequence.unit_, tokens, begin);
      sequence.unlisted_ = unit == kNoUnit;
    }
    if (sequence.unlisted_) return;
    index_->Hold(unit);
    if (sequence.unit_ != kNoUnit) index_->Drop(sequence.unit_);
    sequence.unit_ = unit;
    const int first = sequence.units_++ * unit_pages_;
    for (int g = 0; g < groups(); ++g) {
      PagePool& pages = groups_[static_cast<size_t>(g)].pages;
      for (int i = 0; i < unit_pages_; ++i) {
        PageId& own = sequence.tables_[g].pages[static_cast<size_t>(first + i)];
        if (own == kNoPage) continue;  // it left a window before the unit was full
        const int slot = g * unit_pages_ + i;
        const PageId listed = index_->page(unit, slot);
        if (listed == kNoPage) {
          index_->SetPage(unit, slot, own);
          pages.SetUnit(own, unit);
        } else if (listed != own) {  // two computed the same tokens at the same time
          pages.Retain(listed);
          pages.Release(own);
          own = listed;
        }
      }
    }
  }
}

void PageBook::LeaveIndex(SequencePages& sequence) {
  if (sequence.unit_ != kNoUnit) index_->Drop(sequence.unit_);
  sequence.unit_ = kNoUnit;
  sequence.units_ = 0;
  sequence.unlisted_ = false;
}

// Whether unit number `number` of a prefix of so many positions has the pages that the query behind
// the prefix sees, in the global or in the windowed groups.
bool PageBook::HasPages(UnitId unit, int number, int positions, bool global) const {
  for (int g = 0; g < groups(); ++g) {
    if ((window(g) == 0) != global) continue;
    const int first = FirstVisible(g, positions);
    for (int i = 0; i < unit_pages_; ++i) {
      if (number * unit_pages_ + i < first) continue;
      if (index_->page(unit, g * unit_pages_ + i) == kNoPage) return false;
    }
  }
  return true;
}

PrefixHit PageBook::FindPrefix(PrefixCursor& cursor, const TokenList& tokens, int most,
                               PrefixMemo* memo) const {
  if (!index_ || tokens.size() == 0) return {};
  index_->Advance(cursor, tokens, std::min(most, tokens.size() - 1) / unit_tokens());
  if (cursor.unit == kNoUnit) return {};
  if (memo == nullptr) return VisibleHit(cursor.unit, cursor.units);
  if (memo->unit != cursor.unit) *memo = {cursor.unit, VisibleHit(cursor.unit, cursor.units)};
  return memo->hit;
}

// The longest hit that ends at `end`, which is unit number `units` - 1, or before it.
PrefixHit PageBook::VisibleHit(UnitId end, int units) const {
  // In global groups a unit that has its pages follows one that has them: a tail is evicted first.
  while (units > 0 && !HasPages(end, units - 1, units * unit_tokens(), true)) {
    end = index_->parent(end);
    --units;
  }
  if (!windowed_) return {units * unit_tokens(), end};
  // Back from a candidate's end over what its windows show. A page that is missing is missing for
  // every shorter candidate that reaches beyond it, too.
  UnitId at = end;
  for (int k = units; k > 0; --k, at = index_->parent(at)) {
    const int positions = units * unit_tokens();
    int first = PagesFor(positions);
    for (int g = 0; g < groups(); ++g) {
      if (window(g) > 0) first = std::min(first, FirstVisible(g, positions));
    }
    if (k * unit_pages_ <= first) break;
    if (HasPages(at, k - 1, positions, false)) continue;
    units = k - 1;
    end = index_->parent(at);
  }
  return {units * unit_tokens(), units > 0 ? end : kNoUnit};
}

int PageBook::Revived(const PrefixHit& hit, int group) const {
  int revived = 0;
  const int first = FirstVisible(group, hit.positions);
  UnitId unit = hit.unit;
  for (int k = hit.positions / unit_tokens() - 1; k >= 0 && (k + 1) * unit_pages_ > first; --k) {
    for (int i = 0; i < unit_pages_; ++i) {
      if (k * unit_pages_ + i < first) continue;
      const PageId page = index_->page(unit, group * unit_pages_ + i);
      revived += pool(group).references(page) == 0 ? 1 : 0;
    }
    unit = index_->parent(unit);
  }
  return revived;
}

void PageBook::Attach(SequencePages& sequence, const PrefixHit& hit) {
  NIBBLE_CHECK(sequence.committed_ == 0 && sequence.unit_ == kNoUnit);
  if (hit.positions == 0) return;
  const int pages = hit.positions / kPageTokens;
  for (int g = 0; g < groups(); ++g) {
    SequencePages::Table& table = sequence.tables_[g];
    table.pages.assign(static_cast<size_t>(pages), kNoPage);
    table.first_live = FirstVisible(g, hit.positions);
    if (two_forms(g)) {
      table.open_first = pages;
      table.open.assign(static_cast<size_t>(pages), kNoPage);
    }
    UnitId unit = hit.unit;
    for (int p = pages - 1; p >= table.first_live; --p) {
      const PageId page = index_->page(unit, g * unit_pages_ + p % unit_pages_);
      groups_[static_cast<size_t>(g)].pages.Retain(page);
      table.pages[static_cast<size_t>(p)] = page;
      if (p % unit_pages_ == 0) unit = index_->parent(unit);
    }
  }
  index_->Hold(hit.unit);
  sequence.unit_ = hit.unit;
  sequence.units_ = hit.positions / unit_tokens();
  sequence.committed_ = hit.positions;
}

int PageBook::Forkable(const SequencePages& from, int most) const {
  int shared = std::min(most, from.committed_);
  for (int g = 0; g < groups(); ++g) {
    // What is sealed already has no open form to go on with.
    if (two_forms(g) && shared < from.tables_[g].open_first * kPageTokens) {
      shared = shared / unit_tokens() * unit_tokens();
    }
  }
  for (int g = 0; g < groups(); ++g) {
    if (FirstVisible(g, shared) < std::min(from.tables_[g].first_live, Ends(g, shared).pages)) {
      return 0;
    }
  }
  return std::max(shared, 0);
}

int PageBook::Fork(const SequencePages& from, SequencePages& to, int most) {
  NIBBLE_CHECK(to.committed_ == 0 && to.unit_ == kNoUnit);
  const int shared = Forkable(from, most);
  if (shared == 0) return 0;
  for (int g = 0; g < groups(); ++g) {
    const FormPages ends = Ends(g, shared);
    const SequencePages::Table& source = from.tables_[g];
    SequencePages::Table& table = to.tables_[g];
    Group& own = groups_[static_cast<size_t>(g)];
    table.pages.assign(source.pages.begin(), source.pages.begin() + ends.pages);
    table.first_live = std::min(FirstVisible(g, shared), ends.pages);
    std::fill_n(table.pages.begin(), table.first_live, kNoPage);
    for (int p = table.first_live; p < ends.pages; ++p) {
      own.pages.Retain(table.pages[static_cast<size_t>(p)]);
    }
    if (!two_forms(g)) continue;
    table.open.assign(source.open.begin(), source.open.begin() + ends.open);
    table.open_first = ends.pages;
    std::fill_n(table.open.begin(), ends.pages, kNoPage);
    for (int p = ends.pages; p < ends.open; ++p) {
      own.open.Retain(table.open[static_cast<size_t>(p)]);
    }
  }
  to.committed_ = shared;
  to.unit_ = from.unit_;
  to.units_ = from.units_;
  for (; to.units_ > shared / unit_tokens(); --to.units_) to.unit_ = index_->parent(to.unit_);
  to.unlisted_ = from.unlisted_ && to.units_ < shared / unit_tokens();
  if (to.unit_ != kNoUnit) index_->Hold(to.unit_);
  return shared;
}

}  // namespace nibble
