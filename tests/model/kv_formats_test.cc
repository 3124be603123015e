// What KV formats do inside a decoder: sealed pages against the open ones they were made from, and
// what is left of the logits.
#include <cmath>
#include <optional>
#include <string>

#include "format/kv_test_support.h"
#include "kernels/kv_read.h"
#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

Ids SomeIds(int count, int vocabulary) {
  Ids ids;
  uint32_t x = 1;
  for (int i = 0; i < count; ++i) {
    x = x * 1664525 + 1013904223;
    ids.push_back(static_cast<int>((x >> 8) % static_cast<uint32_t>(vocabulary)));
  }
  return ids;
}

// Compares one head of a page in both forms; the number of numbers that sealing changed.
int CompareSide(KvFormat format, KvSide side, const std::vector<float>& open,
                const std::vector<float>& sealed, int dim) {
  int changed = 0;
  for (int i = 0; i < kPageTokens * dim; ++i) {
    const auto at = static_cast<size_t>(i);
    changed += open[at] != sealed[at] ? 1 : 0;
    if (i % 5 != 0) continue;
    const KvSpread spread = SpreadOf(format, side, open, dim, i / dim, i % dim);
    EXPECT_LE(std::fabs(double{open[at]} - sealed[at]), KvErrorBound(format, spread))
        << TraitsOf(format).name << " token " << i / dim << " channel " << i % dim;
  }
  return changed;
}

void ExpectPagesWithinBounds(const std::filesystem::path& path, const KvFormats& formats) {
  SCOPED_TRACE(path.filename().string() + " " + formats.Name());
  Runner runner(path, {.kv = formats});
  ASSERT_TRUE(runner.ok());
  const int size = std::min(250, runner.decoder().config().context_length);
  const Ids ids = SomeIds(size, runner.decoder().config().vocabulary);
  TestKv cache(runner.groups(), size);
  runner.Fill(cache, ids, 70, [](int, std::span<const float>) {});
  int pages = 0;
  for (size_t g = 0; g < runner.groups().size(); ++g) {
    const KvGroup& group = runner.groups()[g];
    if (!group.two_forms()) continue;
    const int unit = group.unit_pages() * kPageTokens;
    for (int slot = 0; slot < static_cast<int>(group.layers.size()); ++slot) {
      const KvView view = group.View(cache.tables()[g], slot);
      for (int page = 0; page < size / unit * group.unit_pages(); ++page) {
        for (int head = 0; head < group.layout.kv_heads; ++head) {
          const KvPageValues open = ReadKvPiece(view.piece(page), group.layout, head);
          const KvPageValues sealed = ReadKvPiece(view.sealed_piece(page), group.sealed, head);
          const int dim = group.layout.head_dim;
          const int keys = CompareSide(group.sealed.k, KvSide::kKeys, open.k, sealed.k, dim);
          const int values = CompareSide(group.sealed.v, KvSide::kValues, open.v, sealed.v, dim);
          EXPECT_EQ(keys > 0, TraitsOf(group.sealed.k).sealed_only) << page;
          EXPECT_EQ(values > 0, TraitsOf(group.sealed.v).sealed_only) << page;
          ++pages;
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(pages, 16);
}

std::vector<KvFormats> SealedFormats() {
  std::vector<KvFormats> all;
  for (const KvFormatTraits& traits : AllKvFormats()) {
    if (traits.sealed_only) all.push_back({.k = traits.format, .v = traits.format});
  }
  all.push_back({.k = KvFormat::kF32, .v = KvFormat::kKivi4});
  all.push_back({.k = KvFormat::kKivi2, .v = KvFormat::kF16, .rotate = true});
  all.push_back({.k = KvFormat::kInt4, .v = KvFormat::kFp8, .skip_layers = {0, -1}});
  return all;
}

TEST(KvPages, AreWithinTheNamedBoundOfWhatWasWritten) {
  for (const KvFormats& formats : SealedFormats()) {
    ExpectPagesWithinBounds(SourcePath("models/shakespeare"), formats);
  }
}

TEST(KvPages, AreWithinTheNamedBoundInGroupsWithWindows) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-320/gemma3");
  for (const KvFormats& formats : SealedFormats()) ExpectPagesWithinBounds(path, formats);
}

// Mean divergence of the next token's distribution from that with f32 pages.
double Divergence(const std::vector<float>& exact, const std::vector<float>& found, int rows,
                  int vocabulary) {
  double sum = 0;
  for (int row = 0; row < rows; ++row) {
    const auto p = Row(exact, row, vocabulary);
    const auto q = Row(found, row, vocabulary);
    const double p0 = LogProbability(p, 0) - p[0];
    const double q0 = LogProbability(q, 0) - q[0];
    for (int id = 0; id < vocabulary; ++id) {
      const auto at = static_cast<size_t>(id);
      const double log_p = p[at] + p0;
      sum += std::exp(log_p) * (log_p - q[at] - q0);
    }
  }
  return sum / rows;
}

std::vector<float> LogitsWith(const std::filesystem::path& path, const KvFormats& formats,
                              std::optional<Act> attention, const Ids& ids) {
  Runner runner(path, {.attention_act = attention, .kv = formats});
  return runner.ok() ? runner.Logits(ids, 50) : std::vector<float>();
}

// Nats per token over 300 random tokens; the bounds are half as much again as was found.
struct Divergent {
  KvFormat format;
  double most;
};
constexpr Divergent kDivergent[] = {
    {KvFormat::kF16, 2e-6},    {KvFormat::kFp8, 6.3e-3},   {KvFormat::kInt8, 8.3e-4},
    {KvFormat::kInt4, 9.5e-2}, {KvFormat::kKivi4, 4.3e-3}, {KvFormat::kKivi2, 0.104},
};

TEST(KvLogits, DivergeByNoMoreThanIsKnown) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  const Ids ids = SomeIds(300, 512);
  const std::vector<float> exact =
      LogitsWith(path, {.k = KvFormat::kF32, .v = KvFormat::kF32}, {}, ids);
  for (const Divergent& known : kDivergent) {
    for (const Act attention : {Act::kF32, Act::kInt8}) {
      const double found = Divergence(
          exact, LogitsWith(path, {.k = known.format, .v = known.format}, attention, ids), 300,
          512);
      EXPECT_LT(found, known.most) << TraitsOf(known.format).name;
      EXPECT_GT(found, known.most / 4) << TraitsOf(known.format).name;
    }
  }
}

// Both sides of a product are turned, or none: but for rounding nothing changes.
TEST(KvLogits, RotationChangesNothingButRounding) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  const Ids ids = SomeIds(200, 512);
  KvFormats formats{.k = KvFormat::kF32, .v = KvFormat::kF32, .rotate = false};
  const std::vector<float> plain = LogitsWith(path, formats, {}, ids);
  formats.rotate = true;
  const std::vector<float> turned = LogitsWith(path, formats, {}, ids);
  formats.skip_layers = {0, 1, 2, 3, 4};
  const std::vector<float> skipped = LogitsWith(path, formats, {}, ids);
  ASSERT_EQ(plain.size(), turned.size());
  EXPECT_NE(plain, turned);
  double worst = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    worst = std::max(worst, std::fabs(double{plain[i]} - turned[i]));
  }
  EXPECT_LT(worst, 1e-3);
  // Layers that are kept in f16 are not turned.
  formats.rotate = false;
  EXPECT_EQ(skipped, LogitsWith(path, formats, {}, ids));
}

}  // namespace
}  // namespace nibble::testing
