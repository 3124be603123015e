#include "quantize/hqq.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "format/block_parts.h"
#include "format/small_float.h"
#include "kernels/scalar_math.h"
#include "platform/thread_pool.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

float NearestEven(float x) {
  constexpr float kMagic = 12582912.0f;
  return (std::clamp(x, -4194304.0f, 4194304.0f) + kMagic) - kMagic;
}

// sign(x) · relu(|x| − |x|^(p−1) / β). It is 0 up to |x| = β^(−1/(2−p)), where most errors are, so
// that the power is seldom computed.
class Shrink {
 public:
  Shrink(double p, double beta)
      : p_(p), beta_(beta), zero_to_(static_cast<float>(Pow(beta, -1 / (2 - p)))) {}
  float operator()(float x) const {
    const float magnitude = std::fabs(x);
    if (magnitude <= zero_to_) return 0;
    const double kept = double{magnitude} - Pow(double{magnitude}, p_ - 1) / beta_;
    return kept > 0 ? std::copysign(static_cast<float>(kept), x) : 0.0f;
  }

 private:
  double p_;
  double beta_;
  float zero_to_;
};

// One group; s is levels / range, as HQQ has it.
struct HqqGroup {
  std::span<const float> w;
  float s;
  float levels;

  float Code(float value, float zero) const {
    return std::clamp(NearestEven(value * s + zero), 0.0f, levels);
  }
};

// Σ |w − ŵ| with `zero`, which becomes the next one.
double Step(const HqqGroup& group, const Shrink& shrink, float& zero) {
  double error = 0;
  double sum = 0;
  for (const float value : group.w) {
    const float code = group.Code(value, zero);
    const float difference = value - (code - zero) / group.s;
    error += double{std::fabs(difference)};
    sum += double{code - (value - shrink(difference)) * group.s};
  }
  zero = static_cast<float>(sum / static_cast<double>(group.w.size()));
  return error;
}

class HqqSolver {
 public:
  HqqSolver(MatrixView<const float> w, const HqqOptions& options, ThreadPool& pool, HqqMatrix& out)
      : w_(w), options_(options), pool_(pool), out_(out), inverse_(out.scales.size()) {}

  void Start() {
    ForEachGroup([&](const HqqGroup&, size_t at, int r, int first) {
      const auto values = Values(r, first);
      const auto [least, largest] = std::ranges::minmax(values);
      const float range = largest - least;
      float s = std::min(Levels() / range, 2e4f);
      if (range <= 1e-4f) s = 1;
      inverse_[at] = s;
      out_.scales[at] = 1 / s;
      out_.zeros[at] = -least * s;
    });
  }

  // Mean error with the zeros as they were.
  double Round(double beta) {
    const Shrink shrink(options_.p, beta);
    std::vector<double> errors(static_cast<size_t>(w_.rows));
    ForEachGroup([&](const HqqGroup& group, size_t at, int r, int) {
      errors[static_cast<size_t>(r)] += Step(group, shrink, out_.zeros[at]);
    });
    return MeanOf(errors);
  }

  void Finish() {
    std::vector<double> errors(static_cast<size_t>(w_.rows));
    ForEachGroup([&](const HqqGroup& group, size_t at, int r, int first) {
      uint8_t* codes = out_.codes.data() + ptrdiff_t{r} * w_.cols + first;
      for (size_t i = 0; i < group.w.size(); ++i) {
        const float code = group.Code(group.w[i], out_.zeros[at]);
        codes[i] = static_cast<uint8_t>(code);
        errors[static_cast<size_t>(r)] +=
            double{std::fabs(group.w[i] - (code - out_.zeros[at]) / group.s)};
      }
    });
    out_.mean_error = MeanOf(errors);
  }

 private:
  float Levels() const { return static_cast<float>((1 << options_.bits) - 1); }
  std::span<const float> Values(int r, int first) const {
    return w_.row_span(r).subspan(static_cast<size_t>(first),
                                  static_cast<size_t>(std::min(out_.group, w_.cols - first)));
  }
  double MeanOf(const std::vector<double>& rows) const {
    double sum = 0;
    for (const double row : rows) sum += row;
    return sum / (static_cast<double>(w_.rows) * w_.cols);
  }
  template <class Fn>
  void ForEachGroup(Fn fn) {
    const int groups = out_.groups();
    pool_.ParallelFor(w_.rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int r = static_cast<int>(begin); r < end; ++r) {
        for (int g = 0; g < groups; ++g) {
          const size_t at =
              static_cast<size_t>(r) * static_cast<size_t>(groups) + static_cast<size_t>(g);
          const int first = g * out_.group;
          fn(HqqGroup{Values(r, first), inverse_[at], Levels()}, at, r, first);
        }
      }
    });
  }

  MatrixView<const float> w_;
  const HqqOptions& options_;
  ThreadPool& pool_;
  HqqMatrix& out_;
  std::vector<float> inverse_;  // [rows][groups] levels / range
};

}  // namespace

