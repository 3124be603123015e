#include <cmath>
#include <random>

#include "advise/rate_meters.h"
#include "advise/step_overheads.h"
#include "kernels/activations.h"
#include "kernels/elementwise.h"
#include "kernels/sampling.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr int kRows = 8;  // one tile: one thread does it
constexpr int kWidth = 1024;
constexpr int kHeadDim = 64;
constexpr int kVocabulary = 1 << 16;
constexpr int kRowRounds = 9;

std::vector<float> Numbers(size_t count) {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

// Of work on one thread.
template <class Work>
double TypicalTime(MeterBench& bench, double scale, Work&& work) {
  StateSamples samples;
  bench.Time(samples, kRowRounds, scale, 0, work);
  return samples.NearAt(bench.UsualState()).typical();
}

// Keys and values of `rows` sequences of one head, one position each, into pages of their own.
double WriteSeconds(MeterBench& bench) {
  const KvLayout layout{.k = KvFormat::kF16,
                        .v = KvFormat::kF16,
                        .kv_heads = kWidth / kHeadDim,
                        .head_dim = kHeadDim};
  std::vector<PageId> ids;
  for (int i = 0; i < kRows; ++i) ids.emplace_back(i);
  std::vector<AttentionSequence> sequences;
  const KvTable all{.arena = bench.arena().data(), .page_bytes = layout.PieceBytes()};
  for (int i = 0; i < kRows; ++i) {
    KvTable table = all;
    table.pages = std::span(ids).subspan(static_cast<size_t>(i), 1);
    sequences.push_back({.row_begin = i,
                         .rows = 1,
                         .first = Position{7},
                         .kv = {.table = table,
                                .layer_offset = 0,
                                .layout = layout,
                                .sealed_offset = 0,
                                .sealed = layout}});
  }
  const std::vector<float> both = Numbers(size_t{kRows} * kWidth);  // keys and values
  const auto view = [](const std::vector<float>& x) { return DenseView(x.data(), kRows, kWidth); };
  return TypicalTime(
      bench, 1, [&] { WriteKv(bench.kernels(), bench.pool(), sequences, view(both), view(both)); });
}

}  // namespace

Result<StepOverheads> MeasureRowCosts(MeterBench& bench) {
  const KernelTable& kernels = bench.kernels();
  const std::vector<float> x = Numbers(size_t{kRows} * kWidth);
  const std::vector<float> weight(kWidth, 1.0F);
  std::vector<float> y(x.size());
  ActivationBlock block;
  const ActNeeds needs{.group32 = true};
  NIBBLE_RETURN_IF_ERROR(block.Reserve(kRows, kWidth, needs));
  const auto at = [](auto& values, int row) { return &values[static_cast<size_t>(row) * kWidth]; };
  const auto prepare = [&](auto&& make_row) {
    return TypicalTime(bench, 1.0 / (kRows * kWidth), [&] {
      block.Prepare(kernels, bench.pool(), DenseView<const float>(y.data(), kRows, kWidth), needs,
                    make_row);
    });
  };
  StepOverheads out;
  const NormParams norm{.weight = weight.data(), .bias = nullptr, .eps = 1e-5F};
  out.row_value_s =
      prepare([&](int row) { RmsNorm(kernels, norm, at(x, row), kWidth, at(y, row)); });
  out.gate_value_s = prepare([&](int row) {
    ApplyGate(kernels, Gate::kSilu, at(x, row), at(x, row), kWidth, at(y, row));
  });
  const std::vector<float> eighth(kHeadDim / 2, std::sqrt(0.5F));  // cosine and sine of a turn
  const RopeTable table{.cos = DenseView<const float>(eighth.data(), 1, kHeadDim / 2),
                        .sin = DenseView<const float>(eighth.data(), 1, kHeadDim / 2)};
  std::vector<float> turned = x;
  const double rotate = TypicalTime(bench, 1.0 / kWidth, [&] {
    Rope(kernels, table, 0, kWidth / kHeadDim, std::span(turned).first(kWidth));
  });
  const double write = WriteSeconds(bench) / (2 * kRows * kWidth);
  // Of queries, keys and values in the proportion 4 : 1 : 1, the first five are rotated and the
  // last two written.
  out.place_value_s = (5 * rotate + 2 * write) / 6;
  const std::vector<float> logits = Numbers(kVocabulary);
  out.logit_value_s = TypicalTime(bench, 1.0 / kVocabulary,
                                  [&] { y[0] = static_cast<float>(ArgMaxLogit(kernels, logits)); });
  return out;
}

}  // namespace nibble
