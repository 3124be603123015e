#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "kernels/attention_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/ref/math.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int kWaveTasksPerThread = 4;
constexpr int kPrefetchPages = 8;
// A parallel region costs about as much as this many multiply-adds.
constexpr int64_t kFewMultiplies = 1 << 15;

// o[kRowBlock][stride], m[kRowBlock], l[kRowBlock].
struct Partial {
  float* o;
  int stride;
  float* m;
  float* l;
};

int Stride(int head_dim) { return RoundUp(head_dim, 16); }
size_t PartialFloats(int head_dim) {
  return static_cast<size_t>(kRowBlock) * static_cast<size_t>(Stride(head_dim) + 2);
}
size_t QueryFloats(int head_dim) { return static_cast<size_t>(kRowBlock) * Stride(head_dim); }
size_t IntQueryWords(int head_dim) { return QueryFloats(head_dim) / 4 + size_t{2} * kRowBlock; }
size_t PageFloats(int head_dim) { return static_cast<size_t>(kPageTokens) * Stride(head_dim); }

// A row block's query, float and integer, and room for a sealed page as floats.
struct Query {
  Query(float* base, int head_dim)
      : q(base),
        codes(reinterpret_cast<int32_t*>(q + QueryFloats(head_dim))),
        neg_sum(codes + QueryFloats(head_dim) / 4),
        scale(reinterpret_cast<float*>(neg_sum + kRowBlock)),
        page(scale + kRowBlock) {}
  static size_t Floats(int head_dim) {
    return QueryFloats(head_dim) + IntQueryWords(head_dim) + PageFloats(head_dim);
  }
  float* q;
  int32_t* codes;
  int32_t* neg_sum;
  float* scale;
  float* page;
};

// Floats of the whole workspace: per thread a query block with room for a page, a split's result
// and a unit's sum; then two waves of split results.
struct Plan {
  Plan(int head_dim, int thread_count)
      : dim(head_dim), threads(thread_count), wave(kWaveTasksPerThread * thread_count) {}
  size_t PerThread() const { return Query::Floats(dim) + 2 * PartialFloats(dim); }
  size_t Total() const {
    return PerThread() * static_cast<size_t>(threads) +
           2 * static_cast<size_t>(wave) * PartialFloats(dim);
  }
  int dim;
  int threads;
  int wave;
};

Partial PartialAt(float* base, size_t index, int head_dim) {
  float* o = base + index * PartialFloats(head_dim);
  const int stride = Stride(head_dim);
  float* m = o + static_cast<size_t>(kRowBlock) * stride;
  return {o, stride, m, m + kRowBlock};
}

void Clear(const Partial& p) {
  std::fill_n(p.o, static_cast<ptrdiff_t>(kRowBlock) * p.stride, 0.0F);
  std::fill_n(p.m, kRowBlock, kNothing);
  std::fill_n(p.l, kRowBlock, 0.0F);
}

// The row saw no position. Scores that are all NaN or -infinity also leave m at -infinity, but l is
// NaN then, and so must be the row's output.
bool SawNothing(const Partial& p, int row) { return p.m[row] == kNothing && p.l[row] == 0; }

// One row block of one KV head of one sequence.
struct Unit {
  const AttentionSequence* sequence = nullptr;
  int kv_head = 0;
  int first_row = 0;  // among (token, head of the group), token-major
  int rows = 0;
  int first_page = 0;
  int end_page = 0;
  int first_split() const { return first_page / kSplitPages; }
  int splits() const { return (end_page - 1) / kSplitPages - first_split() + 1; }
};

