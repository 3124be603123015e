// Prints how long the quantisation methods take on matrices of a model's sizes: the table of
// docs/methods.md. Weights N(0, 0.05²), inputs N(0, 1).
//
//     method_times [THREADS]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"
#include "quantize/awq.h"
#include "quantize/gptq.h"
#include "quantize/gptq_blocks.h"
#include "quantize/hqq.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

constexpr int kTokens = 4096;
constexpr int kSample = 512;

struct Size {
  int rows;
  int cols;
};
// The linears of SmolLM2-135M.
constexpr Size kSizes[] = {{576, 576}, {1536, 576}, {576, 1536}};

std::vector<float> Normal(size_t count, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Milliseconds of the quicker of two.
template <class Fn>
double Milliseconds(Fn fn) {
  double least = 1e300;
  for (int i = 0; i < 2; ++i) {
    const double start = MonotonicSeconds();
    fn();
    least = std::min(least, MonotonicSeconds() - start);
  }
  return least * 1e3;
}

void PrintRow(const Size& size, ThreadPool& pool) {
  const auto weights = static_cast<size_t>(size.rows) * static_cast<size_t>(size.cols);
  const std::vector<float> w_values = Normal(weights, 0.05f, 1);
  const std::vector<float> x_values = Normal(static_cast<size_t>(size.cols) * kTokens, 1.0f, 2);
  const auto w = DenseView<const float>(w_values.data(), size.rows, size.cols);
  const auto x = DenseView<const float>(x_values.data(), kTokens, size.cols);
  const auto sample = DenseView<const float>(x_values.data(), kSample, size.cols);
  const std::vector<float> magnitudes(static_cast<size_t>(size.cols), 0.8f);
  Hessian hessian(size.cols);
  hessian.Add(x, pool);
  const HessianFactor factor = FactorHessian(hessian, {}, pool).value();
  const AwqOptions awq;
  fmt::print("| {} × {} |", size.rows, size.cols);
  const auto cell = [&](auto fn) { fmt::print(" {:.1f} |", Milliseconds(fn)); };
  cell([&] { Hessian(size.cols).Add(x, pool); });
  cell([&] { (void)FactorHessian(hessian, {}, pool); });
  cell([&] { (void)QuantizeRtn(w, {}, pool); });
  cell([&] { (void)QuantizeRtn(w, {.search_range = true}, pool); });
  cell([&] { (void)QuantizeHqq(w, {}, pool); });
  cell([&] {
    const AwqSite site = {.consumers = {w}, .mean_magnitude = magnitudes, .inputs = sample};
    (void)SearchAwqScales(site, awq, pool);
  });
  cell([&] { (void)SearchAwqClip(w, sample, awq.grid, pool); });
  cell([&] { (void)QuantizeGptq(w, factor, {}, pool); });
  for (const int passes : {0, 6}) {
    const Format format = size.cols % 256 == 0 ? Format::kQ4K : Format::kQ5_0;
    cell([&] {
      (void)QuantizeGptqBlocks(w, hessian, factor, {.format = format, .passes = passes}, pool);
    });
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : nibble::ReadTopology().threads;
  nibble::ThreadPool pool(std::max(threads, 1));
  fmt::print("{} threads, milliseconds\n\n", pool.size());
  fmt::print(
      "| outputs × inputs | H of {} tokens | factor | RTN | RTN, range searched | HQQ | AWQ scales "
      "| "
      "AWQ clip | GPTQ | GGUF, feedback | and descent "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|\n",
      nibble::kTokens);
  for (const nibble::Size& size : nibble::kSizes) nibble::PrintRow(size, pool);
}
