#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace nibble {
namespace {

TEST(PagePool, HandsOutEveryPageOnceAndCountsOwners) {
  PagePool pool(3);
  std::set<int> seen;
  for (int i = 0; i < 3; ++i) seen.insert(pool.Allocate()->page.value());
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
  EXPECT_FALSE(pool.Allocate());
  pool.Retain(PageId{1});
  pool.Release(PageId{1});
  EXPECT_EQ(pool.free_pages(), 0);
  pool.Release(PageId{1});
  EXPECT_EQ(pool.free_pages(), 1);
  EXPECT_EQ(pool.Allocate()->page, PageId{1});
}

TEST(PagePool, ListedPagesAreEvictedLastAndLeastRecentlyReleasedFirst) {
  PagePool pool(4);
  for (int i = 0; i < 3; ++i) {
    const PageId page = pool.Allocate()->page;
    pool.SetUnit(page, UnitId{10 + i});
  }
  for (const int page : {1, 0, 2}) pool.Release(PageId{page});
  EXPECT_EQ(pool.evictable_pages(), 3);
  EXPECT_EQ(pool.available_pages(), 4);
  pool.Retain(PageId{1});  // from the list's end, back to its other one
  EXPECT_EQ(pool.references(PageId{1}), 1);
  pool.Release(PageId{1});
  EXPECT_EQ(pool.EvictionOrder(), (std::vector<PageId>{PageId{0}, PageId{2}, PageId{1}}));
  EXPECT_EQ(pool.Allocate()->evicted, kNoUnit);  // page 3 was never used
  const auto first = pool.Allocate();
  EXPECT_EQ(first->page, PageId{0});
  EXPECT_EQ(first->evicted, UnitId{10});
  EXPECT_EQ(pool.unit(PageId{0}), kNoUnit);
  EXPECT_EQ(pool.Allocate()->page, PageId{2});
  EXPECT_EQ(pool.Allocate()->page, PageId{1});
  EXPECT_FALSE(pool.Allocate());
  EXPECT_EQ(pool.used_pages(), 4);
}

TEST(PagePool, BookkeepingOfPagesThatWereNeverUsedTakesNoMemory) {
  PagePool pool(1 << 30);
  EXPECT_EQ(pool.Allocate()->page, PageId{0});
  EXPECT_EQ(pool.touched(), 1);
  EXPECT_EQ(pool.free_pages(), (1 << 30) - 1);
}

TEST(PagePoolDeathTest, ReleasingAFreePageIsABug) {
  PagePool pool(1);
  pool.Release(pool.Allocate()->page);
  EXPECT_DEATH(pool.Release(PageId{0}), "CHECK failed");
  EXPECT_DEATH(pool.Retain(PageId{0}), "CHECK failed");
}

}  // namespace
}  // namespace nibble
