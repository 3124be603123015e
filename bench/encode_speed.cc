// Million weights a second that one thread encodes into each GGUF type, without and with an
// importance of the columns; in seconds of the processor, which other work hardly changes.
// tools/encode_speed.py prints the same of ggml.
#include <fmt/format.h>

#include <random>
#include <vector>

#include "format/format.h"
#include "platform/clock.h"

namespace {

constexpr size_t kRows = 64;
constexpr size_t kCols = 1536;

template <class Encode>
double MillionsPerSecond(Encode encode) {
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const double started = nibble::ProcessCpuSeconds();
    double seconds = 0;
    int times = 0;
    for (; seconds < 0.1; seconds = nibble::ProcessCpuSeconds() - started, ++times) {
      for (size_t r = 0; r < kRows; ++r) encode(r);
    }
    best = std::max(best, 1e-6 * kRows * kCols * times / seconds);
  }
  return best;
}

}  // namespace

int main() {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> weights(kRows * kCols);
  std::vector<float> importance(kCols);
  for (float& w : weights) w = normal(engine);
  for (float& i : importance) i = std::abs(normal(engine)) + 0.0002F;
  fmt::print("| type | million weights/s | with importance |\n|---|---|---|\n");
  for (const nibble::FormatTraits& traits : nibble::AllFormats()) {
    if (!traits.gguf_type || traits.block_elements == 1 || kCols % traits.block_elements != 0) {
      continue;
    }
    std::vector<std::byte> row(traits.RowBytes(kCols));
    const double plain = MillionsPerSecond(
        [&](size_t r) { traits.encode(weights.data() + r * kCols, row.data(), kCols); });
    std::string weighted = "as without";
    if (traits.encode_weighted != nullptr) {
      weighted = fmt::format("{:.1f}", MillionsPerSecond([&](size_t r) {
                               traits.encode_weighted(weights.data() + r * kCols, importance.data(),
                                                      row.data(), kCols);
                             }));
    }
    fmt::print("| {} | {:.1f} | {} |\n", traits.name, plain, weighted);
  }
  return 0;
}
