// Sharing of pages: the prefix index, hits, forks, and the two forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "kv/invariants.h"
#include "kv/page_book.h"

namespace nibble {
namespace {

using Pools = std::vector<PoolSpec>;
using Tokens = std::vector<TokenId>;

Tokens Count(int n, int first = 0) {
  Tokens tokens;
  for (int i = 0; i < n; ++i) tokens.emplace_back(first + i);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TokenList List(const Tokens& tokens) { return {.prompt = tokens}; }

// A sequence with its tokens.
struct Owned {
  explicit Owned(PageBook& book) : pages(book) {}
  Tokens tokens;
  PrefixCursor cursor;
  SequencePages pages;
};

// Some sequences over one book, checked after every change.
class Fixture {
 public:
  explicit Fixture(std::vector<PoolSpec> specs, PageBookOptions options = {.prefix_cache = true})
      : book_(specs, options) {}

  // A sequence that takes what the cache has and computes the rest; its hit is in hit().
  Owned& Run(const Tokens& tokens, int chunk = 1 << 20) {
    Owned& sequence = *all_.emplace_back(std::make_unique<Owned>(book_));
    sequence.tokens = tokens;
    const PrefixHit found = book_.FindPrefix(sequence.cursor, List(tokens), 1 << 30);
    hit_ = found.positions;
    book_.Attach(sequence.pages, found);
    Check();
    Extend(sequence, chunk);
    return sequence;
  }
  void Extend(Owned& sequence, int chunk = 1 << 20) {
    const int end = static_cast<int>(sequence.tokens.size());
    while (sequence.pages.committed() < end) {
      const int rows = std::min(chunk, end - sequence.pages.committed());
      auto reservation = book_.Reserve(sequence.pages, rows);
      ASSERT_TRUE(reservation);
      copies_ += static_cast<int>(reservation->copies().size());
      reservation->Commit(rows, List(sequence.tokens));
      Check();
    }
  }
  Owned& Fork(const Owned& from, int most) {
    Owned& to = *all_.emplace_back(std::make_unique<Owned>(book_));
    to.tokens = from.tokens;
    hit_ = book_.Fork(from.pages, to.pages, most);
    Check();
    return to;
  }
  void End(const Owned& sequence) {
    std::erase_if(all_, [&](const auto& one) { return one.get() == &sequence; });
    Check();
  }
  int Hit(const Tokens& tokens, int most = 1 << 30) {
    PrefixCursor cursor;
    return book_.FindPrefix(cursor, List(tokens), most).positions;
  }
  void Check() {
    std::vector<CheckedSequence> checked;
    for (const auto& one : all_) checked.push_back({&one->pages, List(one->tokens)});
    ASSERT_EQ(FindPageProblem(book_, checked).value_or(""), "");
  }

  PageBook& book() { return book_; }
  std::vector<std::unique_ptr<Owned>>& all() { return all_; }
  int hit() const { return hit_; }
  int copies() const { return copies_; }

 private:
  PageBook book_;
  std::vector<std::unique_ptr<Owned>> all_;
  int hit_ = 0;
  int copies_ = 0;
};

TEST(PrefixCache, AHitIsWholeUnitsAndEndsBeforeTheLastTokensUnit) {
  Fixture fixture(Pools{{.pages = 20}});
  fixture.Run(Count(100));
  EXPECT_EQ(fixture.Hit(Count(100)), 96);
  EXPECT_EQ(fixture.Hit(Count(97)), 96);
  EXPECT_EQ(fixture.Hit(Count(96)), 64);  // its last token's unit must be open
  EXPECT_EQ(fixture.Hit(Count(500)), 96);
  EXPECT_EQ(fixture.Hit(Count(100), 95), 64);
  EXPECT_EQ(fixture.Hit(Count(31)), 0);
  EXPECT_EQ(fixture.Hit(Count(70, 1)), 0);
  EXPECT_EQ(fixture.Hit(Count(64) + Count(40)), 64);
}

TEST(PrefixCache, SharersHoldOneCopy) {
  Fixture fixture(Pools{{.pages = 20}});
  Owned& first = fixture.Run(Count(100));
  Owned& second = fixture.Run(Count(96) + Count(40, 500));
  EXPECT_EQ(fixture.hit(), 96);
  EXPECT_EQ(fixture.book().pool(0).used_pages(), 4 + 2);
  EXPECT_EQ(first.pages.table(0)[2], second.pages.table(0)[2]);
  EXPECT_NE(first.pages.table(0)[3], second.pages.table(0)[3]);
  fixture.End(first);
  EXPECT_EQ(fixture.book().pool(0).used_pages(), 5);
  fixture.End(second);
  EXPECT_EQ(fixture.book().pool(0).used_pages(), 0);
  EXPECT_EQ(fixture.book().pool(0).evictable_pages(), 4);  // full ones
  fixture.Run(Count(96) + Count(40, 500));
  EXPECT_EQ(fixture.hit(), 128);
}

TEST(PrefixCache, TwoThatComputeTheSameAtOnceEndWithOneCopy) {
  Fixture fixture(Pools{{.pages = 20}});
  Owned& first = fixture.Run({});
  Owned& second = fixture.Run({});
  first.tokens = second.tokens = Count(70);
  fixture.Extend(first);
  fixture.Extend(second);
  EXPECT_EQ(fixture.book().pool(0).used_pages(), 2 + 2);
}

TEST(PrefixCache, TailsAreEvictedFirstAndRecentUseCounts) {
  Fixture fixture(Pools{{.pages = 8}});
  fixture.End(fixture.Run(Count(97)));        // 3 units
  fixture.End(fixture.Run(Count(97, 1000)));  // 3 others
  EXPECT_EQ(fixture.book().pool(0).evictable_pages(), 6);
  fixture.End(fixture.Run(Count(97)));        // used again: the others are older now
  fixture.End(fixture.Run(Count(97, 2000)));  // needs 4 pages: 2 free ones, 2 evicted
  EXPECT_EQ(fixture.Hit(Count(97)), 96);
  EXPECT_EQ(fixture.Hit(Count(97, 1000)), 32);
  EXPECT_EQ(fixture.Hit(Count(97, 2000)), 96);
}

TEST(PrefixCache, ACollisionNeverGivesSomebodyElsesPages) {
  Fixture fixture(Pools{{.pages = 40}}, {.prefix_cache = true, .hash = {.mask = 0}});
  Owned& first = fixture.Run(Count(70));
  EXPECT_EQ(fixture.Hit(Count(70)), 32);  // its second unit collides with its first
  EXPECT_EQ(fixture.Hit(Count(70, 7)), 0);
  Owned& other = fixture.Run(Count(70, 7));
  EXPECT_EQ(fixture.hit(), 0);
  EXPECT_EQ(other.pages.units(), 0);
  fixture.End(first);
  EXPECT_EQ(fixture.Hit(Count(70)), 32);
}

// Who does not know the seed cannot make a prompt that takes another's place.
TEST(PrefixIndex, WhichTokensCollideDependsOnTheSeed) {
  const auto refused = [](uint64_t seed) {
    PrefixIndex index(32, 1, {.seed = seed, .mask = 0xff});
    std::vector<int> units;
    for (int i = 0; i < 64; ++i) {
      const Tokens tokens = Count(32, 100 * i);
      if (index.Add(kNoUnit, List(tokens), 0) == kNoUnit) units.push_back(i);
    }
    return units;
  };
  const std::vector<int> first = refused(1);
  const std::vector<int> second = refused(2);
  EXPECT_FALSE(first.empty());
  EXPECT_FALSE(second.empty());
  EXPECT_EQ(first, refused(1));
  std::vector<int> both;
  std::ranges::set_intersection(first, second, std::back_inserter(both));
  EXPECT_LT(both.size(), std::min(first.size(), second.size()));
}

TEST(PrefixCache, AWindowNeedsOnlyItsPages) {
  // The query at n sees n - 39 … n - 1 and itself.
  Fixture fixture(Pools{{.pages = 40}, {.pages = 40, .window = 40}});
  Owned& first = fixture.Run(Count(330));
  EXPECT_EQ(first.pages.held(1).pages, 2);
  EXPECT_EQ(fixture.book().pool(1).used_pages(), 2);
  EXPECT_EQ(fixture.Hit(Count(330)), 320);
  fixture.Run(Count(200) + Count(100, 900));
  EXPECT_EQ(fixture.hit(), 192);
  EXPECT_EQ(fixture.all()[1]->pages.table(1)[4], kNoPage);
}

TEST(PrefixCache, AHitIsCutToWhereAWindowsPagesAre) {
  Fixture fixture(Pools{{.pages = 40}, {.pages = 6, .window = 40}});
  Owned& first = fixture.Run(Count(330), 32);
  // Six window pages: those of the last four units before the tail are left.
  EXPECT_EQ(fixture.Hit(Count(330)), 320);
  EXPECT_EQ(fixture.Hit(Count(100) + Count(50, 900)), 0);  // pages 1 and 2 are gone
  fixture.End(first);
  EXPECT_EQ(fixture.Hit(Count(330)), 320);
}

TEST(PrefixCache, WithoutItNothingIsKept) {
  Fixture fixture(Pools{{.pages = 20}}, {});
  fixture.End(fixture.Run(Count(100)));
  EXPECT_EQ(fixture.book().pool(0).evictable_pages(), 0);
  EXPECT_EQ(fixture.Hit(Count(100)), 0);
}

TEST(Fork, CopiesOnlyThePartlyFilledPage) {
  for (const bool cache : {false, true}) {
    Fixture fixture(Pools{{.pages = 20}}, {.prefix_cache = cache});
    Owned& first = fixture.Run(Count(100));
    Owned& second = fixture.Fork(first, 99);
    EXPECT_EQ(fixture.hit(), 99);
    EXPECT_EQ(fixture.book().pool(0).used_pages(), 4);
    {
      auto dropped = fixture.book().Reserve(second.pages, 1);
      ASSERT_EQ(dropped->copies().size(), 1U);
      EXPECT_EQ(dropped->copies()[0].filled, 3);
      EXPECT_EQ(dropped->copies()[0].from, first.pages.table(0)[3]);
      EXPECT_EQ(dropped->copies()[0].to, second.pages.table(0)[3]);
    }
    EXPECT_EQ(second.pages.table(0)[3], first.pages.table(0)[3]);
    fixture.Check();
    fixture.Extend(second);
    first.tokens = first.tokens + Count(60, 700);
    fixture.Extend(first);  // alone with its page by now: no copy
    EXPECT_EQ(fixture.copies(), 1);
    EXPECT_EQ(fixture.book().pool(0).used_pages(), 3 + 1 + 2);
  }
}

TEST(Fork, AListedPageIsNotWrittenEvenByItsOnlyOwner) {
  Fixture fixture(Pools{{.pages = 20}});
  Owned& first = fixture.Run(Count(128));
  Owned& second = fixture.Fork(first, 100);  // in the middle of a full page
  fixture.End(first);
  second.tokens = Count(100) + Count(30, 900);
  fixture.Extend(second);
  EXPECT_EQ(fixture.copies(), 1);
  EXPECT_EQ(fixture.Hit(Count(129)), 128);
  EXPECT_EQ(fixture.Hit(Count(100) + Count(30, 900)), 128);
}

TEST(Fork, NeedsWhatItsFirstQuerySees) {
  Fixture fixture(Pools{{.pages = 40}, {.pages = 40, .window = 40}}, {});
  Owned& first = fixture.Run(Count(200));
  fixture.Fork(first, 199);
  EXPECT_EQ(fixture.hit(), 199);
  fixture.Fork(first, 90);  // pages of its window are gone
  EXPECT_EQ(fixture.hit(), 0);
}

// Units of four pages, sealed from 128 on.
Pools TwoForms(int pages, int open) {
  return {{.pages = pages, .unit_pages = 4, .open_pages = open}, {.pages = 2 * pages}};
}

TEST(TwoForms, PagesAreOpenUntilTheirUnitIsFull) {
  Fixture fixture(TwoForms(40, 20));
  Owned& one = fixture.Run(Count(127));
  EXPECT_EQ(one.pages.held(0).pages, 0);
  EXPECT_EQ(one.pages.held(0).open, 4);
  one.tokens = Count(128);
  fixture.Extend(one);
  EXPECT_EQ(one.pages.held(0).pages, 4);
  EXPECT_EQ(one.pages.held(0).open, 0);
  one.tokens = Count(300);
  auto reservation = fixture.book().Reserve(one.pages, 172);
  EXPECT_EQ(one.pages.held(0).pages, 8);  // both forms of the second unit while it is computed
  EXPECT_EQ(one.pages.held(0).open, 6);
  EXPECT_EQ(one.pages.open_table(0)[3], kNoPage);
  reservation->Commit(40, List(one.tokens));  // not enough for the second unit
  fixture.Check();
  EXPECT_EQ(one.pages.held(0).pages, 4);
  EXPECT_EQ(one.pages.held(0).open, 2);
  fixture.Extend(one);
  EXPECT_EQ(fixture.Hit(Count(300)), 256);
  EXPECT_EQ(fixture.Hit(Count(256)), 128);
  EXPECT_EQ(fixture.Hit(Count(250)), 128);
}

TEST(TwoForms, AForkSharesOpenPagesAndCopiesTheLast) {
  Fixture fixture(TwoForms(40, 20));
  Owned& one = fixture.Run(Count(128 + 70));
  Owned& two = fixture.Fork(one, 128 + 69);
  EXPECT_EQ(fixture.hit(), 197);
  EXPECT_EQ(fixture.book().open_pool(0).used_pages(), 3);
  fixture.Extend(two);
  EXPECT_EQ(fixture.copies(), 2);  // one in each group
  EXPECT_EQ(fixture.book().open_pool(0).used_pages(), 4);
  Owned& early = fixture.Fork(one, 127);  // that open form is gone
  EXPECT_EQ(fixture.hit(), 0);
  EXPECT_EQ(early.pages.committed(), 0);
}

TEST(TwoForms, RoomAndCapacityKeepBothForms) {
  Fixture fixture(TwoForms(4, 6));
  EXPECT_EQ(fixture.book().Capacity(), 128 + 127);  // the last unit need not be sealed
  Owned& one = fixture.Run({});
  EXPECT_EQ(fixture.book().Room(one.pages, 1000), 6 * 32);
  one.tokens = Count(128);
  fixture.Extend(one);
  EXPECT_EQ(fixture.book().Room(one.pages, 1000), 127);  // no sealed page is left
  Fixture small(TwoForms(40, 3));
  EXPECT_EQ(small.book().Capacity(), 96);
}

// Contents of pages as an executor keeps them: [group][page * 32 + slot] position's token.
class Memory {
 public:
  explicit Memory(const std::vector<PoolSpec>& specs) {
    for (const PoolSpec& spec : specs) {
      pages_.emplace_back(static_cast<size_t>(spec.pages * kPageTokens), kNoToken);
      open_.emplace_back(static_cast<size_t>(spec.open_pages * kPageTokens), kNoToken);
    }
  }
  void Compute(const PageBook& book, const PageReservation& reservation, const Owned& sequence) {
    for (const PageCopy& copy : reservation.copies()) {
      std::vector<TokenId>& bytes = (book.two_forms(copy.group) ? open_ : pages_)[copy.group];
      for (int i = 0; i < copy.filled; ++i) {
        bytes[static_cast<size_t>(copy.to.value() * kPageTokens + i)] =
            bytes[static_cast<size_t>(copy.from.value() * kPageTokens + i)];
      }
    }
    const int end = sequence.pages.committed() + reservation.positions();
    for (int g = 0; g < book.groups(); ++g) {
      const int unit = book.spec(g).unit_pages * kPageTokens;
      for (int p = sequence.pages.committed(); p < end; ++p) {
        (book.two_forms(g) ? Open(sequence, g, p) : Sealed(sequence, g, p)) = sequence.tokens[p];
      }
      for (int p = sequence.pages.committed() / unit * unit; p < end / unit * unit; ++p) {
        if (book.two_forms(g)) Sealed(sequence, g, p) = Open(sequence, g, p);
      }
    }
  }
  // Every position that the next query sees is there, in the form that is due.
  bool Right(const PageBook& book, const Owned& sequence) {
    const int committed = sequence.pages.committed();
    for (int g = 0; g < book.groups(); ++g) {
      const int sealed = book.Ends(g, committed).pages * kPageTokens;
      for (int p = book.FirstVisible(g, committed) * kPageTokens; p < committed; ++p) {
        const TokenId token = p < sealed ? Sealed(sequence, g, p) : Open(sequence, g, p);
        if (token != sequence.tokens[static_cast<size_t>(p)]) return false;
      }
    }
    return true;
  }

 private:
  TokenId& Sealed(const Owned& sequence, int g, int p) {
    const PageId page = sequence.pages.table(g)[static_cast<size_t>(p / kPageTokens)];
    return pages_[g].at(static_cast<size_t>(page.value() * kPageTokens + p % kPageTokens));
  }
  TokenId& Open(const Owned& sequence, int g, int p) {
    const PageId page = sequence.pages.open_table(g)[static_cast<size_t>(p / kPageTokens)];
    return open_[g].at(static_cast<size_t>(page.value() * kPageTokens + p % kPageTokens));
  }
  std::vector<std::vector<TokenId>> pages_;
  std::vector<std::vector<TokenId>> open_;
};

// A prompt that waits, as the longest-prefix policy looks at it again and again.
struct Waiting {
  Tokens tokens;
  PrefixCursor cursor;
};
// What a cursor and the memo remember makes look-ups cheaper, never different.
void CheckKeptCursors(Fixture& fixture, std::vector<Waiting>& waiting) {
  PrefixMemo memo;
  for (Waiting& one : waiting) {
    const TokenList tokens = List(one.tokens);
    const int hit = fixture.book().FindPrefix(one.cursor, tokens, 1 << 30, &memo).positions;
    ASSERT_EQ(hit, fixture.Hit(one.tokens));
  }
}

// Arrivals, ends, forks, partly accepted and dropped reservations, over prompts that share
// prefixes.
TEST(PrefixCache, RandomUseKeepsTheInvariantsAndTheContents) {
  int hits = 0, forks = 0, copies = 0, refusals = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
    };
    const bool two = seed % 2 == 1;
    const std::vector<PoolSpec> specs = {
        {.pages = pick(24, 60), .unit_pages = two ? 4 : 1, .open_pages = two ? pick(8, 30) : 0},
        {.pages = pick(20, 60), .window = pick(1, 150), .open_pages = seed % 3 == 2 ? 20 : 0},
        {.pages = pick(24, 60)}};
    const uint64_t mask = seed % 4 == 3 ? 15 : ~uint64_t{0};
    Fixture fixture(specs, {.prefix_cache = seed % 5 != 4, .hash = {.mask = mask}});
    Memory memory(specs);
    std::vector<Waiting> waiting(6);
    for (int i = 0; i < 6; ++i) {
      waiting[static_cast<size_t>(i)].tokens =
          Count(64 * i, 1000 * (i % 3)) + Count(60, pick(0, 600));
    }
    for (int step = 0; step < 600; ++step) {
      auto& all = fixture.all();
      if (all.size() < 5 && pick(0, 2) == 0) {
        // One of three prefixes, an own suffix.
        fixture.Run({});
        Owned& added = *all.back();
        added.tokens = Count(pick(0, 8) * 32, 1000 * pick(0, 2)) + Count(pick(1, 90), step);
        const PrefixHit hit = fixture.book().FindPrefix(added.cursor, List(added.tokens), 1 << 30);
        fixture.book().Attach(added.pages, hit);
        hits += hit.positions > 0 ? 1 : 0;
      } else if (!all.empty()) {
        Owned& one = *all[static_cast<size_t>(pick(0, static_cast<int>(all.size()) - 1))];
        const int pending = static_cast<int>(one.tokens.size()) - one.pages.committed();
        if (pick(0, 9) == 0 || pending == 0) {
          if (pick(0, 1) == 0) {
            one.tokens = one.tokens + Count(pick(1, 60), step);
          } else if (pick(0, 2) > 0) {
            fixture.End(one);
          } else if (all.size() < 8) {
            fixture.Fork(one, pick(0, one.pages.committed()));
            forks += fixture.hit() > 0 ? 1 : 0;
          }
        } else {
          const int rows = fixture.book().Room(one.pages, pick(1, pending));
          if (rows <= 0) {
            ++refusals;
            fixture.End(*all.front());
            continue;
          }
          auto reservation = fixture.book().Reserve(one.pages, rows);
          ASSERT_TRUE(reservation);
          copies += static_cast<int>(reservation->copies().size());
          memory.Compute(fixture.book(), *reservation, one);
          if (pick(0, 4) > 0) reservation->Commit(pick(0, rows), List(one.tokens));
        }
      }
      fixture.Check();
      CheckKeptCursors(fixture, waiting);
      if (::testing::Test::HasFatalFailure()) return;
      for (const auto& one : all) ASSERT_TRUE(memory.Right(fixture.book(), *one)) << seed;
    }
    fixture.all().clear();
    fixture.Check();
    for (int g = 0; g < 3; ++g) EXPECT_EQ(fixture.book().pool(g).used_pages(), 0);
  }
  EXPECT_GT(hits, 50);
  EXPECT_GT(forks, 50);
  EXPECT_GT(copies, 50);
  EXPECT_GT(refusals, 50);
}

}  // namespace
}  // namespace nibble
