#include "eval/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/engine.h"
#include "engine/event_stream.h"
#include "eval/logits_base.h"
#include "eval/row_exchange.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_table.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

class BaseSink : public PositionLogitsSink {
 public:
  explicit BaseSink(RowExchange& exchange) : exchange_(exchange) {}
  void Rows(Position first, MatrixView<float> logits) override { exchange_.Show(first, logits); }

 private:
  RowExchange& exchange_;
};

// The base's rows of one window, wherever they come from. Positions ascend.
class BaseRows {
 public:
  virtual ~BaseRows() = default;
  // The row of a position, which stays until Release of the same; empty when there is none.
  virtual std::span<const float> Read(Position position) = 0;
  virtual void Release(Position position) = 0;
  virtual LogSumExp Sum(std::span<const float> row) const = 0;
  // -ln p of the text's next token.
  virtual double Loss(std::span<const float> row, const LogSumExp& sum, Position position,
                      TokenId next) const = 0;
};

// From an engine at work.
class ExchangedRows : public BaseRows {
 public:
  ExchangedRows(const KernelTable& kernels, RowExchange& exchange)
      : kernels_(kernels), exchange_(exchange) {}
  std::span<const float> Read(Position position) override { return exchange_.Read(position); }
  void Release(Position position) override { exchange_.Release(position); }
  LogSumExp Sum(std::span<const float> row) const override {
    return ComputeLogSumExp(kernels_, row);
  }
  double Loss(std::span<const float> row, const LogSumExp& sum, Position /*position*/,
              TokenId next) const override {
    return sum.log_sum_exp - double{row[static_cast<size_t>(next.value())]};
  }

 private:
  const KernelTable& kernels_;
  RowExchange& exchange_;
};

// From llama-perplexity's file. Its log-probabilities are taken as they are, not normalised again:
// what it cut off is missing from the sum.
class FileRows : public BaseRows {
 public:
  FileRows(const LogitsBase& base, int window)
      : base_(base), window_(window), row_(static_cast<size_t>(base.vocabulary())) {}
  std::span<const float> Read(Position position) override {
    if (!status_ || position.value() + 1 >= base_.context()) return {};
    status_ = base_.Row(window_, position, row_);
    return status_ ? std::span<const float>(row_) : std::span<const float>();
  }
  void Release(Position /*position*/) override {}
  LogSumExp Sum(std::span<const float> row) const override {
    return {.max = *std::ranges::max_element(row), .log_sum_exp = 0};
  }
  double Loss(std::span<const float> /*row*/, const LogSumExp& /*sum*/, Position position,
              TokenId next) const override {
    return -double{base_.Logprob(window_, position, next)};
  }
  const Status& status() const { return status_; }

 private:
  const LogitsBase& base_;
  int window_;
  std::vector<float> row_;  // [vocabulary]
  Status status_;
};

// Compares the candidate's rows with the base's as they come.
class CandidateSink : public PositionLogitsSink {
 public:
  CandidateSink(const KernelTable& kernels, BaseRows& base, std::vector<TokenId> ids,
                DivergenceSamples& samples)
      : kernels_(kernels), base_(base), ids_(std::move(ids)), samples_(samples) {}

  void Rows(Position first, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      const Position at = first + r;
      const std::span<const float> base = base_.Read(at);
      if (base.empty()) return;
      const auto next = static_cast<size_t>(at.value()) + 1;
      if (next < ids_.size()) Compare(base, logits.row_span(r), at);
      base_.Release(at);
    }
  }

  const std::vector<TokenId>& ids() const { return ids_; }

 private:
  void Compare(std::span<const float> base, std::span<const float> candidate, Position at) {
    const TokenId next = ids_[static_cast<size_t>(at.value()) + 1];
    const LogitsPair row = {.base = base,
                            .candidate = candidate,
                            .base_sum = base_.Sum(base),
                            .candidate_sum = ComputeLogSumExp(kernels_, candidate)};
    AddSample(
        kernels_,
        {.row = row, .base_loss = base_.Loss(base, row.base_sum, at, next), .next = next, .at = at},
        samples_);
  }

  const KernelTable& kernels_;
  BaseRows& base_;
  std::vector<TokenId> ids_;
  DivergenceSamples& samples_;
};

// A stream that tells the exchange of its request's end.
class EndingStream : public EventStream {
 public:
  EndingStream(RowExchange& exchange, void (RowExchange::*end)())
      : exchange_(exchange), end_(end) {}
  void OnFinish(RequestId id, const FinishEvent& event) override {
    (exchange_.*end_)();
    EventStream::OnFinish(id, event);
  }

 private:
  RowExchange& exchange_;
  void (RowExchange::*end_)();
};

