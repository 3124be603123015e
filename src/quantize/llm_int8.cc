#include "quantize/llm_int8.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "platform/thread_pool.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

// Ties to even of |x| < 2^22.
float RoundedToEven(float x) {
  constexpr float kMagic = 12582912.0f;
  return (x + kMagic) - kMagic;
}

float LargestMagnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  return largest;
}

int8_t Int8Code(float x, float absmax) {
  return absmax > 0
             ? static_cast<int8_t>(std::clamp(RoundedToEven(x / absmax * 127), -127.0f, 127.0f))
             : int8_t{0};
}

}  // namespace

Result<Int8Matrix> QuantizeLlmInt8(MatrixView<const float> w, ThreadPool& pool) {
  NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
  Int8Matrix matrix = {.rows = w.rows, .cols = w.cols, .codes = {}, .absmax = {}};
  matrix.codes.resize(static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols));
  matrix.absmax.resize(static_cast<size_t>(w.rows));
  pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const auto row = w.row_span(static_cast<int>(r));
      const float absmax = LargestMagnitude(row);
      matrix.absmax[static_cast<size_t>(r)] = absmax;
      int8_t* codes = matrix.codes.data() + r * w.cols;
      for (size_t c = 0; c < row.size(); ++c) codes[c] = Int8Code(row[c], absmax);
    }
  });
  return matrix;
}

std::vector<int> OutlierColumns(std::span<const float> largest_magnitude, float threshold) {
  std::vector<int> columns;
  for (size_t c = 0; c < largest_magnitude.size(); ++c) {
    if (largest_magnitude[c] >= threshold) columns.push_back(static_cast<int>(c));
  }
  return columns;
}

void MultiplyLlmInt8(const Int8Matrix& w, std::span<const float> x, std::span<const float> bias,
                     const OutlierRule& rule, std::span<float> y) {
  NIBBLE_CHECK(x.size() == static_cast<size_t>(w.cols) && y.size() == static_cast<size_t>(w.rows));
  NIBBLE_CHECK(bias.empty() || bias.size() == y.size());
  std::vector<uint8_t> outlier(x.size());
  for (const int column : rule.fixed) outlier[static_cast<size_t>(column)] = 1;
  std::vector<float> rest(x.begin(), x.end());
  for (size_t c = 0; c < x.size(); ++c) {
    if (rule.fixed.empty() && rule.threshold > 0 && std::fabs(x[c]) >= rule.threshold)
      outlier[c] = 1;
    if (outlier[c]) rest[c] = 0;
  }
  const float absmax = LargestMagnitude(rest);
  std::vector<int8_t> codes(x.size());
  for (size_t c = 0; c < x.size(); ++c) codes[c] = Int8Code(rest[c], absmax);
  for (size_t r = 0; r < y.size(); ++r) {
    const int8_t* row = w.codes.data() + r * x.size();
    const float weight_scale = w.absmax[r] / 127;
    int64_t product = 0;
    float exact = 0;
    for (size_t c = 0; c < x.size(); ++c) {
      product += int64_t{row[c]} * codes[c];
      if (outlier[c]) exact += x[c] * (static_cast<float>(row[c]) * weight_scale);
    }
    const float scaled = static_cast<float>(product) * (absmax / 127 * weight_scale);
    y[r] = scaled + exact + (bias.empty() ? 0.0f : bias[r]);
  }
}

}  // namespace nibble
