#include "advise/bench.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/statistics.h"
#include "kernels/sampling.h"
#include "kv/storage/kv_storage.h"
#include "platform/clock.h"

namespace nibble {
namespace {

// Takes the most probable token of every row.
class GreedySink : public LogitsSink {
 public:
  GreedySink(const KernelTable& kernels, std::vector<TokenId>& next)
      : kernels_(kernels), next_(next) {}

  void Rows(int first, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      next_[static_cast<size_t>(first + r)] = TokenId{ArgMaxLogit(kernels_, logits.row_span(r))};
    }
  }

 private:
  const KernelTable& kernels_;
  std::vector<TokenId>& next_;
};

}  // namespace

double BenchRow::MedianSeconds() const { return Median(seconds); }

namespace {

// `rows` more tokens of each of some sequences, whose next position is `first`.
struct PlannedStep {
  int sequence_begin;
  int sequence_count;
  int first;
  int rows;
  bool logits;
};

// Prompts in chunks of as many rows as a step takes, several sequences together when they fit.
void PlanPrompts(int sequences, int first, int tokens, int most, std::vector<PlannedStep>& steps) {
  if (tokens == 0) return;
  if (tokens >= most) {
    for (int s = 0; s < sequences; ++s) {
      for (int done = 0; done < tokens; done += most) {
        const int rows = std::min(most, tokens - done);
        steps.push_back({s, 1, first + done, rows, done + rows == tokens});
      }
    }
    return;
  }
  const int together = most / tokens;
  for (int s = 0; s < sequences; s += together) {
    steps.push_back({s, std::min(together, sequences - s), first, tokens, true});
  }
}

std::vector<PlannedStep> PlanSteps(const BenchCase& test, int most) {
  std::vector<PlannedStep> steps;
  PlanPrompts(test.batch, test.depth, test.prompt, most, steps);
  for (int i = 0; i < test.gen; ++i) {
    steps.push_back({0, test.batch, test.depth + test.prompt + i, 1, true});
  }
  return steps;
}

}  // namespace

struct ModelBench::Impl {
  Decoder& decoder;
  const KernelTable& kernels;
  ModelWork work;
  KvStorage storage;
  KvPeaks kv_peaks;
  int batch;
  std::vector<std::vector<PageId>> pages;  // [sequence]; the same ids in every group and form
  std::vector<std::vector<KvTable>> tables;
  std::vector<TokenId> next;
  std::vector<PlannedStep> steps;  // of the case that runs
  size_t cursor = 0;               // the next step of a piece

  void Step(const PlannedStep& step);
  void Count(const PlannedStep& step, BenchWork& counts) const;
  void FillDepth(int depth);
};

void ModelBench::Impl::Step(const PlannedStep& step) {
  std::vector<TokenId> tokens;
  std::vector<BatchSequence> sequences;
  std::vector<int> logit_rows;
  const int vocabulary = decoder.config().vocabulary;
  for (int s = 0; s < step.sequence_count; ++s) {
    const int sequence = step.sequence_begin + s;
    sequences.push_back({.row_begin = static_cast<int>(tokens.size()),
                         .rows = step.rows,
                         .first = Position{step.first},
                         .tables = tables[static_cast<size_t>(sequence)]});
    for (int i = 0; i < step.rows; ++i) {
      const TokenId drawn{static_cast<int>(
          (step.first + int64_t{i} * 7919 + int64_t{sequence} * 104729) % vocabulary)};
      tokens.push_back(step.rows == 1 ? next[static_cast<size_t>(s)] : drawn);
    }
    if (step.logits) logit_rows.push_back(static_cast<int>(tokens.size()) - 1);
  }
  GreedySink sink(kernels, next);
  decoder.Forward({.tokens = tokens, .sequences = sequences, .logit_rows = logit_rows},
                  storage.groups(), sink);
}

void ModelBench::Impl::Count(const PlannedStep& step, BenchWork& counts) const {
  const int tokens = step.sequence_count * step.rows;
  counts.steps += 1;
  counts.tokens += tokens;
  counts.bytes += static_cast<double>(decoder.WeightBytesPerStep());
  counts.bytes += step.sequence_count * KvBytesRead(storage.groups(), step.first + step.rows - 1);
  counts.macs += work.per_row * tokens;
  if (step.logits) counts.macs += work.per_logit_row * step.sequence_count;
  counts.macs +=
      work.AttentionMacs(step.first, step.rows, step.logits, kv_peaks) * step.sequence_count;
}

