// Prints what each KV format costs a real model: perplexity, and the divergence of its next-token
// distribution from the one with f32 arithmetic and f32 pages. The tables of docs/formats.md.
//
//   kv_quality MODEL TEXT CONTEXT WINDOWS [FORMAT ...]
//
// FORMAT is KEYS or KEYS/VALUES, with +rotate or +norotate behind it. Windows as in llama.cpp's
// perplexity: the first token replaced by BOS where the model adds one, the second half scored.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model_tokenizer.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_table.h"
#include "kv/storage/kv_storage.h"
#include "model/config/model_file.h"
#include "model/decoder.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr int kChunk = 512;  // rows of a step

// How the candidates compute.
struct Mode {
  const char* name;
  Act act;        // of linears
  Act attention;  // over sealed pages of integer formats
};
constexpr Mode kBase{"f32", Act::kF32, Act::kF32};
constexpr Mode kIntegerAttention{"f32, integer attention", Act::kF32, Act::kInt8};
constexpr Mode kInt8{"int8", Act::kInt8, Act::kInt8};

struct Candidate {
  std::string name;
  KvFormats formats;
};

// Scored rows of one window under the base: logits and probabilities [row][vocabulary].
struct BaseRows {
  std::vector<float> logits;
  std::vector<float> probabilities;
  std::vector<double> log_sums;
  std::vector<int> best;
};

struct Score {
  std::vector<double> divergence;  // of each row
  int64_t same_top = 0;
  double loss = 0;

  std::pair<double, double> Divergence() const {
    const auto n = static_cast<double>(divergence.size());
    const double mean = std::accumulate(divergence.begin(), divergence.end(), 0.0) / n;
    double squares = 0;
    for (const double d : divergence) squares += (d - mean) * (d - mean);
    return {mean, std::sqrt(squares / n / (n - 1))};
  }
  double Percentile(double share) const {
    std::vector<double> sorted = divergence;
    std::ranges::sort(sorted);
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
};

int ArgMax(std::span<const float> row) {
  return static_cast<int>(std::ranges::max_element(row) - row.begin());
}

class BaseSink : public LogitsSink {
 public:
  BaseSink(const KernelTable& kernels, BaseRows& rows) : kernels_(kernels), rows_(rows) {}
  void Rows(int /*first*/, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      const std::span<const float> row = logits.row_span(r);
      const double sum = ComputeLogSumExp(kernels_, row).log_sum_exp;
      rows_.log_sums.push_back(sum);
      rows_.best.push_back(ArgMax(row));
      for (const float x : row) {
        rows_.logits.push_back(x);
        rows_.probabilities.push_back(std::exp(static_cast<float>(x - sum)));
      }
    }
  }

 private:
  const KernelTable& kernels_;
  BaseRows& rows_;
};

class ScoreSink : public LogitsSink {
 public:
  ScoreSink(const KernelTable& kernels, const BaseRows& base, std::span<const TokenId> next,
            Score& score)
      : kernels_(kernels), base_(base), next_(next), score_(score) {}
  void Rows(int /*first*/, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r, ++row_) {
      const std::span<const float> row = logits.row_span(r);
      const double sum = ComputeLogSumExp(kernels_, row).log_sum_exp;
      const size_t at = row_ * row.size();
      double mean = 0;  // of how far the base's logit is above the candidate's
      for (size_t i = 0; i < row.size(); ++i) {
        mean += double{base_.probabilities[at + i]} * (base_.logits[at + i] - row[i]);
      }
      score_.divergence.push_back(mean + sum - base_.log_sums[row_]);
      score_.same_top += ArgMax(row) == base_.best[row_] ? 1 : 0;
      score_.loss += sum - double{row[static_cast<size_t>(next_[row_].value())]};
    }
  }

 private:
  const KernelTable& kernels_;
  const BaseRows& base_;
  std::span<const TokenId> next_;
  Score& score_;
  size_t row_ = 0;
};

// One window through the decoder; rows [scored, size - 1) go to the sink.
void RunWindow(Decoder& decoder, const std::vector<KvGroup>& groups,
               std::span<const TokenId> tokens, int scored, LogitsSink& sink) {
  const int size = static_cast<int>(tokens.size());
  std::vector<PageId> pages;
  for (int p = 0; p < CeilDiv(size, kPageTokens); ++p) pages.emplace_back(p);
  const std::vector<int> counts(groups.size(), static_cast<int>(pages.size()));
  KvStorage storage = KvStorage::Create(groups, counts, counts).value();
  std::vector<KvTable> tables;
  for (size_t g = 0; g < groups.size(); ++g) {
    tables.push_back(storage.Table(static_cast<int>(g), pages, pages));
  }
  for (int first = 0; first < size; first += kChunk) {
    const int rows = std::min(kChunk, size - first);
    const BatchSequence sequence{
        .row_begin = 0, .rows = rows, .first = Position{first}, .tables = tables};
    std::vector<int> wanted;
    for (int i = std::max(scored - first, 0); i < std::min(rows, size - 1 - first); ++i) {
      wanted.push_back(i);
    }
    decoder.Forward({.tokens = tokens.subspan(static_cast<size_t>(first), rows),
                     .sequences = {&sequence, 1},
                     .logit_rows = wanted},
                    storage.groups(), sink);
  }
}

