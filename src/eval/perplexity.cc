#include "eval/perplexity.h"

#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/event_stream.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_table.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

// Negative log-likelihoods of one window's scored predictions.
class WindowScorer : public PositionLogitsSink {
 public:
  WindowScorer(const KernelTable& kernels, std::vector<TokenId> ids)
      : kernels_(kernels), ids_(std::move(ids)) {}

  void Rows(Position first, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      const auto next = static_cast<size_t>((first + r).value()) + 1;
      if (next >= ids_.size()) break;  // the last position predicts nothing of this window
      const LogSumExp sum = ComputeLogSumExp(kernels_, logits.row_span(r));
      losses_.push_back(sum.log_sum_exp - double{logits.row(r)[ids_[next].value()]});
    }
  }

  const std::vector<TokenId>& ids() const { return ids_; }
  std::span<const double> losses() const { return losses_; }

 private:
  const KernelTable& kernels_;
  std::vector<TokenId> ids_;
  std::vector<double> losses_;
};

// A window and what scores it.
struct ScoredWindow {
  std::unique_ptr<WindowScorer> scorer;
  std::unique_ptr<RunningWindow> running;
};

// Sum and sum of squares in window order, so that the result does not depend on timing.
class Totals {
 public:
  void Add(std::span<const double> losses) {
    double window = 0;
    for (const double loss : losses) {
      window += loss;
      squares_ += loss * loss;
    }
    sum_ += window;
    tokens_ += static_cast<int64_t>(losses.size());
    ++chunks_;
  }

  PerplexityResult Result() const {
    PerplexityResult result;
    const auto n = static_cast<double>(tokens_);
    const double mean = sum_ / n;
    result.perplexity = std::exp(mean);
    if (tokens_ > 1) {
      const double variance = std::max(0.0, squares_ / n - mean * mean);
      result.standard_error = result.perplexity * std::sqrt(variance / (n - 1));
    }
    result.tokens = tokens_;
    result.chunks = chunks_;
    return result;
  }

 private:
  double sum_ = 0;
  double squares_ = 0;
  int64_t tokens_ = 0;
  int chunks_ = 0;
};

}  // namespace

Result<PerplexityResult> MeasurePerplexity(Engine& engine, std::span<const TokenId> ids,
                                           const PerplexityOptions& options) {
  NIBBLE_TRY(const TextWindows cut,
             TextWindows::Cut(ids, options.windows, engine.tokenizer(), engine.plan().max_context));
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const KernelTable& kernels = KernelsFor(isa);

  // Two windows in flight: the next one's first step need not wait for this one's reader.
  constexpr int kInFlight = 2;
  std::deque<ScoredWindow> windows;
  Totals totals;
  for (int started = 0, finished = 0; finished < cut.count();) {
    if (started < cut.count() && std::ssize(windows) < kInFlight) {
      ScoredWindow window = {std::make_unique<WindowScorer>(kernels, cut.Ids(started)), nullptr};
      NIBBLE_TRY(window.running, RunningWindow::Start(engine, window.scorer->ids(),
                                                      cut.score_from(), *window.scorer));
      windows.push_back(std::move(window));
      ++started;
      continue;
    }
    NIBBLE_RETURN_IF_ERROR(windows.front().running->Finish());
    totals.Add(windows.front().scorer->losses());
    windows.pop_front();
    ++finished;
    if (options.progress) options.progress(finished, cut.count(), totals.Result().perplexity);
  }
  return totals.Result();
}

}  // namespace nibble
