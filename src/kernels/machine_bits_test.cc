// The promise that an answer can be replayed on another machine: results on fixed inputs have fixed
// bits, whatever the processor, compiler or C library. A change of these constants is a change of
// every answer that nibble gives.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_test_support.h"
#include "kernels/scalar_math.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using testing::FloatTable;

// Exact in float and free of library functions.
std::vector<float> Numbers(size_t n, uint32_t seed, float scale) {
  std::vector<float> x(n);
  for (float& value : x) {
    seed = seed * 1664525U + 1013904223U;
    value = (static_cast<float>(seed >> 8) - 8388608.0F) * 0x1p-23F * scale;
  }
  return x;
}

class Fingerprint {
 public:
  void Add(const void* data, size_t bytes) {  // FNV-1a
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ p[i]) * 1099511628211ULL;
  }
  void Add(const std::vector<float>& x) { Add(x.data(), x.size() * sizeof(float)); }
  void Add(double x) { Add(&x, sizeof(x)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 14695981039346656037ULL;
};

class MachineBits : public ::testing::TestWithParam<Isa> {
 protected:
  const FloatKernels& floats_ = *FloatKernelsFor(GetParam());
};

TEST_P(MachineBits, FloatKernels) {
  constexpr int kN = 1187;
  const auto a = Numbers(kN, 1, 12);
  const auto b = Numbers(kN, 2, 3);
  std::vector<float> y(kN);
  Fingerprint print;
  floats_.rms_norm(a.data(), b.data(), 1e-5F, kN, y.data());
  print.Add(y);
  floats_.layer_norm(a.data(), b.data(), b.data(), 1e-5F, kN, y.data());
  print.Add(y);
  for (int gate = 0; gate < 3; ++gate) {
    floats_.gate[gate](a.data(), b.data(), kN, y.data());
    print.Add(y);
  }
  y = a;
  floats_.soft_cap(4, kN, y.data());
  print.Add(y);
  print.Add(floats_.sum_exp(a.data(), 12, kN));
  EXPECT_EQ(print.value(), 9877361552684929996ULL);
}

TEST_P(MachineBits, RopeAndAttention) {
  constexpr int kHeads = 6;
  constexpr int kKvHeads = 2;
  constexpr int kDim = 24;
  constexpr int kTokens = 560;  // two splits
  auto q = Numbers(static_cast<size_t>(kTokens) * kHeads * kDim, 3, 4);
  auto k = Numbers(static_cast<size_t>(kTokens) * kKvHeads * kDim, 4, 4);
  const auto v = Numbers(k.size(), 5, 2);
  std::vector<float> inv_freq(kDim / 2);
  std::vector<float> cos(kTokens * kDim / 2);
  std::vector<float> sin(cos.size());
  for (int i = 0; i < kDim / 2; ++i) {
    inv_freq[i] = static_cast<float>(Pow(10000, -2.0 * i / kDim));
  }
  std::vector<Position> positions(kTokens);
  for (int p = 0; p < kTokens; ++p) {
    positions[p] = Position{p};
    FillRopeRow(Position{p}, inv_freq, 1, &cos[p * kDim / 2], &sin[p * kDim / 2]);
  }
  const KernelTable kernels = FloatTable(GetParam());
  ThreadPool pool(2);
  const RopeTable table = {DenseView<const float>(cos.data(), kTokens, kDim / 2),
                           DenseView<const float>(sin.data(), kTokens, kDim / 2), false};
  const auto queries = DenseView(q.data(), kTokens, kHeads * kDim);
  const auto keys = DenseView(k.data(), kTokens, kKvHeads * kDim);
  for (int row = 0; row < kTokens; ++row) {
    Rope(kernels, table, row, kHeads, std::span(queries.row(row), kHeads * kDim));
    Rope(kernels, table, row, kKvHeads, std::span(keys.row(row), kKvHeads * kDim));
  }
  Fingerprint print;
  print.Add(q);
  print.Add(k);

  const KvLayout layout = {KvFormat::kF16, KvFormat::kF16, kKvHeads, kDim};
  std::vector<PageId> pages(kTokens / kPageTokens + 1);
  for (size_t p = 0; p < pages.size(); ++p) pages[p] = PageId{static_cast<int32_t>(p)};
  AlignedBuffer arena = *AlignedBuffer::Allocate(layout.PieceBytes() * pages.size());
  const KvTable pages_of = {
      .arena = arena.data(), .page_bytes = layout.PieceBytes(), .pages = pages};
  const AttentionSequence sequence = {
      0, kTokens, Position{0}, {.table = pages_of, .layout = layout, .sealed = layout}};
  AttentionShape shape = {kHeads, kKvHeads, kDim, 0.25F, 50, 0, nullptr};
  AttentionWorkspace workspace;
  ASSERT_TRUE(workspace.Reserve(shape, pool.size()));
  WriteKv(kernels, pool, {&sequence, 1}, keys,
          DenseView<const float>(v.data(), kTokens, kKvHeads * kDim));
  std::vector<float> out(q.size());
  for (int window : {0, 100}) {
    shape.window = window;
    Attention(kernels, pool, shape,
              {{&sequence, 1}, queries, DenseView(out.data(), kTokens, kHeads * kDim)}, workspace);
    print.Add(out);
  }
  EXPECT_EQ(print.value(), 8009398695587570549ULL);
}

TEST(MachineBitsOfScalarMath, AreFixed) {
  Fingerprint print;
  for (float f : Numbers(2000, 9, 40)) {
    const double x = f;
    print.Add(Exp(x));
    print.Add(Log(x * x + 1e-9));
    print.Add(Sin(x * 1000));
    print.Add(Cos(x * 1000));
    print.Add(Pow(x * x + 0.1, 0.3 * x));
    print.Add(Tanh(x / 10));
  }
  EXPECT_EQ(print.value(), 9419998133519699071ULL);
}

INSTANTIATE_TEST_SUITE_P(Isas, MachineBits, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace nibble