Status CompareWindow(Engine& candidate, Engine& base, int score_from, CandidateSink& sink,
                     RowExchange& exchange) {
  BaseSink base_sink(exchange);
  NIBBLE_TRY(const auto shown,
             RunningWindow::Start(base, sink.ids(), score_from, base_sink,
                                  std::make_shared<EndingStream>(exchange, &RowExchange::EndBase)));
  exchange.AwaitBase();
  auto read =
      RunningWindow::Start(candidate, sink.ids(), score_from, sink,
                           std::make_shared<EndingStream>(exchange, &RowExchange::EndCandidate));
  if (!read) {
    exchange.EndCandidate();
    return std::unexpected(read.error());
  }
  const Status candidate_status = (*read)->Finish();
  NIBBLE_RETURN_IF_ERROR(shown->Finish());
  return candidate_status;
}

Status CheckSameVocabulary(const Engine& candidate, const Engine& base) {
  if (candidate.config().vocabulary != base.config().vocabulary) {
    return BadInput("base: expected a vocabulary of {} tokens as the model has, found {}",
                    candidate.config().vocabulary, base.config().vocabulary);
  }
  const Tokenizer& a = candidate.tokenizer();
  const Tokenizer& b = base.tokenizer();
  for (int i = 0; i < std::min(a.vocab_size(), b.vocab_size()); ++i) {
    const TokenId id{i};
    // The bytes, not their spelling: GGUF files spell a vocabulary of characters otherwise.
    if (a.Bytes(id) != b.Bytes(id)) {
      return BadInput("base: expected the model's vocabulary, but token {} is '{}', not '{}'", i,
                      b.Piece(id), a.Piece(id));
    }
  }
  return {};
}

// What the caller hears after every window.
class RunningMean {
 public:
  RunningMean(const DivergenceOptions& options, int windows)
      : options_(options), windows_(windows) {}
  void EndWindow(DivergenceSamples& samples) {
    for (; counted_ < samples.divergence.size(); ++counted_) sum_ += samples.divergence[counted_];
    ++samples.chunks;
    if (!options_.progress) return;
    options_.progress(samples.chunks, windows_, sum_ / static_cast<double>(samples.size()));
  }

 private:
  const DivergenceOptions& options_;
  int windows_;
  size_t counted_ = 0;
  double sum_ = 0;
};

MeanError Exponential(MeanError of_log) {
  const double value = std::exp(of_log.mean);
  return {.mean = value, .se = value * of_log.se};
}

// Eight equal parts of the scored positions.
std::vector<DivergenceAtDepth> ByDepth(const DivergenceSamples& samples) {
  constexpr int kParts = 8;
  const auto [low, high] = std::ranges::minmax(samples.position);
  const int span = high - low + 1;
  std::vector<DivergenceAtDepth> depths;
  for (int part = 0; part < kParts; ++part) {
    DivergenceAtDepth depth = {.from = low + span * part / kParts,
                               .to = low + span * (part + 1) / kParts,
                               .tokens = 0,
                               .divergence = {},
                               .ppl_ratio = 1};
    std::vector<double> divergences;
    double ln_ratio = 0;
    for (size_t i = 0; i < samples.position.size(); ++i) {
      if (samples.position[i] < depth.from || samples.position[i] >= depth.to) continue;
      divergences.push_back(samples.divergence[i]);
      ln_ratio += samples.candidate_loss[i] - samples.base_loss[i];
    }
    if (divergences.empty()) continue;
    depth.tokens = std::ssize(divergences);
    depth.divergence = MeanOf(divergences);
    depth.ppl_ratio = std::exp(ln_ratio / static_cast<double>(depth.tokens));
    depths.push_back(depth);
  }
  return depths;
}

}  // namespace

void AddSample(const KernelTable& kernels, const PredictionPair& pair, DivergenceSamples& samples) {
  const LogitsPair& row = pair.row;
  const double loss =
      row.candidate_sum.log_sum_exp - double{row.candidate[static_cast<size_t>(pair.next.value())]};
  samples.divergence.push_back(ComputeDivergence(kernels, row));
  samples.base_loss.push_back(pair.base_loss);
  samples.candidate_loss.push_back(loss);
  samples.probability.push_back(std::exp(-loss) - std::exp(-pair.base_loss));
  samples.position.push_back(pair.at.value());
  // Ties go to the lower id in both.
  const auto top = std::ranges::find(row.base, row.base_sum.max) - row.base.begin();
  const auto candidate_top =
      std::ranges::find(row.candidate, row.candidate_sum.max) - row.candidate.begin();
  samples.same_top += top == candidate_top ? 1 : 0;
}

