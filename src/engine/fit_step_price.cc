#include "engine/fit_step_price.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace nibble {
namespace {

// Rows, and positions before them, of the step that shows what attention costs.
constexpr int kDeepRows = 16;
constexpr int kDepth = 2048;
// Steps of few rows are what answers take: their least of several counts, the first are cold. Two
// are enough where they take long.
constexpr int kRepeatsOfFew = 6;
constexpr double kLongS = 0.05;

class NoSink : public LogitsSink {
 public:
  void Rows(int /*first*/, MatrixView<float> /*logits*/) override {}
};

class Fitting {
 public:
  Fitting(Executor& executor, const FitInput& input) : executor_(executor), input_(input) {
    out_.touched.resize(input.pools.size());
  }

  FittedStepPrice Run() {
    const double end = input_.clock() + input_.patience_s;
    const int most = std::min(input_.max_rows, input_.max_context);
    for (int rows = 1; rows <= most; rows = rows == 1 && !input_.fine ? 8 : rows * 2) {
      const auto seconds = Measure(0, rows, 1);
      if (!seconds) break;
      points_.push_back({rows, *seconds});
      if (input_.clock() > end) break;
    }
    if (points_.empty()) return std::move(out_);
    double logit_row_s = 0;
    const size_t several = std::min<size_t>(points_.size() - 1, input_.fine ? 3 : 1);
    if (several > 0) {
      const int rows = points_[several].rows;
      const auto all = Measure(0, rows, rows);
      if (all) logit_row_s = std::max(0.0, *all - points_[several].seconds) / (rows - 1);
    }
    FitAttention();
    // What StepPrice adds for the loads that were measured is in the measured times.
    const StepPrice added({{1, 0}}, kv_token_s_, logit_row_s, kv_read_s_);
    for (StepPrice::Point& point : points_) {
      point.seconds = std::max(0.0, point.seconds - added.Seconds(LoadOf(0, point.rows, true)));
    }
    out_.price = StepPrice(std::move(points_), kv_token_s_, logit_row_s, kv_read_s_);
    return std::move(out_);
  }

 private:
  // Seconds of one step of so many rows behind `first` positions (whole pages) that nobody
  // computed, the last `logits` rows of which give logits.
  std::optional<double> Measure(int first, int rows, int logits) {
    PageBook book(input_.pools);
    SequencePages pages(book);
    const std::vector<TokenId> all(static_cast<size_t>(first + rows), TokenId{0});
    for (int done = 0; done < first; done += kPageTokens) {  // open pages hold a step's rows only
      auto before = book.Reserve(pages, kPageTokens);
      if (!before) return std::nullopt;
      before->Commit(kPageTokens, {.prompt = all, .answer = {}});
    }
    // From the start on, the first row is another sequence's, as an answer beside a chunk is.
    const int beside = first == 0 && rows > 1 ? 1 : 0;
    SequencePages other(book);
    const auto answer = book.Reserve(other, beside);
    const auto reservation = book.Reserve(pages, rows - beside);
    if (!answer || !reservation) return std::nullopt;
    if (first == 0) Touched(book);  // pages that are only read take no memory
    const std::span tokens = std::span(all).first(static_cast<size_t>(rows));
    std::vector<int> logit_rows(static_cast<size_t>(logits));
    std::iota(logit_rows.begin(), logit_rows.end(), rows - logits);
    const ExecuteSpan both[] = {{.first = 0, .rows = beside, .pages = &other},
                                {.first = first, .rows = rows - beside, .pages = &pages}};
    const std::span spans = std::span(both).last(beside > 0 ? 2 : 1);
    NoSink sink;
    double best = 0;
    double spent = 0;
    const int repeats = rows <= kDeepRows ? kRepeatsOfFew : 2;
    for (int repeat = 0; repeat < repeats && (repeat < 2 || spent < kLongS); ++repeat) {
      const double begin = input_.clock();
      if (!executor_.Execute({tokens, spans, logit_rows}, sink)) return std::nullopt;
      const double seconds = input_.clock() - begin;
      spent += seconds;
      best = repeat == 0 ? seconds : std::min(best, seconds);
    }
    return best;
  }

  void Touched(const PageBook& book) {
    for (int g = 0; g < book.groups(); ++g) {
      FormPages& of = out_.touched[static_cast<size_t>(g)];
      of.pages = std::max(of.pages, book.pool(g).touched());
      of.open = std::max(of.open, book.open_pool(g).touched());
    }
  }

  // Rows behind d positions cost d · token each, measured on several rows of one sequence, as the
  // chunks of a prompt are. A row alone costs at least what its bytes take at the speed at which
  // one row reads the weights (pages that nobody wrote may cost less): `read` is the difference.
  void FitAttention() {
    const double byte_s = points_[0].seconds /
                          static_cast<double>(std::max<size_t>(executor_.WeightBytesPerStep(), 1));
    // On average down to that depth: most pages are sealed there, and windows have stopped growing.
    const int last = std::min(kDepth, input_.max_context) - 1;
    kv_read_s_ = executor_.KvBytesRead(last) / (last + 1) * byte_s;
    const int depth = std::min(kDepth, input_.max_context - kDeepRows) / kPageTokens * kPageTokens;
    if (depth < 8 * kDeepRows || input_.max_rows < kDeepRows) return;
    const auto flat = Measure(0, kDeepRows, 1);
    const auto deep = Measure(depth, kDeepRows, 1);
    if (!flat || !deep) return;
    kv_token_s_ = std::max(0.0, *deep - *flat) / (depth * kDeepRows);
    kv_read_s_ = std::max(0.0, kv_read_s_ - kv_token_s_);
  }

  Executor& executor_;
  const FitInput& input_;
  FittedStepPrice out_;
  std::vector<StepPrice::Point> points_;
  double kv_token_s_ = 0;
  double kv_read_s_ = 0;
};

}  // namespace

FittedStepPrice FitStepPrice(Executor& executor, const FitInput& input) {
  return Fitting(executor, input).Run();
}

}  // namespace nibble
