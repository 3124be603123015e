#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "format/small_float.h"
#include "kernels/attention.h"
#include "kernels/attention_naive.h"
#include "kernels/kernel_test_support.h"
#include "platform/thread_pool.h"

namespace nibble::testing {

struct AttentionCase {
  AttentionShape shape;
  KvFormat k = KvFormat::kF16;
  KvFormat v = KvFormat::kF16;
  std::vector<float> sinks;
  float magnitude = 1;  // of queries and keys
};

inline AttentionCase Case(int heads, int kv_heads, int head_dim) {
  AttentionCase c;
  c.shape.heads = heads;
  c.shape.kv_heads = kv_heads;
  c.shape.head_dim = head_dim;
  c.shape.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  return c;
}

// One sequence: queries, keys and values of all positions, and a cache whose pages lie in shuffled
// order between pages full of NaN.
class AttentionFixture {
 public:
  AttentionFixture(const AttentionCase& c, int tokens, unsigned seed) : case_(c), tokens_(tokens) {
    const AttentionShape& s = c.shape;
    q_ = RandomFloats(static_cast<size_t>(tokens) * s.heads * s.head_dim, seed, c.magnitude);
    k_ = RandomFloats(static_cast<size_t>(tokens) * s.kv_heads * s.head_dim, seed + 1, c.magnitude);
    v_ = RandomFloats(k_.size(), seed + 2);
    sealed_ = {c.k, c.v, s.kv_heads, s.head_dim};
    layout_ = OpenLayout(sealed_);
    const int pages = (tokens + kPageTokens - 1) / kPageTokens;
    const size_t bytes = layout_.PieceBytes() * (2 * static_cast<size_t>(pages) + 1);
    arena_ = *AlignedBuffer::Allocate(bytes);
    sealed_arena_ = *AlignedBuffer::Allocate(SealedBytes() * (2 * static_cast<size_t>(pages) + 1));
    ResetArena();
    for (int p = 0; p < pages; ++p) pages_.push_back(PageId{2 * p + 1});
    std::mt19937 engine(seed);
    std::shuffle(pages_.begin(), pages_.end(), engine);
    sealed_pages_ = pages_;
    std::shuffle(sealed_pages_.begin(), sealed_pages_.end(), engine);
  }

  void ResetArena() {
    std::memset(arena_.data(), 0xff, arena_.size());
    std::memset(sealed_arena_.data(), 0xff, sealed_arena_.size());
  }

  AttentionSequence Sequence(int first, int rows, int row_begin) {
    const KvTable table = {.arena = arena_.data(),
                           .page_bytes = layout_.PieceBytes(),
                           .pages = pages_,
                           .sealed_arena = sealed_arena_.data(),
                           .sealed_page_bytes = SealedBytes(),
                           .sealed = sealed_pages_};
    const KvView view = {
        .table = table, .layout = layout_, .sealed = sealed_, .unit_pages = UnitPages(sealed_)};
    return {row_begin, rows, Position{first}, view};
  }

  int q_cols() const { return case_.shape.heads * case_.shape.head_dim; }
  int kv_cols() const { return case_.shape.kv_heads * case_.shape.head_dim; }
  int tokens() const { return tokens_; }
  const float* q(int token) const { return q_.data() + static_cast<ptrdiff_t>(token) * q_cols(); }
  const float* k(int token) const { return k_.data() + static_cast<ptrdiff_t>(token) * kv_cols(); }
  const float* v(int token) const { return v_.data() + static_cast<ptrdiff_t>(token) * kv_cols(); }
  float* mutable_q(int token) { return const_cast<float*>(q(token)); }
  float* mutable_k(int token) { return const_cast<float*>(k(token)); }
  float* mutable_v(int token) { return const_cast<float*>(v(token)); }
  AttentionShape shape() const {
    AttentionShape shape = case_.shape;
    shape.sinks = case_.sinks.empty() ? nullptr : case_.sinks.data();
    return shape;
  }