class Job {
 public:
  Job(const AttentionKernels& kernels, const AttentionShape& shape, const AttentionBatch& batch)
      : kernels_(kernels), shape_(shape), batch_(batch), group_(shape.heads / shape.kv_heads) {
    constexpr float kLog2E = math_constants::kLog2E;
    const bool capped = shape.soft_cap != 0;
    q_scale_ = capped ? shape.scale / shape.soft_cap : shape.scale * kLog2E;
    cap_log2e_ = capped ? shape.soft_cap * kLog2E : 0;
    for (const AttentionSequence& s : batch.sequences) {
      NIBBLE_CHECK(s.kv.layout.head_dim == shape.head_dim &&
                   s.kv.layout.kv_heads == shape.kv_heads);
      unit_ends_.push_back(units() + Blocks(s) * shape.kv_heads);
      for (int block = 0; block < Blocks(s); ++block) {
        const Unit unit = MakeUnit(s, 0, block);
        const int64_t tokens = int64_t{unit.end_page - unit.first_page} * kPageTokens;
        task_count_ += int64_t{unit.splits()} * shape.kv_heads;
        most_splits_ = std::max(most_splits_, unit.splits());
        multiplies_ += 2 * tokens * unit.rows * shape.head_dim * shape.kv_heads;
      }
    }
  }

  int units() const { return unit_ends_.empty() ? 0 : unit_ends_.back(); }
  int64_t tasks() const { return task_count_; }
  int most_splits() const { return most_splits_; }
  int64_t multiplies() const { return multiplies_; }
  int head_dim() const { return shape_.head_dim; }

  Unit UnitAt(int index) const {
    const auto end = std::ranges::upper_bound(unit_ends_, index);
    const auto& sequence = batch_.sequences[static_cast<size_t>(end - unit_ends_.begin())];
    const int blocks = Blocks(sequence);
    const int within = index - (*end - blocks * shape_.kv_heads);
    return MakeUnit(sequence, within / blocks, within % blocks);
  }

  // The result of split `split` (counted from position 0) of a unit.
  void RunSplit(const Unit& unit, int split, const Query& query, const Partial& result) const {
    const std::byte* pages[kSplitPages + kPrefetchPages];
    int positions[kRowBlock];
    const KvView& kv = unit.sequence->kv;
    const int sealed = kv.SealedPages(PositionOf(unit, 0));  // of all rows: blocks end at units
    const int begin = std::max(unit.first_page, split * kSplitPages);
    const int end = std::min(unit.end_page, (split + 1) * kSplitPages);
    const int known = std::min(unit.end_page, end + kPrefetchPages);
    const size_t sealed_head = kv.sealed.HeadOffset(unit.kv_head);
    const size_t open_head = kv.layout.HeadOffset(unit.kv_head);
    for (int p = begin; p < known; ++p) {
      NIBBLE_CHECK((p < sealed ? kv.table.sealed : kv.table.pages)[p] != kNoPage);
      pages[p - begin] = p < sealed ? kv.sealed_piece(p) + sealed_head : kv.piece(p) + open_head;
    }
    for (int r = 0; r < unit.rows; ++r) positions[r] = PositionOf(unit, r);
    AttentionTask task;
    task.pages = pages;
    task.open = FormOf(kv.layout, unit.kv_head);
    if (sealed > begin) task.sealed = FormOf(kv.sealed, unit.kv_head);
    task.sealed_pages = std::clamp(sealed - begin, 0, end - begin);
    task.int_query = {.q = query.codes, .scale = query.scale, .neg_sum = query.neg_sum};
    task.page_scratch = query.page;
    task.page_count = end - begin;
    task.known_pages = known - begin;
    task.first_position = begin * kPageTokens;
    task.rows = unit.rows;
    task.head_dim = shape_.head_dim;
    task.window = shape_.window;
    task.cap_log2e = cap_log2e_;
    task.prefetch = unit.sequence->rows * group_ <= 8 * kRowBlock;
    task.positions = positions;
    task.q = query.q;
    task.o = result.o;
    task.o_stride = result.stride;
    task.m = result.m;
    task.l = result.l;
    kernels_.run(task);
  }

  // Scaled; unused rows repeat the first.
  void GatherQuery(const Unit& unit, const Query& query) const {
    const float* rows[kRowBlock];
    for (int r = 0; r < kRowBlock; ++r) {
      const int row = r < unit.rows ? r : 0;
      rows[r] = batch_.q.row(TokenOf(unit, row)) + ChannelOf(unit, row);
    }
    kernels_.gather(rows, q_scale_, shape_.head_dim, query.q);
    const KvView& kv = unit.sequence->kv;
    const bool sealed = kv.SealedPages(PositionOf(unit, 0)) > unit.first_page;
    if (sealed && IsInteger(kv.sealed.k)) {
      kernels_.quantise_query(query.q, shape_.head_dim,
                              {.q = query.codes, .scale = query.scale, .neg_sum = query.neg_sum});
    }
  }

