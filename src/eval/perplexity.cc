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

// A window in the engine's hands. If it is given up early (an error elsewhere) it is cancelled and
// waited for, since the engine writes into the scorer until its last event.
class Window {
 public:
  static Result<std::unique_ptr<Window>> Start(Engine& engine, const KernelTable& kernels,
                                               std::vector<TokenId> ids, int score_from) {
    auto window = std::unique_ptr<Window>(new Window(engine, kernels, std::move(ids)));
    Request request;
    request.prompt = window->scorer_.ids();
    request.max_tokens = 0;
    request.logits = &window->scorer_;
    request.logits_from = score_from;
    NIBBLE_TRY(window->id_, engine.Submit(std::move(request), window->stream_));
    window->running_ = true;
    return window;
  }

  ~Window() {
    if (!running_) return;
    engine_.Cancel(id_);
    Collect(*stream_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Waits for the end; the losses of its predictions.
  Result<std::span<const double>> Finish() {
    const std::vector<Answer> answers = Collect(*stream_);
    running_ = false;
    const FinishEvent& finish = answers.front().finish;
    if (finish.error) return std::unexpected(*finish.error);
    if (finish.reason == FinishReason::kCancelled) {
      return Fail(ErrorKind::kCancelled, "evaluation cancelled");
    }
    return scorer_.losses();
  }

 private:
  Window(Engine& engine, const KernelTable& kernels, std::vector<TokenId> ids)
      : engine_(engine), scorer_(kernels, std::move(ids)) {}

  Engine& engine_;
  WindowScorer scorer_;
  std::shared_ptr<EventStream> stream_ = std::make_shared<EventStream>();
  RequestId id_;
  bool running_ = false;
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
  const int context = options.context;
  if (context < 2) return BadInput("context: expected at least 2 tokens, found {}", context);
  if (context > engine.plan().max_context) {
    return BadInput("context: {} tokens asked for, but the model has room for {}", context,
                    engine.plan().max_context);
  }
  const bool llama = options.protocol == PerplexityProtocol::kLlama;
  const int64_t available = static_cast<int64_t>(ids.size()) / context;
  const int64_t least = llama ? 2 : 1;
  if (available < least) {
    return BadInput("text: expected at least {} tokens ({} windows of {}), found {}",
                    least * context, least, context, ids.size());
  }
  const int total = static_cast<int>(
      options.chunks > 0 ? std::min<int64_t>(options.chunks, available) : available);
  // llama.cpp scores the predictions made at positions context/2 … context-2.
  const int score_from = llama ? context / 2 : 0;
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const KernelTable& kernels = KernelsFor(isa);

  // Two windows in flight: the next one's first step need not wait for this one's reader.
  constexpr int kInFlight = 2;
  std::deque<std::unique_ptr<Window>> windows;
  Totals totals;
  for (int started = 0, finished = 0; finished < total;) {
    if (started < total && std::ssize(windows) < kInFlight) {
      const auto begin = ids.begin() + static_cast<ptrdiff_t>(started) * context;
      std::vector<TokenId> window_ids(begin, begin + context);
      if (llama && engine.tokenizer().adds_bos() && engine.tokenizer().bos()) {
        window_ids[0] = *engine.tokenizer().bos();
      }
      NIBBLE_TRY(auto window, Window::Start(engine, kernels, std::move(window_ids), score_from));
      windows.push_back(std::move(window));
      ++started;
      continue;
    }
    NIBBLE_TRY(const std::span<const double> losses, windows.front()->Finish());
    totals.Add(losses);
    windows.pop_front();
    ++finished;
    if (options.progress) options.progress(finished, total, totals.Result().perplexity);
  }
  return totals.Result();
}

}  // namespace nibble
