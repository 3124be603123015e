#include "quantize/budget.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "container/tensor_source.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr std::array kBudgetFormats = {Format::kQ2K,   Format::kQ3K,  Format::kIq4Xs, Format::kQ4K,
                                       Format::kIq4Nl, Format::kQ4_1, Format::kQ5K,   Format::kQ5_0,
                                       Format::kQ5_1,  Format::kQ6K,  Format::kQ8_0,  Format::kF16};

// The options on the lower hull of losses over bytes, from the smallest on.
std::vector<size_t> LowerHull(const std::vector<BudgetOption>& options) {
  std::vector<size_t> order(options.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    if (options[a].bytes != options[b].bytes) return options[a].bytes < options[b].bytes;
    return options[a].loss != options[b].loss ? options[a].loss < options[b].loss : a < b;
  });
  const auto gain = [&](size_t from, size_t to) {
    return (options[from].loss - options[to].loss) /
           static_cast<double>(options[to].bytes - options[from].bytes);
  };
  std::vector<size_t> hull;
  for (const size_t next : order) {
    if (!hull.empty() && options[next].loss >= options[hull.back()].loss) continue;
    if (!hull.empty() && options[next].bytes == options[hull.back()].bytes) continue;
    while (hull.size() > 1 && gain(hull.back(), next) >= gain(hull[hull.size() - 2], hull.back())) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

// One item on its way up.
struct Climb {
  std::vector<size_t> hull;
  size_t at = 0;
};

}  // namespace

Result<std::vector<size_t>> ChooseWithinBudget(std::span<const std::vector<BudgetOption>> options,
                                               uint64_t budget) {
  std::vector<Climb> climbs;
  uint64_t used = 0;
  for (const auto& item : options) {
    climbs.push_back({.hull = LowerHull(item)});
    used += item[climbs.back().hull.front()].bytes;
  }
  if (used > budget) {
    return BadInput("expected at least {} bytes for the tensors, found {}", used, budget);
  }
  while (true) {
    std::optional<size_t> best;
    double best_gain = 0;
    for (size_t i = 0; i < climbs.size(); ++i) {
      const Climb& climb = climbs[i];
      if (climb.at + 1 == climb.hull.size()) continue;
      const BudgetOption& from = options[i][climb.hull[climb.at]];
      const BudgetOption& to = options[i][climb.hull[climb.at + 1]];
      const uint64_t more = to.bytes - from.bytes;
      if (more > budget - used) continue;
      const double gain = (from.loss - to.loss) / static_cast<double>(more);
      if (best && gain <= best_gain) continue;
      best = i;
      best_gain = gain;
    }
    if (!best) break;
    Climb& climb = climbs[*best];
    const auto& item = options[*best];
    used += item[climb.hull[climb.at + 1]].bytes - item[climb.hull[climb.at]].bytes;
    ++climb.at;
  }
  std::vector<size_t> chosen;
  for (const Climb& climb : climbs) chosen.push_back(climb.hull[climb.at]);
  return chosen;
}

std::vector<Format> BudgetFormats(const TensorView& view) {
  const Format stored = *view.tensor->format;
  const double bits = TraitsOf(stored).BitsPerWeight();
  std::vector<Format> formats;
  for (const Format format : kBudgetFormats) {
    const FormatTraits& traits = TraitsOf(format);
    if (view.cols() % static_cast<uint64_t>(traits.block_elements) != 0) continue;
    if (traits.BitsPerWeight() < bits && format != stored) formats.push_back(format);
  }
  const bool holds = TraitsOf(stored).gguf_type.has_value() && view.tensor->linear == nullptr;
  if (holds) formats.push_back(stored);
  if (formats.empty()) formats.push_back(Format::kF16);
  std::ranges::stable_sort(formats, {},
                           [](Format format) { return TraitsOf(format).BitsPerWeight(); });
  return formats;
}

std::vector<double> SampleErrors(const TensorView& view, std::span<const Format> formats,
                                 ThreadPool& pool) {
  constexpr uint64_t kMostRows = 256;
  const uint64_t rows = std::min(view.rows(), kMostRows);
  const auto cols = static_cast<size_t>(view.cols());
  // By row and format: the sums do not depend on the threads.
  std::vector<double> errors(rows * formats.size());
  std::vector<double> squares(rows);
  pool.ParallelFor(static_cast<int64_t>(rows), 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> source(cols);
    std::vector<float> decoded(cols);
    std::vector<std::byte> codes;
    for (auto r = static_cast<uint64_t>(begin); r < static_cast<uint64_t>(end); ++r) {
      view.ReadRow(r * view.rows() / rows, source.data());
      for (const float x : source) squares[r] += double{x} * double{x};
      for (size_t f = 0; f < formats.size(); ++f) {
        if (formats[f] == *view.tensor->format) continue;
        const FormatTraits& traits = TraitsOf(formats[f]);
        codes.resize(traits.RowBytes(cols));
        traits.encode(source.data(), codes.data(), cols);
        traits.decode(codes.data(), decoded.data(), cols);
        double& error = errors[r * formats.size() + f];
        for (size_t c = 0; c < cols; ++c) {
          const double lost = double{decoded[c]} - double{source[c]};
          error += lost * lost;
        }
      }
    }
  });
  const double total = std::accumulate(squares.begin(), squares.end(), 0.0);
  std::vector<double> result(formats.size());
  for (size_t f = 0; f < formats.size(); ++f) {
    for (uint64_t r = 0; r < rows; ++r) result[f] += errors[r * formats.size() + f];
    if (total > 0) result[f] /= total;
  }
  return result;
}

}  // namespace nibble