  // Folds a later split into the sum of the earlier ones.
  void Fold(const Unit& unit, const Partial& split, const Partial& sum) const {
    for (int r = 0; r < unit.rows; ++r) {
      float* acc = sum.o + static_cast<ptrdiff_t>(r) * sum.stride;
      const float* o = split.o + static_cast<ptrdiff_t>(r) * split.stride;
      if (SawNothing(split, r)) continue;
      if (SawNothing(sum, r)) {
        std::copy_n(o, shape_.head_dim, acc);
        sum.m[r] = split.m[r];
        sum.l[r] = split.l[r];
        continue;
      }
      const float m = std::max(sum.m[r], split.m[r]);
      const float a = ref::Exp2(sum.m[r] - m, math_constants::kSoftmaxMin);
      const float b = ref::Exp2(split.m[r] - m, math_constants::kSoftmaxMin);
      kernels_.combine(o, b, a, shape_.head_dim, acc);
      sum.l[r] = std::fma(split.l[r], b, sum.l[r] * a);
      sum.m[r] = m;
    }
  }

  void Finish(const Unit& unit, const Partial& sum) const {
    for (int r = 0; r < unit.rows; ++r) {
      float l = sum.l[r];
      float shrink = 1;
      if (shape_.sinks != nullptr) {
        const int head = unit.kv_head * group_ + (unit.first_row + r) % group_;
        const float sink = shape_.sinks[head] * math_constants::kLog2E;
        const float m = std::max(sum.m[r], sink);
        shrink = ref::Exp2(sum.m[r] - m, math_constants::kSoftmaxMin);
        l = l * shrink + ref::Exp2(sink - m, math_constants::kSoftmaxMin);
      }
      kernels_.finish(sum.o + static_cast<ptrdiff_t>(r) * sum.stride, shrink / l, shape_.head_dim,
                      batch_.out.row(TokenOf(unit, r)) + ChannelOf(unit, r));
    }
  }

 private:
  bool IsInteger(KvFormat format) const {
    return shape_.act == Act::kInt8 && TraitsOf(format).integer;
  }
  PageForm FormOf(const KvLayout& layout, int head) const {
    const auto k = static_cast<size_t>(layout.k);
    const auto v = static_cast<size_t>(layout.v);
    const bool int_k = IsInteger(layout.k);
    const bool int_v = IsInteger(layout.v);
    const size_t floats = layout.FloatOffset(head) - layout.HeadOffset(head);
    const size_t k_float = TraitsOf(layout.k).page_float[0] ? sizeof(float) : 0;
    return {.score = int_k ? kernels_.int_score[k] : kernels_.score[k],
            .value = int_v ? kernels_.int_value[v] : kernels_.value[v],
            .unpack_k = kernels_.unpack[k][0],
            .unpack_v = kernels_.unpack[v][1],
            .page_relative = int_v,
            .v_offset = layout.KBytes(),
            .k_float_offset = floats,
            .v_float_offset = floats + k_float};
  }

