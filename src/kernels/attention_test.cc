#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/attention_test_support.h"

namespace nibble {
namespace {

using testing::AttentionCase;
using testing::AttentionFixture;
using testing::AttentionWay;
using testing::Bits;
using testing::Case;
using testing::FloatTable;

std::vector<AttentionCase> VariedCases() {
  std::vector<AttentionCase> cases;
  for (int head_dim : {6, 12, 16, 24, 32, 40, 64, 80, 96, 128, 256}) {
    cases.push_back(Case(2, 1, head_dim));
  }
  for (int group : {1, 3, 4, 5, 8, 11}) cases.push_back(Case(2 * group, 2, 16));
  AttentionCase c = Case(4, 2, 16);
  for (int window : {1, 7, 32, 33, 100}) {
    c.shape.window = window;
    cases.push_back(c);
  }
  c = Case(4, 2, 24);
  c.shape.soft_cap = 5;
  c.magnitude = 2;
  cases.push_back(c);
  c.shape.window = 40;
  cases.push_back(c);
  c = Case(4, 1, 16);
  c.sinks = {-2, 0.5F, 3, 40};
  cases.push_back(c);
  for (KvFormat k : {KvFormat::kF32, KvFormat::kF16}) {
    for (KvFormat v : {KvFormat::kF32, KvFormat::kF16}) {
      for (int head_dim : {20, 64}) {
        c = Case(3, 3, head_dim);
        c.k = k;
        c.v = v;
        cases.push_back(c);
      }
    }
  }
  c = Case(2, 1, 32);
  c.magnitude = 6;  // weights far below 2^-64
  cases.push_back(c);
  return cases;
}

class AttentionTest : public ::testing::TestWithParam<Isa> {
 protected:
  KernelTable kernels_ = FloatTable(GetParam());
  ThreadPool alone_{1};
};

TEST_P(AttentionTest, FollowsTheFormulaAndTheTwin) {
  unsigned seed = 1;
  for (const AttentionCase& c : VariedCases()) {
    ExpectFormulaAndTwin(kernels_, c, 75, seed += 3, {0, 1, 31, 32, 33, 63, 64, 74});
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, ChunksAndThreadsDoNotMatter) {
  AttentionCase plain = Case(6, 2, 16);
  AttentionCase windowed = Case(6, 2, 16);
  windowed.shape.window = 521;
  windowed.sinks = {0, 1, 2, 3, 4, 5};
  AttentionCase one_head = Case(1, 1, 8);
  for (const AttentionCase& c : {plain, windowed, one_head}) {
    // Three splits, the last one short; two for the slow twin.
    const int tokens = GetParam() == Isa::kScalar ? 540 : 1100;
    constexpr AttentionWay kWays[] = {{1, 333}, {1, 32}, {2, 7}, {2, 1}, {5, 129}};
    ExpectSameBits(kernels_, c, tokens, kWays);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, BatchMatesDoNotMatter) {
  const AttentionCase c = Case(4, 2, 40);
  AttentionFixture a(c, 600, 1);
  AttentionFixture b(c, 70, 2);
  AttentionFixture d(c, 1, 3);
  std::vector<std::vector<float>> want;
  for (AttentionFixture* f : {&a, &b, &d}) want.push_back(f->RunInChunks(kernels_, alone_, 64));
  // The last 5 tokens of a, all of b and d in one step; their earlier keys are in the pages.
  struct Part {
    AttentionFixture* fixture;
    int first;
    int rows;
  };
  const Part parts[] = {{&a, 595, 5}, {&b, 0, 70}, {&d, 0, 1}};
  std::vector<AttentionSequence> sequences;
  std::vector<float> q;
  int row = 0;
  for (const Part& p : parts) {
    sequences.push_back(p.fixture->Sequence(p.first, p.rows, row));
    q.insert(q.end(), p.fixture->q(p.first),
             p.fixture->q(p.first) + static_cast<ptrdiff_t>(p.rows) * p.fixture->q_cols());
    row += p.rows;
  }
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    AttentionWorkspace workspace;
    ASSERT_TRUE(workspace.Reserve(a.shape(), threads));
    std::vector<float> out(q.size());
    Attention(kernels_, pool, a.shape(),
              {sequences, DenseView<const float>(q.data(), row, a.q_cols()),
               DenseView(out.data(), row, a.q_cols())},
              workspace);
    size_t at = 0;
    for (size_t i = 0; i < 3; ++i) {
      const size_t skip = static_cast<size_t>(parts[i].first) * a.q_cols();
      const size_t count = static_cast<size_t>(parts[i].rows) * a.q_cols();
      ASSERT_EQ(Bits(std::span(out).subspan(at, count)),
                Bits(std::span(want[i]).subspan(skip, count)));
      at += count;
    }
  }
}

TEST_P(AttentionTest, LongContextWithinTheBound) {
  constexpr int kTokens = 32768;
  AttentionCase c = Case(2, 1, 16);
  c.magnitude = 2;
  AttentionFixture f(c, kTokens, 9);
  std::vector<float> out(f.q_cols());
  // Everything but the last token only fills the pages.
  const AttentionSequence before = f.Sequence(0, kTokens - 1, 0);
  WriteKv(kernels_, alone_, {&before, 1}, DenseView(f.k(0), kTokens - 1, f.kv_cols()),
          DenseView(f.v(0), kTokens - 1, f.kv_cols()));
  ThreadPool pool(2);
  f.Step(kernels_, pool, kTokens - 1, 1, out.data());
  for (int head = 0; head < 2; ++head) f.ExpectNear(kTokens - 1, head, &out[head * 16]);
}

TEST_P(AttentionTest, OverflowingKeysAndValuesStayInTheirToken) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (KvFormat format : {KvFormat::kF16, KvFormat::kF32}) {
    AttentionCase c = Case(2, 1, 16);
    c.k = c.v = format;
    AttentionFixture f(c, 20, 4);
    const auto want = f.RunInChunks(kernels_, alone_, 20);
    // The same sequence with a broken 20th token: the first 19 must not notice.
    std::vector<float> k(f.k(0), f.k(0) + 20 * 16);
    std::vector<float> v(f.v(0), f.v(0) + 20 * 16);
    for (int i = 0; i < 16; ++i) {
      k[19 * 16 + i] = i % 3 == 0 ? kNan : i % 3 == 1 ? kInf : 1e30F;
      v[19 * 16 + i] = i % 3 == 0 ? -kInf : i % 3 == 1 ? kNan : -1e30F;
    }
    const AttentionSequence sequence = f.Sequence(0, 20, 0);
    AttentionWorkspace workspace;
    ASSERT_TRUE(workspace.Reserve(f.shape(), 1));
    std::vector<float> out(20 * 32);
    WriteKv(kernels_, alone_, {&sequence, 1}, DenseView<const float>(k.data(), 20, 16),
            DenseView<const float>(v.data(), 20, 16));
    Attention(kernels_, alone_, f.shape(),
              {{&sequence, 1}, DenseView(f.q(0), 20, 32), DenseView(out.data(), 20, 32)},
              workspace);
    EXPECT_EQ(Bits(std::span(out).first(19 * 32)), Bits(std::span(want).first(19 * 32)));
  }
}

// Rows `nan(token, head)` of `got` are NaN in all channels, the others are those of `clean`.
template <class IsNan>
void ExpectNanRows(const AttentionFixture& f, std::span<const float> got,
                   std::span<const float> clean, IsNan nan) {
  const AttentionShape shape = f.shape();
  const auto dim = static_cast<size_t>(shape.head_dim);
  for (int token = 0; token < f.tokens(); ++token) {
    for (int head = 0; head < shape.heads; ++head) {
      const size_t at = static_cast<size_t>(token) * f.q_cols() + static_cast<size_t>(head) * dim;
      const auto row = got.subspan(at, dim);
      if (nan(token, head)) {
        for (float value : row) ASSERT_TRUE(std::isnan(value)) << token << " " << head;
      } else {
        ASSERT_EQ(Bits(row), Bits(clean.subspan(at, dim))) << token << " " << head;
      }
    }
  }
}

std::vector<AttentionCase> CasesForNan() {
  std::vector<AttentionCase> cases(4, Case(4, 2, 16));
  cases[0].k = cases[0].v = KvFormat::kF32;
  cases[1].sinks = {0, 1, -3, 2};
  cases[2].shape.soft_cap = 4;
  cases[3].shape.window = 530;
  return cases;
}

// One with a payload, one that signals, one of each sign.
constexpr uint32_t kNanBits[] = {0xffffffffU, 0x7f800001U, 0x7fc00000U, 0xffc00000U};

struct NanWay {
  int threads;
  int chunk;
};
constexpr NanWay kNanWays[] = {{1, 600}, {1, 1}, {2, 1}, {2, 7}, {4, 600}, {5, 64}};

TEST_P(AttentionTest, NanQueriesGiveNanWhateverTheThreads) {
  const int tokens = GetParam() == Isa::kScalar ? 540 : 600;  // two splits
  for (const AttentionCase& c : CasesForNan()) {
    AttentionFixture f(c, tokens, 3);
    const auto clean = f.RunInChunks(kernels_, alone_, tokens);
    const int broken[] = {0, 70, 525, tokens - 1};
    for (int i = 0; i < 4; ++i) {  // head i of the i-th broken token, one channel of it
      f.mutable_q(broken[i])[i * 16 + 5] = std::bit_cast<float>(kNanBits[i]);
    }
    const auto twin = f.RunInChunks(FloatTable(Isa::kScalar), alone_, tokens);
    for (const auto& [threads, chunk] : kNanWays) {
      if (GetParam() == Isa::kScalar && chunk == 1) continue;  // slow
      ThreadPool pool(threads);
      const auto got = f.RunInChunks(kernels_, pool, chunk);
      ASSERT_EQ(Bits(got), Bits(twin)) << threads << " " << chunk;
      ExpectNanRows(f, got, clean, [&](int token, int head) { return token == broken[head]; });
    }
  }
}

TEST_P(AttentionTest, NanKeysAndValuesGiveNanToAllWhoSeeThem) {
  const int tokens = GetParam() == Isa::kScalar ? 540 : 600;
  for (const AttentionCase& c : CasesForNan()) {
    AttentionFixture f(c, tokens, 6);
    const auto clean = f.RunInChunks(kernels_, alone_, tokens);
    const int broken[] = {5, 521};  // by KV head
    f.mutable_v(broken[0])[9] = std::bit_cast<float>(kNanBits[0]);
    f.mutable_k(broken[1])[16 + 3] = std::bit_cast<float>(kNanBits[1]);
    const auto twin = f.RunInChunks(FloatTable(Isa::kScalar), alone_, tokens);
    for (const auto& [threads, chunk] : kNanWays) {
      if (GetParam() == Isa::kScalar && chunk == 1) continue;
      ThreadPool pool(threads);
      const auto got = f.RunInChunks(kernels_, pool, chunk);
      ASSERT_EQ(Bits(got), Bits(twin)) << threads << " " << chunk;
      ExpectNanRows(f, got, clean, [&](int token, int head) {
        const int age = token - broken[head / 2];
        return age >= 0 && (c.shape.window == 0 || age < c.shape.window);
      });
    }
  }
}

TEST_P(AttentionTest, HalvesSaturateAndDropNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0,
                          -0.0F,
                          65504,
                          65519,
                          65520,
                          -65521,
                          1e30F,
                          -1e30F,
                          kInf,
                          -kInf,
                          std::numeric_limits<float>::quiet_NaN(),
                          1e-8F,
                          3e-8F,
                          -6e-8F,
                          1e-5F,
                          1.0009766F,
                          1.0004883F};
  const auto more = testing::RandomFloats(50, 2, 100);
  x.insert(x.end(), more.begin(), more.end());
  for (size_t n = 1; n <= x.size(); ++n) {
    std::vector<uint16_t> want(x.size(), 7);
    std::vector<uint16_t> got(x.size(), 7);
    for (size_t i = 0; i < n; ++i) want[i] = std::isnan(x[i]) ? 0 : F32ToF16Saturating(x[i]);
    kernels_.attention->to_half(x.data(), static_cast<int>(n), got.data());
    ASSERT_EQ(got, want);
  }
}

TEST(AttentionWorkspaceSize, DependsOnShapeAndThreadsOnly) {
  const AttentionShape shape = Case(8, 2, 64).shape;
  EXPECT_LT(AttentionWorkspace::Bytes(shape, 2), size_t{256} << 10);
  EXPECT_LT(AttentionWorkspace::Bytes(shape, 2), AttentionWorkspace::Bytes(shape, 4));
}

TEST(KvWrite, PagesHoldTheLayoutAndZeros) {
  AttentionCase c = Case(2, 2, 3);
  AttentionFixture f(c, 40, 8);
  ThreadPool pool(1);
  const KernelTable kernels = FloatTable(Isa::kScalar);
  const AttentionSequence sequence = f.Sequence(0, 34, 0);
  WriteKv(kernels, pool, {&sequence, 1}, DenseView(f.k(0), 34, 6), DenseView(f.v(0), 34, 6));
  const KvLayout& layout = sequence.kv.layout;
  for (int page = 0; page < 2; ++page) {
    for (int head = 0; head < 2; ++head) {
      const std::byte* base = sequence.kv.piece(page) + (layout.KBytes() + layout.VBytes()) * head;
      const auto* k = reinterpret_cast<const uint16_t*>(base);
      const auto* v = reinterpret_cast<const uint16_t*>(base + layout.KBytes());
      for (int j = 0; j < kPageTokens; ++j) {
        const int token = page * kPageTokens + j;
        for (int d = 0; d < 3; ++d) {
          const float key = token < 34 ? f.k(token)[head * 3 + d] : 0;
          const float value = token < 34 ? f.v(token)[head * 3 + d] : 0;
          EXPECT_EQ(k[d * kPageTokens + j], F32ToF16(key));
          EXPECT_EQ(v[j * 3 + d], F32ToF16(value));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace nibble
