#include "sched/draft_policy.h"

#include <algorithm>
#include <queue>

namespace nibble {
namespace {

// The next row of an offer.
struct NextRow {
  double worth = 0;  // chance that it is accepted with all before it
  size_t offer = 0;
  bool operator<(const NextRow& other) const {
    return worth != other.worth ? worth < other.worth : offer > other.offer;
  }
};

constexpr double kLeastWorth = 0.01;

// Load that one more row adds at a position where a row of the sequence was planned just before.
StepLoad RowLoad(int position) {
  return {.rows = 1, .kv_tokens = int64_t{position} + 1, .logit_rows = 1, .kv_reads = 1};
}

// A row that opens a tile of the kernels costs as much as three more in it, which a table with
// points at whole tiles does not show.
double Seconds(const StepPrice& price, StepLoad load) {
  const int over = load.rows % kRowTile;
  if (load.rows > kRowTile && over > 0) load.rows += std::min(2, kRowTile - over);
  return price.Seconds(load);
}

}  // namespace

std::vector<int> ChooseDrafts(const StepPrice& price, const StepLoad& step, const DraftRoom& room,
                              std::span<const DraftOffer> offers) {
  std::vector<int> chosen(offers.size(), 0);
  std::priority_queue<NextRow> next;
  for (size_t i = 0; i < offers.size(); ++i) {
    if (!offers[i].chances.empty()) next.push({offers[i].chances[0], i});
  }
  std::vector<size_t> order;  // offers whose rows were taken, one after another
  std::vector<int> taken(offers.size(), 0);
  const double least = price.known() ? kLeastWorth : 0.5;
  StepLoad load = step;
  double expected = room.answers;
  double cost_s = 0;
  double best = price.known() ? expected / Seconds(price, step) * kDraftGain : 0;
  size_t best_rows = 0;
  while (!next.empty() && static_cast<int>(order.size()) < room.rows) {
    const NextRow row = next.top();
    next.pop();
    if (row.worth < least) break;
    const DraftOffer& offer = offers[row.offer];
    load = load + RowLoad(offer.first + taken[row.offer]);
    cost_s += offer.cost_s;
    expected += row.worth;
    order.push_back(row.offer);
    const auto behind = static_cast<size_t>(++taken[row.offer]);
    if (behind < offer.chances.size()) {
      next.push({row.worth * offer.chances[behind], row.offer});
    }
    const double seconds = price.known() ? Seconds(price, load) : 1;
    if (price.known() && seconds > room.seconds) break;
    const double rate = expected / (seconds + cost_s);
    if (rate > best) {
      best = rate;
      best_rows = order.size();
    }
  }
  for (size_t i = 0; i < best_rows; ++i) ++chosen[order[i]];
  return chosen;
}

}  // namespace nibble