// The first pages of one sequence are computed, all others are copies of these: the time of a step
// depends on where the bytes lie, not on what they say.
void ModelBench::Impl::FillDepth(int depth) {
  constexpr size_t kOwnPages = 4;  // whole units of every format
  std::vector<PlannedStep> fill;
  PlanPrompts(1, 0, std::min(depth, int{kOwnPages} * kPageTokens), decoder.max_rows(), fill);
  for (const PlannedStep& step : fill) Step(step);
  const auto used = static_cast<size_t>((depth + kPageTokens - 1) / kPageTokens);
  const auto copy = [used](std::byte* to, std::span<const PageId> to_pages, const std::byte* from,
                           std::span<const PageId> from_pages, size_t bytes) {
    for (size_t p = 0; p < std::min(used, from_pages.size()); ++p) {
      const PageId source = from_pages[p % kOwnPages];
      if (to_pages[p] == source) continue;
      std::memcpy(to + bytes * static_cast<size_t>(to_pages[p].value()),
                  from + bytes * static_cast<size_t>(source.value()), bytes);
    }
  };
  for (int s = 0; s < batch; ++s) {
    const std::vector<KvTable>& from = tables[0];
    const std::vector<KvTable>& to = tables[static_cast<size_t>(s)];
    for (size_t g = 0; g < from.size(); ++g) {
      copy(to[g].arena, to[g].pages, from[g].arena, from[g].pages, from[g].page_bytes);
      copy(to[g].sealed_arena, to[g].sealed, from[g].sealed_arena, from[g].sealed,
           from[g].sealed_page_bytes);
    }
  }
}

ModelBench::ModelBench(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelBench::ModelBench(ModelBench&&) noexcept = default;
ModelBench::~ModelBench() = default;

Result<ModelBench> ModelBench::Create(Decoder& decoder, const KernelTable& kernels,
                                      const ModelWork& work, const ModelBenchOptions& options) {
  const int batch = options.batch;
  const int tokens = options.tokens;
  if (tokens > decoder.max_context()) {
    return BadInput("{} tokens per sequence asked for, but the model has room for {}", tokens,
                    decoder.max_context());
  }
  const int per_sequence = CeilDiv(tokens, kPageTokens);
  if (int64_t{per_sequence} * batch > INT32_MAX) {
    return BadInput("{} sequences of {} tokens are more pages than can be numbered", batch, tokens);
  }
  NIBBLE_TRY(std::vector<KvGroup> groups, MakeKvGroups(decoder.config(), options.formats));
  const std::vector<int> page_counts(groups.size(), per_sequence * batch);
  NIBBLE_TRY(KvStorage storage, KvStorage::Create(std::move(groups), page_counts, page_counts));
  NIBBLE_RETURN_IF_ERROR(storage.Interleave(options.nodes));
  const KvLayout& sealed = storage.groups().front().sealed;
  const KvPeaks kv_peaks = {.k = PeakOf(sealed.k, options.act),
                            .v = PeakOf(sealed.v, options.act),
                            .unit_tokens = UnitPages(sealed) * kPageTokens};
  auto impl = std::unique_ptr<Impl>(new Impl{.decoder = decoder,
                                             .kernels = kernels,
                                             .work = work,
                                             .storage = std::move(storage),
                                             .kv_peaks = kv_peaks,
                                             .batch = batch,
                                             .pages = {},
                                             .tables = {},
                                             .next = {},
                                             .steps = {}});
  impl->next.resize(static_cast<size_t>(batch));
  impl->pages.resize(static_cast<size_t>(batch));
  impl->tables.resize(static_cast<size_t>(batch));
  for (int s = 0; s < batch; ++s) {
    std::vector<PageId>& pages = impl->pages[static_cast<size_t>(s)];
    for (int p = 0; p < per_sequence; ++p) pages.emplace_back(s * per_sequence + p);
    for (size_t g = 0; g < page_counts.size(); ++g) {
      const bool two_forms = impl->storage.groups()[g].two_forms();
      impl->tables[static_cast<size_t>(s)].push_back(
          impl->storage.Table(static_cast<int>(g), pages,
                              two_forms ? std::span<const PageId>(pages) : std::span<PageId>()));
    }
  }
  return ModelBench(std::move(impl));
}

double ModelBench::KvBytes(std::span<const KvGroup> groups, const BenchCase& test) {
  double page = 0;
  for (const KvGroup& group : groups) {
    page += static_cast<double>(group.PageBytes());
    if (group.two_forms()) page += static_cast<double>(group.SealedPageBytes());
  }
  return page * CeilDiv(test.TokensPerSequence(), kPageTokens) * test.batch;
}

BenchRow ModelBench::Run(const BenchCase& test, int repetitions) {
  BenchRow row;
  row.test = test;
  impl_->steps = PlanSteps(test, impl_->decoder.max_rows());
  impl_->cursor = 0;
  impl_->FillDepth(test.depth);
  for (int repetition = -1; repetition < repetitions; ++repetition) {
    const double started = MonotonicSeconds();
    for (const PlannedStep& step : impl_->steps) impl_->Step(step);
    const double seconds = MonotonicSeconds() - started;
    if (repetition >= 0) row.seconds.push_back(seconds);  // the first warms up
  }
  for (const PlannedStep& step : impl_->steps) impl_->Count(step, row.work);
  row.work.seconds = row.MedianSeconds();
  return row;
}

BenchWork ModelBench::RunPiece(double least_seconds) {
  BenchWork piece;
  NIBBLE_CHECK(!impl_->steps.empty());
  const double started = MonotonicSeconds();
  do {
    const PlannedStep& step = impl_->steps[impl_->cursor];
    impl_->Step(step);
    impl_->Count(step, piece);
    impl_->cursor = (impl_->cursor + 1) % impl_->steps.size();
    piece.seconds = MonotonicSeconds() - started;
  } while (piece.seconds < least_seconds);
  return piece;
}

}  // namespace nibble
