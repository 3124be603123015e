#include "tests/model/runner.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "kernels/kernel_table.h"

namespace nibble::testing {
namespace {

// Row i of a step's logits goes to visit(i, logits).
class VisitSink final : public LogitsSink {
 public:
  explicit VisitSink(const Runner::Visitor& visit) : visit_(visit) {}
  void Rows(int first, MatrixView<float> logits) override {
    for (int i = 0; i < logits.rows; ++i) visit_(first + i, logits.row_span(i));
  }

 private:
  const Runner::Visitor& visit_;
};

const KernelTable& Kernels() {
  const Result<Isa> isa = ChooseIsa();
  return KernelsFor(isa ? *isa : Isa::kScalar);
}

}  // namespace

TestKv::TestKv(std::span<const KvGroup> groups, int positions) {
  const int count = CeilDiv(positions, kPageTokens);
  const auto arena = [count](size_t page_bytes) {
    auto buffer = AlignedBuffer::Allocate(page_bytes * static_cast<size_t>(count)).value();
    // Whatever lay in a page before must not matter.
    std::ranges::fill(buffer.as<uint8_t>(), uint8_t{0xFF});
    return buffer;
  };
  for (const KvGroup& group : groups) {
    arenas_.push_back(arena(group.PageBytes()));
    sealed_arenas_.push_back(group.two_forms() ? arena(group.SealedPageBytes()) : AlignedBuffer());
    std::vector<PageId>& pages = pages_.emplace_back();
    for (int i = 0; i < count; ++i) pages.emplace_back(count - 1 - i);
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    tables_.push_back(
        {.arena = arenas_[g].data(), .page_bytes = groups[g].PageBytes(), .pages = pages_[g]});
    if (!groups[g].two_forms()) continue;
    tables_[g].sealed_arena = sealed_arenas_[g].data();
    tables_[g].sealed_page_bytes = groups[g].SealedPageBytes();
    tables_[g].sealed = pages_[g];
  }
}

void TestKv::Release(std::span<const KvGroup> groups, int next) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].window == 0) continue;
    const int visible = std::max(0, next - groups[g].window + 1);
    const int unit = groups[g].two_forms() ? groups[g].unit_pages() : 1;
    const int full = next / kPageTokens / unit * unit;
    for (int page = 0; page < std::min(visible / kPageTokens, full); ++page) {
      pages_[g][static_cast<size_t>(page)] = kNoPage;
    }
  }
}

Runner::Runner(const std::filesystem::path& path, const RunnerOptions& options)
    : pool_(options.threads) {
  const LoadOptions load{.act = options.act,
                         .attention_act = options.attention_act,
                         .max_rows = options.max_rows,
                         .max_context = options.max_context};
  auto decoder = Decoder::Load(path, load, Kernels(), pool_);
  if (!decoder) {
    ADD_FAILURE() << decoder.error().message;
    return;
  }
  decoder_ = *std::move(decoder);
  groups_ = MakeKvGroups(decoder_->config(), options.kv).value();
}

std::vector<std::vector<float>> Runner::LogitsTogether(std::span<const Ids> ids,
                                                       std::span<const int> chunks) {
  std::vector<std::vector<float>> logits(ids.size());
  std::vector<TestKv> caches;
  std::vector<int> done(ids.size(), 0);
  for (const Ids& sequence : ids) caches.emplace_back(groups_, static_cast<int>(sequence.size()));
  while (true) {
    std::vector<TokenId> tokens;
    std::vector<BatchSequence> sequences;
    std::vector<int> rows;
    std::vector<std::vector<float>*> outputs;
    for (size_t s = 0; s < ids.size(); ++s) {
      const int left = static_cast<int>(ids[s].size()) - done[s];
      const int count = chunks[s] == 0 ? left : std::min(left, chunks[s]);
      if (count == 0) continue;
      caches[s].Release(groups_, done[s]);
      sequences.push_back({.row_begin = static_cast<int>(tokens.size()),
                           .rows = count,
                           .first = Position{done[s]},
                           .tables = caches[s].tables()});
      for (int i = 0; i < count; ++i) {
        rows.push_back(static_cast<int>(tokens.size()));
        tokens.emplace_back(ids[s][static_cast<size_t>(done[s] + i)]);
        outputs.push_back(&logits[s]);
      }
      done[s] += count;
    }
    if (tokens.empty()) return logits;
    const Visitor append = [&outputs](int row, std::span<const float> values) {
      std::vector<float>& out = *outputs[static_cast<size_t>(row)];
      out.insert(out.end(), values.begin(), values.end());
    };
    VisitSink sink(append);
    decoder_->Forward({.tokens = tokens, .sequences = sequences, .logit_rows = rows}, groups_,
                      sink);
  }
}

