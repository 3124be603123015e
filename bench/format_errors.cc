// Prints, per weight format, what encoding costs and what 8-bit activations add: the tables of
// docs/formats.md. Weights N(0, 0.02²), activations N(0, 1), one product over 2,048 depths.
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <vector>

#include "format/format.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr int kRows = 512;
constexpr int kCols = 2048;
constexpr int kTokens = 64;

double RelativeRms(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += std::pow(double{found[i]} - expected[i], 2);
    size += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / size);
}

std::vector<float> Multiply(Format format, std::vector<std::byte>& rows, std::vector<float>& x,
                            Act act, ThreadPool& pool) {
  const KernelTable& kernels = KernelsFor(ChooseIsa().value());
  AlignedBuffer packed = AlignedBuffer::Allocate(PackedMatrix::Bytes(format, kRows, kCols)).value();
  const PackedMatrix weights =
      PackedMatrix::Pack(format, kRows, kCols, rows, packed.as<std::byte>(), pool);
  ActivationBlock activations;
  const ActNeeds needs = weights.Needs(act);
  activations.Reserve(kTokens, kCols, needs).value();
  activations.Prepare(kernels, pool, DenseView<const float>(x.data(), kTokens, kCols), needs);
  std::vector<float> y(size_t{kTokens} * kRows);
  const MatmulTask task{.weights = &weights, .y = DenseView(y.data(), kTokens, kRows)};
  Matmul(kernels, pool, act, activations, std::span(&task, 1));
  return y;
}

void Print() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> weights(size_t{kRows} * kCols);
  std::vector<float> x(size_t{kTokens} * kCols);
  for (float& w : weights) w = 0.02F * normal(random);
  for (float& v : x) v = normal(random);
  ThreadPool pool(1);
  fmt::print("| format | weights | 8-bit activations |\n|---|---|---|\n");
  for (const FormatTraits& traits : AllFormats()) {
    std::vector<std::byte> rows(traits.RowBytes(weights.size()));
    traits.encode(weights.data(), rows.data(), weights.size());
    std::vector<float> decoded(weights.size());
    traits.decode(rows.data(), decoded.data(), decoded.size());
    std::string act = "none: computes in f32";
    if (traits.activation_group > 0) {
      act = fmt::format("{:.3f}%",
                        100 * RelativeRms(Multiply(traits.format, rows, x, Act::kInt8, pool),
                                          Multiply(traits.format, rows, x, Act::kF32, pool)));
    }
    fmt::print("| {} | {:.3f}% | {} |\n", traits.name, 100 * RelativeRms(decoded, weights), act);
  }
}

}  // namespace
}  // namespace nibble

int main() { nibble::Print(); }
