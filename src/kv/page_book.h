#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/math.h"
#include "base/paging.h"
#include "base/token_list.h"
#include "kv/page_pool.h"
#include "kv/prefix_index.h"

namespace nibble {

// What the bookkeeping must know of a KV group. Pages seal in aligned units of unit_pages. Where
// the open form differs from the sealed one it has pages of its own: a position's page is open
// while its unit is not full, and sealed from then on.
struct PoolSpec {
  int pages = 0;       // sealed ones; all, where the forms are one
  int window = 0;      // 0: all positions stay visible; else the last `window`, own included
  int unit_pages = 1;  // S of docs/architecture.md §7
  int open_pages = 0;  // 0: open and sealed form are one
};

struct PageBookOptions {
  bool prefix_cache = false;  // list full units, so that others with the same tokens share them
  PrefixHash hash = {};
};

// Pages that hold `positions` positions from 0 on.
constexpr int PagesFor(int positions) { return CeilDiv(positions, kPageTokens); }

// The first page that the query at `position` sees through a window (0: none).
constexpr int FirstVisiblePage(int window, int position) {
  // It sees positions > position - window.
  return window == 0 ? 0 : std::max(0, position - window + 1) / kPageTokens;
}

// Pages of the units of `unit_pages` pages that `positions` positions fill.
constexpr int FullUnitPages(int unit_pages, int positions) {
  return positions / (unit_pages * kPageTokens) * unit_pages;
}

// Most pages that a sequence of `positions` positions holds at once in a group, when a step
// computes at most `rows` of them: a span of window - 1 + rows positions may begin anywhere in its
// first page.
int PeakPages(int window, int positions, int rows);

// Pages of one group by form. Where the forms are one, `pages` are all.
struct FormPages {
  int pages = 0;
  int open = 0;
};

class PageBook;

// The page tables of one sequence, one per group: entry p is the page of positions [32p, 32p + 32),
// kNoPage when it has left the group's window. Gives its pages back on destruction.
class SequencePages {
 public:
  explicit SequencePages(PageBook& book);
  ~SequencePages() { Clear(); }
  SequencePages(const SequencePages&) = delete;
  SequencePages& operator=(const SequencePages&) = delete;

  // Positions [0, committed) are computed and accepted.
  int committed() const { return committed_; }
  std::span<const PageId> table(int group) const { return tables_[group].pages; }
  // Open pages, where they are not those of table(); kNoPage where the page is sealed.
  std::span<const PageId> open_table(int group) const { return tables_[group].open; }
  FormPages held(int group) const {
    const Table& table = tables_[group];
    return {static_cast<int>(table.pages.size()) - table.first_live,
            static_cast<int>(table.open.size()) - table.open_first};
  }
  // The last of the units from the beginning that the prefix index lists, and their number.
  UnitId unit() const { return unit_; }
  int units() const { return units_; }

  // Room for the tables of so many positions, so that later steps allocate nothing.
  void ReserveTables(int positions);

  // Releases everything, tails first: committed() is 0 afterwards.
  void Clear();

 private:
  friend class PageBook;
  friend class PageReservation;
  struct Table {
    std::vector<PageId> pages;
    int first_live = 0;  // entries below are kNoPage
    std::vector<PageId> open;
    int open_first = 0;  // entries below are kNoPage
  };
  PageBook* book_;
  std::vector<Table> tables_;
  int committed_ = 0;
  UnitId unit_ = kNoUnit;
  int units_ = 0;
  bool unlisted_ = false;  // a unit of it could not be listed: none behind it can
};

// The first `filled` positions of a page that a reservation needs for itself, and the page's first
// owner keeps. To be copied before the reserved positions are computed. Of open pages, where the
// group has them.
struct PageCopy {
  int group = 0;
  PageId from;
  PageId to;
  int filled = 0;
};

// Pages for the next positions of one sequence, already in its tables. Without Commit the
// destructor takes them out again, and the tables are as before. One at a time per sequence.
class PageReservation {
 public:
  PageReservation(PageReservation&& other) noexcept;
  PageReservation& operator=(PageReservation&& other) noexcept;
  PageReservation(const PageReservation&) = delete;
  PageReservation& operator=(const PageReservation&) = delete;
  ~PageReservation() { Release(); }

  int positions() const { return positions_; }
  std::span<const PageCopy> copies() const { return copies_; }

  // Accepts the first `accepted` of the reserved positions; pages behind them go back, units that
  // are full now are listed in the prefix index, and pages that no position from the new
  // committed() on can see are released. tokens: at least those of all committed positions; not
  // read without a prefix cache.
  void Commit(int accepted, const TokenList& tokens);
  void Release();