Result<DivergenceSamples> MeasureDivergence(Engine& candidate, Engine& base,
                                            std::span<const TokenId> ids,
                                            const DivergenceOptions& options) {
  NIBBLE_RETURN_IF_ERROR(CheckSameVocabulary(candidate, base));
  const int room = std::min(candidate.plan().max_context, base.plan().max_context);
  NIBBLE_TRY(const TextWindows windows,
             TextWindows::Cut(ids, options.windows, candidate.tokenizer(), room));
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const KernelTable& kernels = KernelsFor(isa);
  DivergenceSamples samples;
  RunningMean mean(options, windows.count());
  for (int i = 0; i < windows.count(); ++i) {
    RowExchange exchange;
    ExchangedRows rows(kernels, exchange);
    CandidateSink sink(kernels, rows, windows.Ids(i), samples);
    NIBBLE_RETURN_IF_ERROR(CompareWindow(candidate, base, windows.score_from(), sink, exchange));
    mean.EndWindow(samples);
  }
  return samples;
}

Result<DivergenceSamples> MeasureDivergence(Engine& candidate, const LogitsBase& base,
                                            const DivergenceOptions& options) {
  if (candidate.config().vocabulary != base.vocabulary()) {
    return BadInput("base: expected a vocabulary of {} tokens as the model has, found {}",
                    candidate.config().vocabulary, base.vocabulary());
  }
  const std::vector<TokenId> ids = base.Ids();
  const WindowOptions cut = {.protocol = PerplexityProtocol::kLlama,
                             .context = base.context(),
                             .chunks = options.windows.chunks,
                             .one_is_enough = true};
  NIBBLE_TRY(const TextWindows windows,
             TextWindows::Cut(ids, cut, candidate.tokenizer(), candidate.plan().max_context));
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const KernelTable& kernels = KernelsFor(isa);
  DivergenceSamples samples;
  RunningMean mean(options, windows.count());
  for (int i = 0; i < windows.count(); ++i) {
    FileRows rows(base, i);
    CandidateSink sink(kernels, rows, windows.Ids(i), samples);
    NIBBLE_TRY(const auto running,
               RunningWindow::Start(candidate, sink.ids(), windows.score_from(), sink));
    NIBBLE_RETURN_IF_ERROR(running->Finish());
    NIBBLE_RETURN_IF_ERROR(rows.status());
    mean.EndWindow(samples);
  }
  return samples;
}

DivergenceResult Summarise(const DivergenceSamples& samples) {
  DivergenceResult result;
  result.tokens = samples.size();
  result.chunks = samples.chunks;
  if (samples.size() == 0) return result;
  result.ppl = Exponential(MeanOf(samples.candidate_loss));
  result.ppl_base = Exponential(MeanOf(samples.base_loss));
  std::vector<double> ratios(samples.divergence.size());
  std::ranges::transform(samples.candidate_loss, samples.base_loss, ratios.begin(), std::minus());
  result.ln_ratio = MeanOf(ratios);
  result.ppl_ratio = Exponential(result.ln_ratio);
  result.correlation = Correlation(samples.candidate_loss, samples.base_loss);
  result.divergence = MeanOf(samples.divergence);
  result.divergence_sorted = samples.divergence;
  std::ranges::sort(result.divergence_sorted);
  result.probability = MeanOf(samples.probability);
  result.probability_sorted = samples.probability;
  std::ranges::sort(result.probability_sorted);
  std::vector<double> squares(samples.probability.size());
  std::ranges::transform(samples.probability, squares.begin(), [](double x) { return x * x; });
  const MeanError square = MeanOf(squares);
  const double rms = std::sqrt(square.mean);
  result.rms_probability = {.mean = rms, .se = rms > 0 ? square.se / (2 * rms) : 0};
  const auto n = static_cast<double>(samples.size());
  const double top = static_cast<double>(samples.same_top) / n;
  result.same_top = {.mean = top, .se = n > 1 ? std::sqrt(top * (1 - top) / (n - 1)) : 0};
  result.depths = ByDepth(samples);
  return result;
}

std::string Verdict(const DivergenceResult& result) {
  constexpr double kWidth = 1.96;  // 95% of a normal distribution
  const double percent = 100 * (result.ppl_ratio.mean - 1);
  const double error = 100 * kWidth * result.ppl_ratio.se;
  const std::string change = fmt::format("{:+.2f}% ± {:.2f}% perplexity", percent, error);
  if (percent - error > 0) return fmt::format("worse, 95%: {}", change);
  if (percent + error < 0) return fmt::format("better, 95%: {}", change);
  constexpr double kSettled = 0.5;  // percent
  if (error <= kSettled) return fmt::format("no difference seen: {}", change);
  const double needed =
      static_cast<double>(result.tokens) * (error / kSettled) * (error / kSettled);
  const double more = needed - static_cast<double>(result.tokens);
  const double digits = std::pow(10, std::max(0.0, std::floor(std::log10(more)) - 1));
  return fmt::format("no difference seen: {}; {:.0f} more tokens would settle 0.5%", change,
                     std::ceil(more / digits) * digits);
}

}  // namespace nibble
