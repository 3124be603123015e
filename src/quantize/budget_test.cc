#include "quantize/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "container/tensor_source.h"

namespace nibble {
namespace {

using Items = std::vector<std::vector<BudgetOption>>;

struct Totals {
  uint64_t bytes = 0;
  double loss = 0;
};

Totals Sum(const Items& items, const std::vector<size_t>& chosen) {
  Totals totals;
  for (size_t i = 0; i < items.size(); ++i) {
    totals.bytes += items[i][chosen[i]].bytes;
    totals.loss += items[i][chosen[i]].loss;
  }
  return totals;
}

// The least loss within the budget, by trying all.
double Least(const Items& items, uint64_t budget) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<size_t> at(items.size());
  while (true) {
    const Totals totals = Sum(items, at);
    if (totals.bytes <= budget) least = std::min(least, totals.loss);
    size_t i = 0;
    while (i < items.size() && ++at[i] == items[i].size()) at[i++] = 0;
    if (i == items.size()) return least;
  }
}

TEST(Budget, IsKeptAndWithinOneStepOfTheBest) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Items items(4);
    double largest_loss = 0;
    uint64_t least = 0;
    for (auto& item : items) {
      for (int i = 0; i < 4; ++i) {
        item.push_back({.bytes = 1 + random() % 50, .loss = static_cast<double>(random() % 1000)});
        largest_loss = std::max(largest_loss, item.back().loss);
      }
      least += std::ranges::min(item, {}, &BudgetOption::bytes).bytes;
    }
    const uint64_t budget = least + random() % 60;
    const auto chosen = ChooseWithinBudget(items, budget);
    ASSERT_TRUE(chosen.has_value());
    const Totals totals = Sum(items, *chosen);
    EXPECT_LE(totals.bytes, budget);
    EXPECT_LE(totals.loss, Least(items, budget) + largest_loss);
    EXPECT_FALSE(ChooseWithinBudget(items, least - 1).has_value());
  }
}

TEST(Budget, SpendsWhereAByteTakesMostAway) {
  const Items items = {{{10, 8}, {20, 4}, {40, 3.9}}, {{10, 1}, {20, 0.5}, {40, 0.1}}};
  EXPECT_EQ(*ChooseWithinBudget(items, 20), (std::vector<size_t>{0, 0}));
  EXPECT_EQ(*ChooseWithinBudget(items, 30), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(*ChooseWithinBudget(items, 40), (std::vector<size_t>{1, 1}));
  EXPECT_EQ(*ChooseWithinBudget(items, 80), (std::vector<size_t>{2, 2}));
}

TEST(Budget, AnOptionThatCostsMoreAndGivesNothingIsNeverTaken) {
  const Items items = {{{10, 1}, {20, 1}, {15, 2}}};
  EXPECT_EQ(*ChooseWithinBudget(items, 100), (std::vector<size_t>{0}));
}

TEST(Budget, FormatsDivideTheColumnsAndAreNoLargerThanTheSource) {
  const auto formats = [](uint64_t cols, Format stored) {
    SourceTensor tensor;
    tensor.name = "w";
    tensor.format = stored;
    tensor.rank = 2;
    tensor.shape = {4, cols};
    return BudgetFormats({.name = "w", .tensor = &tensor});
  };
  const auto wide = formats(512, Format::kBF16);
  EXPECT_EQ(wide.front(), Format::kQ2K);
  EXPECT_EQ(wide.back(), Format::kBF16);
  const auto narrow = formats(64, Format::kF32);
  EXPECT_EQ(narrow.front(), Format::kIq4Nl);
  EXPECT_EQ(formats(172, Format::kF32), (std::vector<Format>{Format::kF16, Format::kF32}));
  const auto eight = formats(512, Format::kQ8_0);
  EXPECT_EQ(eight.back(), Format::kQ8_0);
  EXPECT_EQ(std::ranges::count(eight, Format::kF16), 0);
}

}  // namespace
}  // namespace nibble
