#include "advise/bench.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

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

double BenchRow::MedianSeconds() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

struct ModelBench::Impl {
  Decoder& decoder;
  const KernelTable& kernels;
  ModelWork work;
  KvStorage storage;
  int batch;
  std::vector<std::vector<PageId>> pages;  // [sequence]; the same ids in every group
  std::vector<std::vector<KvTable>> tables;
  std::vector<TokenId> next;
  BenchRow* row = nullptr;  // counts go here

  // Computes `rows` more tokens of each of the sequences, whose next position is `first`.
  void Step(int sequence_begin, int sequence_count, int first, int rows, bool logits);
  void Prefill(int sequences, int first, int tokens);
  void Generate(int sequences, int first, int steps);
  void FillDepth(int depth);
};

void ModelBench::Impl::Step(int sequence_begin, int sequence_count, int first, int rows,
                            bool logits) {
  std::vector<TokenId> tokens;
  std::vector<BatchSequence> sequences;
  std::vector<int> logit_rows;
  const int vocabulary = decoder.config().vocabulary;
  for (int s = 0; s < sequence_count; ++s) {
    const int sequence = sequence_begin + s;
    sequences.push_back({.row_begin = static_cast<int>(tokens.size()),
                         .rows = rows,
                         .first = Position{first},
                         .tables = tables[static_cast<size_t>(sequence)]});
    for (int i = 0; i < rows; ++i) {
      const TokenId drawn{(first + i * 7919 + sequence * 104729) % vocabulary};
      tokens.push_back(rows == 1 ? next[static_cast<size_t>(s)] : drawn);
    }
    if (logits) logit_rows.push_back(static_cast<int>(tokens.size()) - 1);
  }
  GreedySink sink(kernels, next);
  decoder.Forward({.tokens = tokens, .sequences = sequences, .logit_rows = logit_rows},
                  storage.groups(), sink);
  if (row == nullptr) return;
  row->steps += 1;
  row->tokens += static_cast<int64_t>(tokens.size());
  row->bytes += static_cast<double>(decoder.WeightBytesPerStep());
  row->bytes += sequence_count * KvBytesRead(storage.groups(), first + rows - 1);
  row->macs += work.per_row * static_cast<double>(tokens.size());
  row->macs += work.per_logit_row * static_cast<double>(logit_rows.size());
  row->macs.f32 += work.attention_macs_per_position * static_cast<double>(tokens.size()) *
                   (first + (rows + 1) / 2.0);
}

// Prompts in chunks of as many rows as a step takes, several sequences together when they fit.
void ModelBench::Impl::Prefill(int sequences, int first, int tokens) {
  const int most = decoder.max_rows();
  if (tokens >= most) {
    for (int s = 0; s < sequences; ++s) {
      for (int done = 0; done < tokens; done += most) {
        const int rows = std::min(most, tokens - done);
        Step(s, 1, first + done, rows, done + rows == tokens);
      }
    }
    return;
  }
  const int together = most / tokens;
  for (int s = 0; s < sequences; s += together) {
    Step(s, std::min(together, sequences - s), first, tokens, true);
  }
}

void ModelBench::Impl::Generate(int sequences, int first, int steps) {
  for (int i = 0; i < steps; ++i) Step(0, sequences, first + i, 1, true);
}

// One sequence's pages are computed, the others get copies: the time of a step depends on where the
// bytes lie, not on what they say.
void ModelBench::Impl::FillDepth(int depth) {
  if (depth == 0) return;
  Prefill(1, 0, depth);
  const auto used = static_cast<size_t>((depth + kPageTokens - 1) / kPageTokens);
  for (int s = 1; s < batch; ++s) {
    const std::vector<KvTable>& from = tables[0];
    const std::vector<KvTable>& to = tables[static_cast<size_t>(s)];
    for (size_t g = 0; g < from.size(); ++g) {
      for (size_t p = 0; p < used; ++p) {
        const auto page = [&](const KvTable& table) {
          return table.arena + table.page_bytes * static_cast<size_t>(table.pages[p].value());
        };
        std::memcpy(page(to[g]), page(from[g]), from[g].page_bytes);
      }
    }
  }
}

ModelBench::ModelBench(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelBench::ModelBench(ModelBench&&) noexcept = default;
ModelBench::~ModelBench() = default;

Result<ModelBench> ModelBench::Create(Decoder& decoder, const KernelTable& kernels,
                                      const ModelWork& work, KvFormats formats, int batch,
                                      int tokens) {
  if (tokens > decoder.max_context()) {
    return BadInput("{} tokens per sequence asked for, but the model has room for {}", tokens,
                    decoder.max_context());
  }
  const int per_sequence = CeilDiv(tokens, kPageTokens);
  if (int64_t{per_sequence} * batch > INT32_MAX) {
    return BadInput("{} sequences of {} tokens are more pages than can be numbered", batch, tokens);
  }
  std::vector<KvGroup> groups = MakeKvGroups(decoder.config(), formats);
  const std::vector<int> page_counts(groups.size(), per_sequence * batch);
  NIBBLE_TRY(KvStorage storage, KvStorage::Create(std::move(groups), page_counts));
  auto impl = std::unique_ptr<Impl>(new Impl{.decoder = decoder,
                                             .kernels = kernels,
                                             .work = work,
                                             .storage = std::move(storage),
                                             .batch = batch,
                                             .pages = {},
                                             .tables = {},
                                             .next = {}});
  impl->next.resize(static_cast<size_t>(batch));
  impl->pages.resize(static_cast<size_t>(batch));
  impl->tables.resize(static_cast<size_t>(batch));
  for (int s = 0; s < batch; ++s) {
    std::vector<PageId>& pages = impl->pages[static_cast<size_t>(s)];
    for (int p = 0; p < per_sequence; ++p) pages.emplace_back(s * per_sequence + p);
    for (size_t g = 0; g < page_counts.size(); ++g) {
      impl->tables[static_cast<size_t>(s)].push_back(
          impl->storage.Table(static_cast<int>(g), pages));
    }
  }
  return ModelBench(std::move(impl));
}

double ModelBench::KvBytes(const ModelConfig& config, KvFormats formats, const BenchCase& test) {
  double page = 0;
  for (const KvGroup& group : MakeKvGroups(config, formats)) {
    page += static_cast<double>(group.PageBytes());
  }
  return page * CeilDiv(test.TokensPerSequence(), kPageTokens) * test.batch;
}

BenchRow ModelBench::Run(const BenchCase& test, int repetitions) {
  BenchRow row;
  row.test = test;
  impl_->row = nullptr;
  impl_->FillDepth(test.depth);
  for (int repetition = -1; repetition < repetitions; ++repetition) {
    BenchRow counts;
    impl_->row = &counts;
    const double started = MonotonicSeconds();
    if (test.prompt > 0) impl_->Prefill(test.batch, test.depth, test.prompt);
    if (test.gen > 0) impl_->Generate(test.batch, test.depth + test.prompt, test.gen);
    const double seconds = MonotonicSeconds() - started;
    if (repetition < 0) continue;  // warm-up
    row.seconds.push_back(seconds);
    row.tokens = counts.tokens;
    row.steps = counts.steps;
    row.bytes = counts.bytes;
    row.macs = counts.macs;
  }
  impl_->row = nullptr;
  return row;
}

}  // namespace nibble