Candidate ParseCandidate(std::string text) {
  Candidate candidate{.name = text, .formats = {}};
  if (const size_t plus = text.find('+'); plus != std::string::npos) {
    candidate.formats.rotate = text.substr(plus) == "+rotate";
    text.resize(plus);
  }
  const size_t slash = text.find('/');
  candidate.formats.k = KvFormatFromName(text.substr(0, slash)).value();
  candidate.formats.v =
      slash == std::string::npos ? candidate.formats.k : *KvFormatFromName(text.substr(slash + 1));
  return candidate;
}

bool Integer(const KvFormats& formats) {
  return TraitsOf(formats.k).integer || TraitsOf(formats.v).integer;
}

// A model under the modes that are wanted of it.
class Models {
 public:
  Models(const ModelFile& file, int context) : file_(file), context_(context) {}
  Decoder& Under(const Mode& mode) {
    auto& decoder = decoders_[&mode == &kBase ? 0 : &mode == &kIntegerAttention ? 1 : 2];
    if (!decoder) {
      const LoadOptions options{.act = mode.act,
                                .attention_act = mode.attention,
                                .max_rows = kChunk,
                                .max_context = context_};
      decoder = Decoder::Load(file_, options, KernelsFor(ChooseIsa().value()), pool_).value();
    }
    return *decoder;
  }

 private:
  const ModelFile& file_;
  int context_;
  ThreadPool pool_{ReadTopology().threads};
  std::unique_ptr<Decoder> decoders_[3];
};

struct Job {
  Candidate candidate;
  const Mode* mode;
  std::vector<KvGroup> groups;
  Score score;
};

void Print(const std::vector<Job>& jobs, int context, int windows) {
  fmt::print("\nContext {}, {} windows\n\n", context, windows);
  fmt::print("| kv | arithmetic | perplexity | divergence | p99 | same top token |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  for (const Job& job : jobs) {
    const auto [mean, error] = job.score.Divergence();
    const auto n = static_cast<double>(job.score.divergence.size());
    fmt::print("| {} | {} | {:.3f} | {:.5f} ± {:.5f} | {:.4f} | {:.2f}% |\n", job.candidate.name,
               job.mode->name, std::exp(job.score.loss / n), mean, error,
               job.score.Percentile(0.99), 100 * static_cast<double>(job.score.same_top) / n);
  }
  std::fflush(stdout);
}

std::vector<Job> MakeJobs(const ModelConfig& config, std::span<char*> names) {
  std::vector<Job> jobs;
  for (const char* name : names) {
    const Candidate candidate = ParseCandidate(name);
    const std::vector<KvGroup> groups = MakeKvGroups(config, candidate.formats).value();
    for (const Mode* mode : {&kBase, &kIntegerAttention, &kInt8}) {
      if (mode == &kIntegerAttention && !Integer(candidate.formats)) continue;
      jobs.push_back({.candidate = candidate, .mode = mode, .groups = groups, .score = {}});
    }
  }
  return jobs;
}

int Number(const char* text) {
  int number = 0;
  std::from_chars(text, text + std::string_view(text).size(), number);
  return number;
}

void Measure(std::span<char*> arguments) {
  const ModelFile file = ModelFile::Open(arguments[0]).value();
  const Tokenizer tokenizer = LoadModelTokenizer(file).value();
  std::ifstream stream(arguments[1], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const int context = Number(arguments[2]);
  const std::vector<TokenId> ids = tokenizer.Encode(text).value();
  const int windows =
      std::min(Number(arguments[3]), static_cast<int>(ids.size()) / std::max(context, 1));
  Models models(file, context);
  const KernelTable& kernels = KernelsFor(ChooseIsa().value());
  const std::vector<KvGroup> exact =
      MakeKvGroups(file.config(), {.k = KvFormat::kF32, .v = KvFormat::kF32}).value();
  std::vector<Job> jobs = MakeJobs(file.config(), arguments.subspan(4));
  for (int w = 0; w < windows; ++w) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(w) * context;
    std::vector<TokenId> window(begin, begin + context);
    if (tokenizer.adds_bos() && tokenizer.bos()) window[0] = *tokenizer.bos();
    const int scored = context / 2;
    BaseRows base;
    BaseSink sink(kernels, base);
    RunWindow(models.Under(kBase), exact, window, scored, sink);
    for (Job& job : jobs) {
      ScoreSink scorer(kernels, base, std::span(window).subspan(static_cast<size_t>(scored) + 1),
                       job.score);
      RunWindow(models.Under(*job.mode), job.groups, window, scored, scorer);
    }
    Print(jobs, context, w + 1);
  }
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr, "usage: kv_quality MODEL TEXT CONTEXT WINDOWS FORMAT...\n");
    return 2;
  }
  nibble::Measure(std::span(argv + 1, argv + argc));
  return 0;
}
