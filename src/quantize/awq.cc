#include "quantize/awq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "kernels/scalar_math.h"
#include "platform/thread_pool.h"
#include "quantize/dense_kernels.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

// x^y as torch has it at 0.
float PowerOf(float x, double y) {
  if (x <= 0) return y == 0 ? 1.0f : 0.0f;
  return static_cast<float>(Pow(double{x}, y));
}

// Q(w · s) / s of one row. values: [cols].
void RoundScaledRow(std::span<const float> w, std::span<const float> s, const GridSpec& spec,
                    std::vector<uint8_t>& codes, std::span<float> values) {
  for (size_t c = 0; c < w.size(); ++c) values[c] = w[c] * s[c];
  const auto group = static_cast<size_t>(spec.GroupOf(static_cast<int>(w.size())));
  codes.resize(group);
  for (size_t first = 0; first < w.size(); first += group) {
    const size_t count = std::min(group, w.size() - first);
    const auto part = values.subspan(first, count);
    const AffineGrid grid = FitGrid(part, spec);
    CodesOn(grid, spec, part, codes.data());
    for (size_t i = 0; i < count; ++i) part[i] = ValueOf(grid, codes[i]) / s[first + i];
  }
}

// Inputs as panels [tokens / 16][cols][16], zeros behind the last token.
std::vector<float> PackInputs(MatrixView<const float> x) {
  const int panels = CeilDiv(x.rows, kPanel);
  std::vector<float> packed(static_cast<size_t>(panels) * static_cast<size_t>(x.cols) * kPanel);
  for (int t = 0; t < x.rows; ++t) {
    float* panel = packed.data() + ptrdiff_t{t / kPanel} * x.cols * kPanel + t % kPanel;
    for (int c = 0; c < x.cols; ++c) panel[ptrdiff_t{c} * kPanel] = x.row(t)[c];
  }
  return packed;
}

// Mean over tokens and outputs of ((Q(W s) / s − W) x)².
class OutputLoss {
 public:
  OutputLoss(const AwqSite& site, const GridSpec& spec, ThreadPool& pool)
      : site_(site), spec_(spec), pool_(pool), packed_(PackInputs(site.inputs)) {}

  double Of(std::span<const float> s) const {
    double sum = 0;
    double outputs = 0;
    for (const MatrixView<const float>& w : site_.consumers) {
      sum += OfMatrix(w, s);
      outputs += w.rows;
    }
    return sum / (outputs * site_.inputs.rows);
  }

 private:
  double OfMatrix(MatrixView<const float> w, std::span<const float> s) const {
    const int panels = CeilDiv(w.rows, kPanel);
    std::vector<double> sums(static_cast<size_t>(panels));
    pool_.ParallelFor(panels, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> values(static_cast<size_t>(w.cols));
      std::vector<float> errors(values.size() * kPanel);
      std::vector<uint8_t> codes;
      for (int64_t p = begin; p < end; ++p) {
        std::ranges::fill(errors, 0.0f);
        const int first = static_cast<int>(p) * kPanel;
        for (int lane = 0; lane < std::min(kPanel, w.rows - first); ++lane) {
          const float* row = w.row(first + lane);
          RoundScaledRow(w.row_span(first + lane), s, spec_, codes, values);
          for (size_t c = 0; c < values.size(); ++c) {
            errors[c * kPanel + static_cast<size_t>(lane)] = values[c] - row[c];
          }
        }
        sums[static_cast<size_t>(p)] = SumOfOutputs(errors);
      }
    });
    return std::accumulate(sums.begin(), sums.end(), 0.0);
  }

  double SumOfOutputs(const std::vector<float>& errors) const {
    const int cols = site_.inputs.cols;
    double sum = 0;
    float products[kPanel * kPanel];
    for (int t = 0; t < site_.inputs.rows; t += kPanel) {
      DenseKernelsHere().products(packed_.data() + ptrdiff_t{t} * cols, errors.data(), cols,
                                  products);
      for (const float y : products) sum += double{y} * double{y};
    }
    return sum;
  }

  const AwqSite& site_;
  const GridSpec& spec_;
  ThreadPool& pool_;
  std::vector<float> packed_;
};

// Mean over all rows of |w| / (largest of its group + 1e-6).
std::vector<float> MeanRelativeWeight(const AwqSite& site, const GridSpec& spec) {
  const int cols = site.inputs.cols;
  std::vector<double> sums(static_cast<size_t>(cols));
  const int group = spec.GroupOf(cols);
  double rows = 0;
  for (const MatrixView<const float>& w : site.consumers) {
    rows += w.rows;
    for (int r = 0; r < w.rows; ++r) {
      const float* row = w.row(r);
      for (int first = 0; first < cols; first += group) {
        const int end = std::min(first + group, cols);
        float largest = 0;
        for (int c = first; c < end; ++c) largest = std::max(largest, std::fabs(row[c]));
        for (int c = first; c < end; ++c) {
          sums[static_cast<size_t>(c)] += double{std::fabs(row[c]) / (largest + 1e-6f)};
        }
      }
    }
  }
  std::vector<float> means;
  for (const double sum : sums) means.push_back(static_cast<float>(sum / rows));
  return means;
}