void Runner::Visit(const Ids& ids, int chunk, const Visitor& visit) {
  TestKv cache(groups_, static_cast<int>(ids.size()));
  VisitWith(cache, true, ids, chunk, visit);
}

void Runner::Fill(TestKv& cache, const Ids& ids, int chunk, const Visitor& visit) {
  VisitWith(cache, false, ids, chunk, visit);
}

void Runner::VisitWith(TestKv& cache, bool release, const Ids& ids, int chunk,
                       const Visitor& visit) {
  for (int done = 0; done < static_cast<int>(ids.size()); done += chunk) {
    if (release) cache.Release(groups_, done);
    const int count = std::min(chunk, static_cast<int>(ids.size()) - done);
    const BatchSequence sequence{
        .row_begin = 0, .rows = count, .first = Position{done}, .tables = cache.tables()};
    std::vector<TokenId> tokens;
    std::vector<int> rows;
    for (int i = 0; i < count; ++i) {
      rows.push_back(i);
      tokens.emplace_back(ids[static_cast<size_t>(done + i)]);
    }
    const Visitor shifted = [&](int row, std::span<const float> logits) {
      visit(done + row, logits);
    };
    VisitSink sink(shifted);
    decoder_->Forward({.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = rows},
                      groups_, sink);
  }
}

std::vector<float> Runner::Logits(const Ids& ids, int chunk) {
  return LogitsTogether(std::span(&ids, 1), std::span(&chunk, 1)).front();
}

Ids Runner::Greedy(const Ids& prompt, int count) {
  Ids answer;
  TestKv cache(groups_, static_cast<int>(prompt.size()) + count);
  std::vector<TokenId> tokens;
  for (const int id : prompt) tokens.emplace_back(id);
  int first = 0;
  while (static_cast<int>(answer.size()) < count) {
    cache.Release(groups_, first);
    const int rows = static_cast<int>(tokens.size());
    const BatchSequence sequence{
        .row_begin = 0, .rows = rows, .first = Position{first}, .tables = cache.tables()};
    const int last = rows - 1;
    const Visitor take = [&answer](int, std::span<const float> logits) {
      answer.push_back(ArgMax(logits));
    };
    VisitSink sink(take);
    decoder_->Forward(
        {.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = std::span(&last, 1)},
        groups_, sink);
    first += rows;
    tokens.assign(1, TokenId{answer.back()});
  }
  return answer;
}

double LogProbability(std::span<const float> logits, int next) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return logits[static_cast<size_t>(next)] - max - std::log(sum);
}

int ArgMax(std::span<const float> logits) {
  return static_cast<int>(std::ranges::max_element(logits) - logits.begin());
}

std::span<const float> Row(const std::vector<float>& logits, int row, int vocabulary) {
  return std::span(logits).subspan(static_cast<size_t>(row) * static_cast<size_t>(vocabulary),
                                   static_cast<size_t>(vocabulary));
}

Ids ReadIds(JsonValue array) {
  Ids ids;
  const JsonArray elements = array.AsArray().value();
  for (const JsonValue value : elements) {
    ids.push_back(static_cast<int>(value.AsInt().value()));
  }
  return ids;
}

std::vector<double> ReadDoubles(JsonValue array) {
  std::vector<double> values;
  const JsonArray elements = array.AsArray().value();
  for (const JsonValue value : elements) {
    values.push_back(value.AsDouble().value());
  }
  return values;
}

void LinkedFolder::Link(const std::filesystem::path& file, const std::string& name) {
  std::filesystem::create_symlink(std::filesystem::absolute(file), dir_.path() / name);
}

void LinkedFolder::Write(const std::string& name, const std::string& text) {
  std::ofstream(dir_.path() / name, std::ios::binary) << text;
}

}  // namespace nibble::testing
