#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/math.h"
#include "base/paging.h"
#include "kv/page_pool.h"

namespace nibble {

// What the bookkeeping must know of a KV group.
struct PoolSpec {
  int pages = 0;
  int window = 0;  // 0: all positions stay visible; else the last `window`, own included
};

// Pages that hold `positions` positions from 0 on.
constexpr int PagesFor(int positions) { return CeilDiv(positions, kPageTokens); }

// Most pages that a sequence of `positions` positions holds at once in a group, when a step
// computes at most `rows` of them: a span of window - 1 + rows positions may begin anywhere in its
// first page.
int PeakPages(int window, int positions, int rows);

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
  int held(int group) const {
    return static_cast<int>(tables_[group].pages.size()) - tables_[group].first_live;
  }

  // Releases everything: committed() is 0 afterwards.
  void Clear();

 private:
  friend class PageBook;
  friend class PageReservation;
  struct Table {
    std::vector<PageId> pages;
    int first_live = 0;  // entries below are kNoPage
  };
  PageBook* book_;
  std::vector<Table> tables_;
  int committed_ = 0;
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

  // Accepts the first `accepted` of the reserved positions; pages behind them go back, and so do
  // pages that no position from the new committed() on can see.
  void Commit(int accepted);
  void Release();

 private:
  friend class PageBook;
  PageReservation(SequencePages& sequence, int positions)
      : sequence_(&sequence), positions_(positions) {}
  SequencePages* sequence_;
  int positions_;
};

// The pools of all KV groups of a model. Must outlive sequences and reservations.
class PageBook {
 public:
  explicit PageBook(std::span<const PoolSpec> groups);

  int groups() const { return static_cast<int>(pools_.size()); }
  const PagePool& pool(int group) const { return pools_[group]; }
  int window(int group) const { return windows_[group]; }

  // Most of the next `wanted` positions of a sequence that free pages have room for.
  int Room(const SequencePages& sequence, int wanted) const;

  // Pages for the next `positions` positions, in every group, or nothing and no change.
  std::optional<PageReservation> Reserve(SequencePages& sequence, int positions);

 private:
  friend class SequencePages;
  friend class PageReservation;
  void Shrink(SequencePages& sequence, int positions);  // drops pages behind the first `positions`
  void LeaveWindows(SequencePages& sequence);

  std::vector<PagePool> pools_;
  std::vector<int> windows_;
};

}  // namespace nibble