  // Row blocks end where units of pages end (kernels/kv_view.h), so that all rows of a block see
  // the same pages sealed. Tokens up to the first such border, and between two of them:
  int TokensToBorder(const AttentionSequence& s) const {
    if (!s.kv.two_forms()) return s.rows;
    return std::min(s.rows, UnitTokens(s) - s.first.value() % UnitTokens(s));
  }
  int UnitTokens(const AttentionSequence& s) const { return s.kv.unit_pages * kPageTokens; }
  int BlocksOf(int tokens) const { return CeilDiv(tokens * group_, kRowBlock); }
  int Blocks(const AttentionSequence& s) const {
    const int head = TokensToBorder(s);
    const int rest = s.rows - head;
    if (rest == 0) return BlocksOf(head);
    const int unit = UnitTokens(s);
    return BlocksOf(head) + rest / unit * BlocksOf(unit) + BlocksOf(rest % unit);
  }
  struct RowSpan {
    int first;
    int rows;
  };
  RowSpan RowsOf(const AttentionSequence& s, int block) const {
    int begin = 0;  // tokens of the sequence's rows
    int tokens = TokensToBorder(s);
    if (block >= BlocksOf(tokens)) {
      const int unit = UnitTokens(s);
      block -= BlocksOf(tokens);
      begin = tokens + block / BlocksOf(unit) * unit;
      tokens = std::min(unit, s.rows - begin);
      block %= BlocksOf(unit);
    }
    const int first = begin * group_ + block * kRowBlock;
    return {first, std::min(kRowBlock, (begin + tokens) * group_ - first)};
  }
  Unit MakeUnit(const AttentionSequence& s, int kv_head, int block) const {
    Unit unit;
    unit.sequence = &s;
    unit.kv_head = kv_head;
    const RowSpan rows = RowsOf(s, block);
    unit.first_row = rows.first;
    unit.rows = rows.rows;
    const int low = PositionOf(unit, 0);
    const int high = PositionOf(unit, unit.rows - 1);
    const int seen = shape_.window > 0 ? std::max(0, low - shape_.window + 1) : 0;
    unit.first_page = seen / kPageTokens;
    unit.end_page = high / kPageTokens + 1;
    return unit;
  }
  int PositionOf(const Unit& unit, int r) const {
    return unit.sequence->first.value() + (unit.first_row + r) / group_;
  }
  int TokenOf(const Unit& unit, int r) const {
    return unit.sequence->row_begin + (unit.first_row + r) / group_;
  }
  ptrdiff_t ChannelOf(const Unit& unit, int r) const {
    const int head = unit.kv_head * group_ + (unit.first_row + r) % group_;
    return static_cast<ptrdiff_t>(head) * shape_.head_dim;
  }

  const AttentionKernels& kernels_;
  const AttentionShape& shape_;
  const AttentionBatch& batch_;
  int group_;
  float q_scale_ = 0;
  float cap_log2e_ = 0;
  std::vector<int> unit_ends_;  // per sequence, one past its last unit
  int64_t task_count_ = 0;
  int most_splits_ = 0;
  int64_t multiplies_ = 0;
};

// A thread does all splits of a unit, in order.
void RunUnit(const Job& job, const Unit& unit, float* scratch) {
  const Query query(scratch, job.head_dim());
  float* partials = scratch + Query::Floats(job.head_dim());
  const Partial split = PartialAt(partials, 0, job.head_dim());
  const Partial sum = PartialAt(partials, 1, job.head_dim());
  job.GatherQuery(unit, query);
  const int first = unit.first_split();
  if (unit.splits() == 1) {
    job.RunSplit(unit, first, query, sum);
  } else {
    Clear(sum);
    for (int s = 0; s < unit.splits(); ++s) {
      job.RunSplit(unit, first + s, query, split);
      job.Fold(unit, split, sum);
    }
  }
  job.Finish(unit, sum);
}

// Few units over long contexts: the splits of all units, in order, are shared out in waves. Results
// of a wave are folded after its barrier while the next wave fills the other half. A unit's sum
// stays with one thread, also when the unit goes on in the next wave.
class Waves {
 public:
  Waves(const Job& job, ThreadPool& pool, float* workspace, const Plan& plan)
      : job_(job), pool_(pool), plan_(plan), workspace_(workspace) {
    partials_ = workspace + plan.PerThread() * static_cast<size_t>(plan.threads);
  }

  void Run() {
    pool_.Run([&](int thread) {
      int unit = 0;      // of the wave's first task
      int64_t skip = 0;  // splits of it done in earlier waves
      int wave = 0;
      for (int64_t begin = 0; begin < job_.tasks(); begin += plan_.wave, ++wave) {
        const auto count = static_cast<int>(std::min<int64_t>(plan_.wave, job_.tasks() - begin));
        Compute(thread, wave, CeilDiv(count, plan_.threads), unit, skip);
        pool_.Barrier(thread);
        Fold(thread, wave, unit, skip);
      }
    });
  }