  // Runs tokens [first, first + rows) as one step.
  void Step(const KernelTable& kernels, ThreadPool& pool, int first, int rows, float* out) {
    AttentionWorkspace workspace;
    ASSERT_TRUE(workspace.Reserve(shape(), pool.size()));
    std::ranges::fill(workspace.buffer().as<float>(), 3.0F);  // as if left by an earlier step
    const AttentionSequence sequence = Sequence(first, rows, 0);
    WriteKv(kernels, pool, {&sequence, 1}, DenseView(k(first), rows, kv_cols()),
            DenseView(v(first), rows, kv_cols()));
    Attention(kernels, pool, shape(),
              {{&sequence, 1}, DenseView(q(first), rows, q_cols()), DenseView(out, rows, q_cols())},
              workspace);
  }

  // All tokens in steps of `chunk`.
  std::vector<float> RunInChunks(const KernelTable& kernels, ThreadPool& pool, int chunk) {
    std::vector<float> out(q_.size());
    ResetArena();
    for (int first = 0; first < tokens_; first += chunk) {
      Step(kernels, pool, first, std::min(chunk, tokens_ - first),
           out.data() + static_cast<ptrdiff_t>(first) * q_cols());
    }
    return out;
  }

  // Compares one row and head with the naive formula in double.
  void ExpectNear(int token, int head, const float* got) {
    const NaiveAttentionRow want =
        NaiveAttention(shape(), Sequence(0, tokens_, 0).kv, head, Position{token},
                       q(token) + static_cast<ptrdiff_t>(head) * case_.shape.head_dim);
    for (size_t c = 0; c < want.out.size(); ++c) {
      ASSERT_NEAR(got[c], want.out[c], want.bound[c])
          << "token " << token << " head " << head << " channel " << c;
    }
  }

 private:
  // An odd multiple of four bytes, as pieces of several layers lie in a page.
  size_t SealedBytes() const { return sealed_.PieceBytes() + 4; }

  AttentionCase case_;
  int tokens_;
  KvLayout layout_;
  KvLayout sealed_;
  std::vector<float> q_;
  std::vector<float> k_;
  std::vector<float> v_;
  AlignedBuffer arena_;
  AlignedBuffer sealed_arena_;
  std::vector<PageId> pages_;
  std::vector<PageId> sealed_pages_;
};

// All rows in one step: the scalar twin's bits, and near the formula at some tokens.
inline void ExpectFormulaAndTwin(const KernelTable& kernels, const AttentionCase& c, int tokens,
                                 unsigned seed, std::initializer_list<int> tokens_checked) {
  AttentionFixture f(c, tokens, seed);
  ThreadPool alone(1);
  const auto out = f.RunInChunks(kernels, alone, tokens);
  if (kernels.isa != Isa::kScalar) {
    const auto twin = f.RunInChunks(FloatTable(Isa::kScalar), alone, tokens);
    ASSERT_EQ(Bits(out), Bits(twin))
        << "head_dim " << c.shape.head_dim << " heads " << c.shape.heads << " k "
        << TraitsOf(c.k).name << " v " << TraitsOf(c.v).name << " window " << c.shape.window;
  }
  for (const int token : tokens_checked) {
    for (int head = 0; head < c.shape.heads; ++head) {
      f.ExpectNear(token, head,
                   &out[static_cast<size_t>(token) * f.q_cols() + head * c.shape.head_dim]);
    }
  }
}

struct AttentionWay {
  int threads;
  int chunk;  // rows of a step
};
// The bits of all rows in one step by one thread, in other ways too.
inline void ExpectSameBits(const KernelTable& kernels, const AttentionCase& c, int tokens,
                           std::span<const AttentionWay> ways) {
  AttentionFixture f(c, tokens, 5);
  ThreadPool alone(1);
  const auto want = Bits(f.RunInChunks(kernels, alone, tokens));
  for (const auto& [threads, chunk] : ways) {
    ThreadPool pool(threads);
    ASSERT_EQ(Bits(f.RunInChunks(kernels, pool, chunk)), want) << threads << " " << chunk;
  }
}

}  // namespace nibble::testing
