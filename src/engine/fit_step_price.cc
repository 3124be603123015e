#include "engine/fit_step_price.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace nibble {
namespace {

class NoSink : public LogitsSink {
 public:
  void Rows(int /*first*/, MatrixView<float> /*logits*/) override {}
};

// Seconds of one step of so many rows, the last `logits` of which give logits.
std::optional<double> Measure(Executor& executor, const FitInput& input, int rows, int logits,
                              std::vector<FormPages>& touched) {
  PageBook book(input.pools);
  SequencePages pages(book);
  const auto reservation = book.Reserve(pages, rows);
  if (!reservation) return std::nullopt;
  for (int g = 0; g < book.groups(); ++g) {
    FormPages& pages_of = touched[static_cast<size_t>(g)];
    pages_of.pages = std::max(pages_of.pages, book.pool(g).touched());
    pages_of.open = std::max(pages_of.open, book.open_pool(g).touched());
  }
  const std::vector<TokenId> tokens(static_cast<size_t>(rows), TokenId{0});
  std::vector<int> logit_rows(static_cast<size_t>(logits));
  std::iota(logit_rows.begin(), logit_rows.end(), rows - logits);
  const ExecuteSpan span{.first = 0, .rows = rows, .pages = &pages};
  NoSink sink;
  double best = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const double begin = input.clock();
    if (!executor.Execute({tokens, {&span, 1}, logit_rows}, sink)) return std::nullopt;
    const double seconds = input.clock() - begin;
    best = repeat == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace

FittedStepPrice FitStepPrice(Executor& executor, const FitInput& input) {
  const double end = input.clock() + input.patience_s;
  const int most = std::min(input.max_rows, input.max_context);
  std::vector<StepPrice::Point> points;
  FittedStepPrice fitted{.touched = std::vector<FormPages>(input.pools.size())};
  for (int rows = 1; rows <= most; rows = rows == 1 ? 8 : rows * 4) {
    const auto seconds = Measure(executor, input, rows, 1, fitted.touched);
    if (!seconds) break;
    points.push_back({rows, *seconds});
    if (input.clock() > end) break;
  }
  if (points.empty()) return fitted;
  const double byte_s =
      points[0].seconds / static_cast<double>(std::max<size_t>(executor.WeightBytesPerStep(), 1));
  // KvBytesRead counts windows, which stop growing: the first position's are those of all groups.
  const double kv_token_s = executor.KvBytesRead(0) * byte_s;
  double logit_row_s = 0;
  if (points.size() > 1) {
    const auto all = Measure(executor, input, points[1].rows, points[1].rows, fitted.touched);
    if (all) logit_row_s = std::max(0.0, *all - points[1].seconds) / (points[1].rows - 1);
  }
  // What StepPrice adds for the loads that were measured is in the measured times.
  for (StepPrice::Point& point : points) {
    const StepLoad load = LoadOf(0, point.rows, true);
    point.seconds = std::max(0.0, point.seconds - kv_token_s * static_cast<double>(load.kv_tokens) -
                                      logit_row_s * load.logit_rows);
  }
  fitted.price = StepPrice(std::move(points), kv_token_s, logit_row_s);
  return fitted;
}

}  // namespace nibble