 private:
  friend class PageBook;
  PageReservation(SequencePages& sequence, int positions)
      : sequence_(&sequence), positions_(positions) {}
  SequencePages* sequence_;
  int positions_;
  std::vector<PageCopy> copies_;
};

// Computed positions that a sequence can take over from the prefix cache: whole units.
struct PrefixHit {
  int positions = 0;
  UnitId unit = kNoUnit;  // the last of them
};

// The last look-up's hit, which the next one has, too, if its tokens end at the same unit: waiting
// prompts often begin alike. Good until a page changes hands.
struct PrefixMemo {
  UnitId unit = kNoUnit;
  PrefixHit hit;
};

// The pools of all KV groups of a model. Must outlive sequences and reservations.
class PageBook {
 public:
  explicit PageBook(std::span<const PoolSpec> groups, const PageBookOptions& options = {});

  int groups() const { return static_cast<int>(groups_.size()); }
  const PoolSpec& spec(int group) const { return groups_[group].spec; }
  int window(int group) const { return groups_[group].spec.window; }
  const PagePool& pool(int group) const { return groups_[group].pages; }
  const PagePool& open_pool(int group) const { return groups_[group].open; }
  bool two_forms(int group) const { return groups_[group].spec.open_pages > 0; }
  // Tokens of a unit of the prefix cache: the largest of the groups' units.
  int unit_tokens() const { return unit_pages_ * kPageTokens; }
  int unit_pages() const { return unit_pages_; }
  const PrefixIndex* index() const { return index_ ? &*index_ : nullptr; }

  // Where the tables of a sequence of so many positions end.
  FormPages Ends(int group, int positions) const;
  // The first page that the query at `positions` sees.
  int FirstVisible(int group, int positions) const;
  // Most positions of one sequence that all pages together hold, computed row by row.
  int Capacity() const;
  // Most pages of a group that a sequence of so many positions holds when computed row by row.
  FormPages Peak(int group, int positions) const;

  // Most of the next `wanted` positions of a sequence that available pages have room for.
  int Room(const SequencePages& sequence, int wanted) const;

  // Pages for the next `positions` positions, in every group, or nothing and no change. A partly
  // filled page that others hold, too, is replaced by one of its own (see copies()).
  std::optional<PageReservation> Reserve(SequencePages& sequence, int positions);

  // Up to `wanted` more positions behind those of a reservation, as many as available pages have
  // room for; returns their number. Nothing else changes.
  int Extend(PageReservation& reservation, int wanted);

  // What the prefix cache holds of the first min(most, tokens - 1) positions, cut so that it ends
  // before the unit of the last token, and so that everything a query at its end sees is there:
  // every page before it in global groups, the window's pages in others. Costs what has changed
  // since the cursor's last use, and the window.
  PrefixHit FindPrefix(PrefixCursor& cursor, const TokenList& tokens, int most,
                       PrefixMemo* memo = nullptr) const;
  // Visible pages of a hit that nobody holds now: taking the hit makes them unavailable.
  int Revived(const PrefixHit& hit, int group) const;
  // Takes a hit over into an empty sequence. Nothing may have been reserved since it was found.
  void Attach(SequencePages& sequence, const PrefixHit& hit);

  // How many of the first `most` positions of a sequence another one can share; maybe none: pages
  // have left a window, or their open form is gone.
  int Forkable(const SequencePages& from, int most) const;
  // Shares so many with the empty sequence `to`, and returns their number. Needs no page.
  int Fork(const SequencePages& from, SequencePages& to, int most);

 private:
  friend class SequencePages;
  friend class PageReservation;
  struct Group {
    explicit Group(const PoolSpec& of) : spec(of), pages(of.pages), open(of.open_pages) {}
    PoolSpec spec;
    PagePool pages;
    PagePool open;
  };
  PageId Take(int group, bool open);
  // The page that holds committed() - 1 and committed().
  template <class Sequence>
  auto& Partial(Sequence& sequence, int group) const;
  bool NeedsCopy(const SequencePages& sequence, int group) const;
  int RoomFor(const SequencePages& sequence, int wanted, bool with_copies) const;
  void Grow(SequencePages& sequence, int group, int positions);
  PrefixHit VisibleHit(UnitId end, int units) const;
  bool HasPages(UnitId unit, int number, int positions, bool global) const;
  void Shrink(SequencePages& sequence, int positions);  // drops pages behind the first `positions`
  void CloseUnits(SequencePages& sequence);             // releases open pages of full units
  bool SharesWithAnother(const SequencePages& sequence, UnitId unit) const;
  void ListUnits(SequencePages& sequence, const TokenList& tokens);
  void LeaveWindows(SequencePages& sequence);
  void LeaveIndex(SequencePages& sequence);

  std::vector<Group> groups_;
  int unit_pages_ = 1;
  bool windowed_ = false;
  std::optional<PrefixIndex> index_;
};

}  // namespace nibble