std::vector<float> ScalesOf(const AwqSite& site, std::span<const float> weight_means,
                            double ratio) {
  std::vector<float> s;
  for (size_t c = 0; c < site.mean_magnitude.size(); ++c) {
    float scale = PowerOf(site.mean_magnitude[c], ratio);
    if (!weight_means.empty()) scale /= PowerOf(weight_means[c], 1 - ratio) + 1e-4f;
    s.push_back(std::max(scale, 1e-4f));
  }
  const auto [least, largest] = std::ranges::minmax(s);
  const float middle = std::sqrt(largest * least);
  for (float& scale : s) {
    scale /= middle;
    if (!std::isfinite(scale)) scale = 1;
  }
  return s;
}

Status CheckAwqGrid(const GridSpec& grid) {
  if (grid.granularity == Granularity::kTensor) {
    return BadInput("awq: expected a scale for each channel or group, found one for the tensor");
  }
  return CheckGridSpec(grid);
}

Status CheckSite(const AwqSite& site, ThreadPool& pool) {
  const int cols = site.inputs.cols;
  if (site.consumers.empty() || site.inputs.rows == 0) {
    return BadInput("awq: expected weights and inputs, found {} matrices and {} inputs",
                    site.consumers.size(), site.inputs.rows);
  }
  if (site.mean_magnitude.size() != static_cast<size_t>(cols)) {
    return BadInput("awq: statistics of {} channels, inputs of {}", site.mean_magnitude.size(),
                    cols);
  }
  for (const MatrixView<const float>& w : site.consumers) {
    if (w.cols != cols) return BadInput("awq: a matrix of {} columns, inputs of {}", w.cols, cols);
    NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
  }
  if (const auto inputs = CheckFinite(site.inputs, pool); !inputs) {
    return Within("awq: inputs", inputs.error());
  }
  const bool finite =
      std::ranges::all_of(site.mean_magnitude, [](float a) { return std::isfinite(a) && a >= 0; });
  if (!finite) return BadInput("awq: a channel's mean magnitude is no finite number");
  return {};
}

// The loss that a caller computes, of the weights that the scales give.
Result<double> LossBehind(const AwqSite& site, const GridSpec& spec, std::span<const float> s,
                          ThreadPool& pool, AwqLoss loss) {
  std::vector<std::vector<float>> values;
  std::vector<MatrixView<const float>> views;
  for (const MatrixView<const float>& w : site.consumers) {
    auto& own = values.emplace_back(static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols));
    const MatrixView<float> out = DenseView(own.data(), w.rows, w.cols);
    pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<uint8_t> codes;
      for (int64_t r = begin; r < end; ++r) {
        RoundScaledRow(w.row_span(static_cast<int>(r)), s, spec, codes,
                       out.row_span(static_cast<int>(r)));
      }
    });
    views.push_back(out);
  }
  return loss(views);
}

}  // namespace

Result<AwqScales> SearchAwqScales(const AwqSite& site, const AwqOptions& options, ThreadPool& pool,
                                  AwqLoss loss) {
  NIBBLE_RETURN_IF_ERROR(CheckSite(site, pool));
  NIBBLE_RETURN_IF_ERROR(CheckAwqGrid(options.grid));
  NIBBLE_CHECK(options.ratios > 0);
  const std::vector<float> weight_means =
      options.duo_scaling ? MeanRelativeWeight(site, options.grid) : std::vector<float>();
  const OutputLoss own_loss(site, options.grid, pool);
  const auto loss_of = [&](std::span<const float> s) -> Result<double> {
    if (loss) return LossBehind(site, options.grid, s, pool, loss);
    return own_loss.Of(s);
  };
  AwqScales best;
  best.loss = std::numeric_limits<double>::infinity();
  best.scales.assign(site.mean_magnitude.size(), 1.0f);
  NIBBLE_TRY(best.loss_unscaled, loss_of(best.scales));
  for (int k = 0; k < options.ratios; ++k) {
    const double ratio = static_cast<double>(k) / options.ratios;
    std::vector<float> s = ScalesOf(site, weight_means, ratio);
    NIBBLE_TRY(const double found, loss_of(s));
    best.losses.push_back(found);
    if (!(found < best.loss)) continue;
    best.loss = found;
    best.ratio = ratio;
    best.scales = std::move(s);
  }
  return best;
}

