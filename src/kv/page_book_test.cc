#include "kv/page_book.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "kv/invariants.h"

namespace nibble {
namespace {

std::string Problem(const PageBook& book, std::vector<const SequencePages*> sequences) {
  std::vector<CheckedSequence> checked;
  for (const SequencePages* sequence : sequences) checked.push_back({sequence});
  return FindPageProblem(book, checked).value_or("");
}

TEST(PageBook, ReservesForAllGroupsOrNone) {
  const PoolSpec specs[] = {{.pages = 4}, {.pages = 2}};
  PageBook book(specs);
  SequencePages sequence(book);
  EXPECT_EQ(book.Room(sequence, 1000), 64);
  EXPECT_FALSE(book.Reserve(sequence, 65));
  EXPECT_EQ(book.pool(0).free_pages(), 4);
  auto reservation = book.Reserve(sequence, 64);
  ASSERT_TRUE(reservation);
  EXPECT_EQ(sequence.table(0).size(), 2U);
  reservation->Commit(64, {});
  EXPECT_EQ(sequence.committed(), 64);
  EXPECT_EQ(Problem(book, {&sequence}), "");
}

TEST(PageBook, AReservationThatIsNotCommittedLeavesNoTrace) {
  const PoolSpec specs[] = {{.pages = 8}};
  PageBook book(specs);
  SequencePages sequence(book);
  book.Reserve(sequence, 40)->Commit(40, {});
  const std::vector<PageId> before(sequence.table(0).begin(), sequence.table(0).end());
  {
    auto dropped = book.Reserve(sequence, 100);
  }
  EXPECT_EQ(std::vector<PageId>(sequence.table(0).begin(), sequence.table(0).end()), before);
  EXPECT_EQ(book.pool(0).free_pages(), 6);
  EXPECT_EQ(Problem(book, {&sequence}), "");
}

TEST(PageBook, APartlyAcceptedReservationKeepsOnlyItsPages) {
  const PoolSpec specs[] = {{.pages = 8}};
  PageBook book(specs);
  SequencePages sequence(book);
  book.Reserve(sequence, 200)->Commit(33, {});
  EXPECT_EQ(sequence.committed(), 33);
  EXPECT_EQ(book.pool(0).used_pages(), 2);
  EXPECT_EQ(Problem(book, {&sequence}), "");
}

TEST(PageBook, AReservationGrowsAsFarAsThereIsRoom) {
  // Two forms: units of 2 pages; a draft crosses their border and is taken back.
  const PoolSpec specs[] = {{.pages = 4, .unit_pages = 2, .open_pages = 3}, {.pages = 4}};
  PageBook book(specs);
  SequencePages sequence(book);
  book.Reserve(sequence, 60)->Commit(60, {});
  {
    auto reservation = book.Reserve(sequence, 1);
    ASSERT_TRUE(reservation);
    EXPECT_EQ(book.Extend(*reservation, 9), 9);  // positions 60 … 69: unit 0 is full
    EXPECT_EQ(reservation->positions(), 10);
    EXPECT_EQ(sequence.table(0).size(), 2U);         // sealed, unpublished
    EXPECT_EQ(sequence.open_table(0).size(), 3U);    // and still open
    EXPECT_EQ(book.Extend(*reservation, 1000), 26);  // no fourth open page
    reservation->Commit(3, {});
  }
  EXPECT_EQ(sequence.committed(), 63);
  EXPECT_EQ(sequence.table(0).size(), 0U);
  EXPECT_EQ(sequence.open_table(0).size(), 2U);
  EXPECT_EQ(Problem(book, {&sequence}), "");
  {
    auto reservation = book.Reserve(sequence, 1);
    EXPECT_EQ(book.Extend(*reservation, 4), 4);
    reservation->Commit(2, {});  // the unit's last position is among them
  }
  EXPECT_EQ(sequence.committed(), 65);
  EXPECT_EQ(sequence.table(0).size(), 2U);
  EXPECT_EQ(sequence.open_table(0)[1], kNoPage);
  EXPECT_EQ(Problem(book, {&sequence}), "");
  {
    auto reservation = book.Reserve(sequence, 1);
    EXPECT_EQ(book.Extend(*reservation, 40), 40);
  }
  EXPECT_EQ(sequence.committed(), 65);
  EXPECT_EQ(Problem(book, {&sequence}), "");
}

TEST(PageBook, PagesLeaveAWindowByTheCommittedPosition) {
  const PoolSpec specs[] = {{.pages = 10}, {.pages = 10, .window = 33}};
  PageBook book(specs);
  SequencePages sequence(book);
  // The query at 64 sees 32 … 64: page 0 has just left.
  book.Reserve(sequence, 64)->Commit(64, {});
  EXPECT_EQ(sequence.table(1)[0], kNoPage);
  EXPECT_NE(sequence.table(1)[1], kNoPage);
  EXPECT_NE(sequence.table(0)[0], kNoPage);
  {
    // A reservation alone releases nothing: it may be dropped again.
    auto reservation = book.Reserve(sequence, 64);
    EXPECT_NE(sequence.table(1)[1], kNoPage);
  }
  book.Reserve(sequence, 31)->Commit(31, {});  // the query at 95 sees 63
  EXPECT_NE(sequence.table(1)[1], kNoPage);
  book.Reserve(sequence, 1)->Commit(1, {});  // the query at 96 sees 64
  EXPECT_EQ(sequence.table(1)[1], kNoPage);
  EXPECT_EQ(sequence.held(1).pages, 1);
  EXPECT_EQ(Problem(book, {&sequence}), "");
  sequence.Clear();
  EXPECT_EQ(book.pool(1).free_pages(), 10);
}

TEST(PageBook, PeakPagesIsReachedAndNeverExceeded) {
  for (int window : {1, 2, 31, 32, 33, 64, 100}) {
    for (int rows : {1, 2, 31, 32, 33, 70}) {
      const int positions = 400;
      const PoolSpec specs[] = {{.pages = 13, .window = window}};
      int peak = 0;
      for (int start = 1; start <= 33; ++start) {
        PageBook book(specs);
        SequencePages sequence(book);
        book.Reserve(sequence, std::min(start, rows))->Commit(std::min(start, rows), {});
        while (sequence.committed() < positions) {
          const int n = std::min(rows, positions - sequence.committed());
          auto reservation = book.Reserve(sequence, n);
          peak = std::max(peak, sequence.held(0).pages);
          reservation->Commit(n, {});
        }
      }
      EXPECT_LE(peak, PeakPages(window, positions, rows)) << window << " " << rows;
      EXPECT_GE(peak + 1, PeakPages(window, positions, rows)) << window << " " << rows;
    }
  }
}

TEST(Invariants, FindsALeakedPage) {
  const PoolSpec specs[] = {{.pages = 4}};
  PageBook book(specs);
  SequencePages sequence(book);
  book.Reserve(sequence, 40)->Commit(40, {});
  EXPECT_NE(Problem(book, {}), "");
  EXPECT_NE(Problem(book, {&sequence, &sequence}), "");
  auto open = book.Reserve(sequence, 30);
  EXPECT_NE(Problem(book, {&sequence}), "");
}

TEST(PageBook, RandomUseKeepsTheInvariants) {
  std::mt19937 random(7);
  const PoolSpec specs[] = {{.pages = 40}, {.pages = 25, .window = 70}, {.pages = 30, .window = 9}};
  PageBook book(specs);
  std::vector<std::unique_ptr<SequencePages>> sequences;
  for (int i = 0; i < 6; ++i) sequences.push_back(std::make_unique<SequencePages>(book));
  for (int step = 0; step < 4000; ++step) {
    SequencePages& sequence = *sequences[random() % sequences.size()];
    const int room = book.Room(sequence, 1 + static_cast<int>(random() % 90));
    if (random() % 8 == 0 || room <= 0) {
      sequence.Clear();
    } else {
      auto reservation = book.Reserve(sequence, room);
      ASSERT_TRUE(reservation);
      if (random() % 3 != 0) reservation->Commit(static_cast<int>(random() % (room + 1)), {});
    }
    std::vector<const SequencePages*> all;
    for (const auto& s : sequences) all.push_back(s.get());
    ASSERT_EQ(Problem(book, all), "") << step;
  }
}

}  // namespace
}  // namespace nibble