Result<HqqMatrix> QuantizeHqq(MatrixView<const float> w, const HqqOptions& options,
                              ThreadPool& pool) {
  if (options.bits < 2 || options.bits > 8) {
    return BadInput("hqq: bits: expected 2 to 8, found {}", options.bits);
  }
  if (options.group < 1)
    return BadInput("hqq: group: expected at least 1, found {}", options.group);
  NIBBLE_CHECK(options.p < 2 && options.beta > 0 && options.kappa > 0 && w.rows > 0 && w.cols > 0);
  NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
  HqqMatrix matrix = {.rows = w.rows,
                      .cols = w.cols,
                      .bits = options.bits,
                      .group = std::min(options.group, w.cols),
                      .codes = {},
                      .scales = {},
                      .zeros = {}};
  matrix.codes.resize(static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols));
  matrix.scales.resize(static_cast<size_t>(w.rows) * static_cast<size_t>(matrix.groups()));
  matrix.zeros.resize(matrix.scales.size());
  HqqSolver solver(w, options, pool, matrix);
  solver.Start();
  double least = 1e4;
  double beta = options.beta;
  while (matrix.rounds < options.iterations) {
    const double error = solver.Round(beta);
    ++matrix.rounds;
    beta *= options.kappa;
    if (!(error < least)) break;
    least = error;
  }
  solver.Finish();
  return matrix;
}

void Dequantize(const HqqMatrix& matrix, MatrixView<float> out) {
  NIBBLE_CHECK(out.rows == matrix.rows && out.cols == matrix.cols);
  const auto groups = static_cast<size_t>(matrix.groups());
  for (int r = 0; r < matrix.rows; ++r) {
    for (int c = 0; c < matrix.cols; ++c) {
      const size_t at = static_cast<size_t>(r) * groups + static_cast<size_t>(c / matrix.group);
      const uint8_t code = matrix.codes[static_cast<size_t>(r) * static_cast<size_t>(matrix.cols) +
                                        static_cast<size_t>(c)];
      out.row(r)[c] = (static_cast<float>(code) - matrix.zeros[at]) * matrix.scales[at];
    }
  }
}

Result<std::vector<std::byte>> HqqBlocks(MatrixView<const float> w, const HqqMatrix& matrix) {
  NIBBLE_CHECK(w.rows == matrix.rows && w.cols == matrix.cols);
  if (matrix.bits != 4 && matrix.bits != 5) {
    return BadInput("hqq: blocks have 4 bits (q4_1) or 5 (q5_1), found {}", matrix.bits);
  }
  constexpr int kBlock = 32;
  if (matrix.group % kBlock != 0 || matrix.cols % kBlock != 0) {
    return BadInput("hqq: blocks of 32 divide neither groups of {} nor {} columns", matrix.group,
                    matrix.cols);
  }
  const Format format = matrix.bits == 4 ? Format::kQ4_1 : Format::kQ5_1;
  const auto block_bytes = static_cast<size_t>(TraitsOf(format).block_bytes);
  const auto levels = static_cast<float>((1 << matrix.bits) - 1);
  const auto groups = static_cast<size_t>(matrix.groups());
  std::vector<std::byte> bytes;
  for (int r = 0; r < w.rows; ++r) {
    for (int first = 0; first < w.cols; first += kBlock) {
      const size_t at = static_cast<size_t>(r) * groups + static_cast<size_t>(first / matrix.group);
      BlockParts parts;
      parts.d = F16ToF32(F32ToF16Saturating(matrix.scales[at]));
      parts.min = F16ToF32(F32ToF16Saturating(matrix.zeros[at] * matrix.scales[at]));
      for (int e = 0; e < kBlock; ++e) {
        const float level = parts.d > 0 ? (w.row(r)[first + e] + parts.min) / parts.d : 0.0f;
        parts.codes[static_cast<size_t>(e)] =
            static_cast<uint8_t>(std::clamp(NearestEven(level), 0.0f, levels));
      }
      bytes.resize(bytes.size() + block_bytes);
      JoinBlock(format, parts, bytes.data() + bytes.size() - block_bytes);
    }
  }
  return bytes;
}

}  // namespace nibble