namespace {

// Σ over the sampled inputs of x xᵀ of one group of channels, over their number: for a difference d
// of weights the mean square output is d · gram · d, whatever the output.
std::vector<float> GramOf(MatrixView<const float> inputs, int first, int count) {
  constexpr int kSample = 512;
  const int stride = std::max(1, inputs.rows / kSample);
  std::vector<double> sums(static_cast<size_t>(count) * static_cast<size_t>(count));
  int tokens = 0;
  for (int t = 0; t < inputs.rows; t += stride) {
    ++tokens;
    const float* x = inputs.row(t) + first;
    for (int i = 0; i < count; ++i) {
      double* row = sums.data() + ptrdiff_t{i} * count;
      for (int j = 0; j < count; ++j) row[j] += double{x[i]} * double{x[j]};
    }
  }
  std::vector<float> gram;
  for (const double sum : sums) gram.push_back(static_cast<float>(sum / tokens));
  return gram;
}

float QuadraticForm(const std::vector<float>& gram, std::span<const float> d) {
  const size_t count = d.size();
  float total = 0;
  for (size_t i = 0; i < count; ++i) {
    // Eight sums side by side: a chain of additions would wait for each.
    float sums[8] = {};
    const float* row = gram.data() + i * count;
    size_t j = 0;
    for (; j + 8 <= count; j += 8) {
      for (size_t k = 0; k < 8; ++k) sums[k] += row[j + k] * d[j + k];
    }
    for (size_t k = 0; j + k < count; ++k) sums[k] += row[j + k] * d[j + k];
    const float sum =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    total += d[i] * sum;
  }
  return total;
}

// The bound of one group that loses least.
float BestClip(std::span<const float> w, const std::vector<float>& gram, const GridSpec& spec) {
  float largest = 0;
  for (const float value : w) largest = std::max(largest, std::fabs(value));
  std::vector<float> clipped(w.size());
  std::vector<uint8_t> codes(w.size());
  constexpr int kGrid = 20;
  constexpr int kTries = 10;
  float best = largest;
  float least = std::numeric_limits<float>::infinity();
  for (int k = 0; k < kTries; ++k) {
    const float bound = largest * (1 - static_cast<float>(k) / kGrid);
    for (size_t i = 0; i < w.size(); ++i) clipped[i] = std::clamp(w[i], -bound, bound);
    const AffineGrid grid = FitGrid(clipped, spec);
    CodesOn(grid, spec, clipped, codes.data());
    for (size_t i = 0; i < w.size(); ++i) clipped[i] = ValueOf(grid, codes[i]) - w[i];
    const float error = QuadraticForm(gram, clipped);
    if (error < least) {
      least = error;
      best = bound;
    }
  }
  return best;
}

}  // namespace

Result<std::vector<float>> SearchAwqClip(MatrixView<const float> w, MatrixView<const float> inputs,
                                         const GridSpec& grid, ThreadPool& pool) {
  NIBBLE_RETURN_IF_ERROR(CheckAwqGrid(grid));
  if (inputs.cols != w.cols || inputs.rows == 0) {
    return BadInput("awq: a matrix of {} columns, {} inputs of {}", w.cols, inputs.rows,
                    inputs.cols);
  }
  NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
  if (const auto finite = CheckFinite(inputs, pool); !finite) {
    return Within("awq: inputs", finite.error());
  }
  const int group = grid.GroupOf(w.cols);
  const int groups = CeilDiv(w.cols, group);
  std::vector<float> clip(static_cast<size_t>(w.rows) * static_cast<size_t>(groups));
  pool.ParallelFor(groups, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      const int first = static_cast<int>(g) * group;
      const int count = std::min(group, w.cols - first);
      const std::vector<float> gram = GramOf(inputs, first, count);
      for (int r = 0; r < w.rows; ++r) {
        clip[static_cast<size_t>(r) * static_cast<size_t>(groups) + static_cast<size_t>(g)] =
            BestClip(w.row_span(r).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                     gram, grid);
      }
    }
  });
  return clip;
}

void ApplyClip(MatrixView<float> w, int group, std::span<const float> clip) {
  const int groups = CeilDiv(w.cols, group);
  NIBBLE_CHECK(clip.size() == static_cast<size_t>(w.rows) * static_cast<size_t>(groups));
  for (int r = 0; r < w.rows; ++r) {
    for (int c = 0; c < w.cols; ++c) {
      const float bound = clip[static_cast<size_t>(r) * static_cast<size_t>(groups) +
                               static_cast<size_t>(c / group)];
      w.row(r)[c] = std::clamp(w.row(r)[c], -bound, bound);
    }
  }
}

}  // namespace nibble