 private:
  Partial SplitAt(int wave, int index) const {
    return PartialAt(partials_,
                     static_cast<size_t>(wave & 1) * static_cast<size_t>(plan_.wave) +
                         static_cast<size_t>(index),
                     plan_.dim);
  }

  float* Scratch(int thread) const {
    return workspace_ + plan_.PerThread() * static_cast<size_t>(thread);
  }

  // Thread t takes `share` neighbouring slots, so that one split's prefetches serve the next.
  void Compute(int thread, int wave, int share, int unit_index, int64_t skip) const {
    const Query query(Scratch(thread), plan_.dim);
    int slot = 0;
    for (; slot < plan_.wave && unit_index < job_.units(); ++unit_index, skip = 0) {
      const Unit unit = job_.UnitAt(unit_index);
      bool gathered = false;
      for (int64_t s = skip; s < unit.splits() && slot < plan_.wave; ++s, ++slot) {
        if (slot / share != thread) continue;
        if (!gathered) job_.GatherQuery(unit, query);
        gathered = true;
        job_.RunSplit(unit, unit.first_split() + static_cast<int>(s), query, SplitAt(wave, slot));
      }
    }
  }

  // Every thread steps through the wave's units; unit u is folded by thread u mod threads.
  void Fold(int thread, int wave, int& unit_index, int64_t& skip) const {
    int slot = 0;
    while (slot < plan_.wave && unit_index < job_.units()) {
      const Unit unit = job_.UnitAt(unit_index);
      const int count =
          static_cast<int>(std::min<int64_t>(unit.splits() - skip, plan_.wave - slot));
      const bool done = skip + count == unit.splits();
      if (unit_index % plan_.threads == thread) {
        const Partial sum = PartialAt(Scratch(thread) + Query::Floats(plan_.dim), 1, plan_.dim);
        if (skip == 0) Clear(sum);
        for (int i = 0; i < count; ++i) job_.Fold(unit, SplitAt(wave, slot + i), sum);
        if (done) job_.Finish(unit, sum);
      }
      slot += count;
      skip = done ? 0 : skip + count;
      if (done) ++unit_index;
    }
  }

  const Job& job_;
  ThreadPool& pool_;
  const Plan& plan_;
  float* workspace_;
  float* partials_;
};

}  // namespace

size_t AttentionWorkspace::Bytes(const AttentionShape& shape, int threads) {
  return Plan(shape.head_dim, threads).Total() * sizeof(float);
}

Status AttentionWorkspace::Reserve(const AttentionShape& shape, int threads) {
  const size_t bytes = Bytes(shape, threads);
  if (buffer_.size() >= bytes) return {};
  NIBBLE_TRY(buffer_, AlignedBuffer::Allocate(bytes));
  return {};
}

void Attention(const KernelTable& kernels, ThreadPool& pool, const AttentionShape& shape,
               const AttentionBatch& batch, AttentionWorkspace& workspace) {
  NIBBLE_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  const Plan plan(shape.head_dim, pool.size());
  NIBBLE_CHECK(workspace.buffer().size() >= plan.Total() * sizeof(float));
  const Job job(*kernels.attention, shape, batch);
  float* scratch = workspace.buffer().as<float>().data();
  if (pool.size() == 1 || job.multiplies() <= kFewMultiplies) {
    for (int u = 0; u < job.units(); ++u) RunUnit(job, job.UnitAt(u), scratch);
    return;
  }
  if (job.units() < 4 * pool.size() && job.most_splits() > 1) {
    Waves(job, pool, scratch, plan).Run();
    return;
  }
  // Later blocks of a prompt see more: they go first, so that the last ones to finish are short.
  std::atomic<int> next = job.units();
  pool.Run([&](int thread) {
    float* mine = scratch + plan.PerThread() * static_cast<size_t>(thread);
    for (int u = next.fetch_sub(1) - 1; u >= 0; u = next.fetch_sub(1) - 1) {
      RunUnit(job, job.UnitAt(u), mine);
    }
  });
}

}  // namespace nibble
