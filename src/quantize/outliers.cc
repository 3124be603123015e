#include "quantize/outliers.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr std::array<size_t, kScaleSharings> kGroups = {0, 0, 128, 64, 32};  // 0: the whole row
constexpr size_t kTensorIndex = 0;

// Sums of |ŵ − w|.
struct ErrorSums {
  std::array<double, kScaleSharings> int8 = {};
  std::array<double, kScaleSharings> int4 = {};

  void Add(const ErrorSums& other) {
    for (size_t i = 0; i < kScaleSharings; ++i) {
      int8[i] += other.int8[i];
      int4[i] += other.int4[i];
    }
  }
  SharingErrors Over(double magnitudes) const {
    SharingErrors out;
    for (size_t i = 0; i < kScaleSharings && magnitudes > 0; ++i) {
      out.int8[i] = int8[i] / magnitudes;
      out.int4[i] = int4[i] / magnitudes;
    }
    return out;
  }
};

float AbsMax(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

double Magnitudes(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += std::fabs(double{value});
  return sum;
}

double RoundingError(std::span<const float> values, float largest, float codes) {
  if (!(largest > 0)) return 0;
  constexpr float kMagic = 0x1.8p23F;  // adding it rounds to an integer
  const float scale = largest / codes;
  if (!(scale > 0)) return Magnitudes(values);
  double sum = 0;
  for (const float value : values) {
    const float code = (value / scale + kMagic) - kMagic;
    sum += std::fabs(double{code} * double{scale} - double{value});
  }
  return sum;
}

void AddErrors(std::span<const float> values, float largest, size_t sharing, ErrorSums& sums) {
  sums.int8[sharing] += RoundingError(values, largest, 127);
  sums.int4[sharing] += RoundingError(values, largest, 7);
}

// Of scales that a row has for itself.
void AddRowErrors(std::span<const float> row, ErrorSums& sums) {
  for (size_t i = 0; i < kScaleSharings; ++i) {
    if (i == kTensorIndex) continue;
    const size_t group = kGroups[i] == 0 ? row.size() : kGroups[i];
    for (size_t at = 0; at < row.size(); at += group) {
      const auto part = row.subspan(at, std::min(group, row.size() - at));
      AddErrors(part, AbsMax(part), i, sums);
    }
  }
}

ChannelRatios RatiosOf(std::span<const float> maxima, double typical) {
  ChannelRatios out;
  if (maxima.empty() || !(typical > 0)) return out;
  std::vector<int64_t> order(maxima.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto larger = [&](int64_t a, int64_t b) {
    const float x = maxima[static_cast<size_t>(a)], y = maxima[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto ratio = [&](int64_t channel) {
    return double{maxima[static_cast<size_t>(channel)]} / typical;
  };
  const auto middle = order.begin() + static_cast<ptrdiff_t>(order.size() / 2);
  std::ranges::nth_element(order, middle, larger);
  out.median = ratio(*middle);
  const size_t shown = std::min<size_t>(8, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<ptrdiff_t>(shown), larger);
  for (size_t i = 0; i < shown; ++i) out.worst.push_back({order[i], ratio(order[i])});
  return out;
}

bool OneScaleDestroys(const SharingErrors& errors) {
  constexpr double kDestroyed = 0.1;
  return errors.int8[kTensorIndex] > kDestroyed &&
         errors.int8[static_cast<size_t>(ScaleSharing::kChannel)] < kDestroyed;
}

// Reads the rows of a matrix a few MB at a time, and hands them on in order.
class RowReader {
 public:
  RowReader(const TensorView& tensor, ThreadPool& pool) : tensor_(tensor), pool_(pool) {}

  // visit(first, rows): rows is [count][cols].
  template <class Visit>
  void ForPieces(Visit&& visit) {
    const size_t cols = tensor_.cols();
    const uint64_t at_once = std::max<uint64_t>(1, (size_t{4} << 20) / std::max<size_t>(cols, 1));
    std::vector<float> piece;
    for (uint64_t first = 0; first < tensor_.rows(); first += at_once) {
      const uint64_t count = std::min(at_once, tensor_.rows() - first);
      piece.resize(count * cols);
      pool_.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int) {
        for (auto r = static_cast<uint64_t>(begin); r < static_cast<uint64_t>(end); ++r) {
          tensor_.ReadRow(first + r, piece.data() + r * cols);
        }
      });
      visit(first, std::span<const float>(piece));
    }
  }

 private:
  const TensorView& tensor_;
  ThreadPool& pool_;
};

// What the first reading finds. Sums go row by row, so that threads do not change them.
struct FirstReading {
  std::vector<float> row_maxima;
  std::vector<float> col_maxima;
  double magnitudes = 0;
  ErrorSums errors;
  uint64_t bad_row = UINT64_MAX;
};

FirstReading ReadOnce(const TensorView& tensor, ThreadPool& pool) {
  const size_t cols = tensor.cols();
  FirstReading out;
  out.row_maxima.resize(tensor.rows());
  out.col_maxima.resize(cols);
  struct Row {
    double magnitudes;
    ErrorSums errors;
  };
  std::vector<Row> rows;
  RowReader(tensor, pool).ForPieces([&](uint64_t first, std::span<const float> piece) {
    const size_t count = piece.size() / cols;
    rows.assign(count, {});
    pool.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int) {
      for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
        const auto row = piece.subspan(r * cols, cols);
        out.row_maxima[first + r] = AbsMax(row);
        rows[r].magnitudes = Magnitudes(row);
        AddRowErrors(row, rows[r].errors);
      }
    });
    pool.ParallelFor(static_cast<int64_t>(cols), 16, [&](int64_t begin, int64_t end, int) {
      for (size_t r = 0; r < count; ++r) {
        for (auto c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c) {
          out.col_maxima[c] = std::max(out.col_maxima[c], std::fabs(piece[r * cols + c]));
        }
      }
    });
    for (size_t r = 0; r < count; ++r) {
      if (!std::isfinite(rows[r].magnitudes) && out.bad_row == UINT64_MAX) out.bad_row = first + r;
      out.magnitudes += rows[r].magnitudes;
      out.errors.Add(rows[r].errors);
    }
  });
  return out;
}

// The errors under one scale, which the first reading found.
void ReadAgain(const TensorView& tensor, float largest, ThreadPool& pool, ErrorSums& errors) {
  const size_t cols = tensor.cols();
  std::vector<ErrorSums> rows;
  RowReader(tensor, pool).ForPieces([&](uint64_t, std::span<const float> piece) {
    const size_t count = piece.size() / cols;
    rows.assign(count, {});
    pool.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int) {
      for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
        AddErrors(piece.subspan(r * cols, cols), largest, kTensorIndex, rows[r]);
      }
    });
    for (const ErrorSums& row : rows) errors.Add(row);
  });
}

}  // namespace

std::string_view NameOf(ScaleSharing sharing) {
  constexpr std::array<std::string_view, kScaleSharings> kNames = {"tensor", "channel", "group 128",
                                                                   "group 64", "group 32"};
  return kNames[static_cast<size_t>(sharing)];
}

bool TensorOutliers::DestroyedByOneScale() const { return OneScaleDestroys(errors); }
bool ActivationOutliers::DestroyedByOneScale() const { return OneScaleDestroys(errors); }

Result<TensorOutliers> FindOutliers(const TensorView& tensor, ThreadPool& pool) {
  TensorOutliers out = {.name = tensor.name,
                        .rows = static_cast<int64_t>(tensor.rows()),
                        .cols = static_cast<int64_t>(tensor.cols()),
                        .outputs = {},
                        .inputs = {},
                        .errors = {}};
  if (tensor.elements() == 0) return out;
  FirstReading first = ReadOnce(tensor, pool);
  if (first.bad_row != UINT64_MAX) {
    std::vector<float> row(tensor.cols());
    tensor.ReadRow(first.bad_row, row.data());
    const auto bad = std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
    return BadInput("'{}' row {} column {}: expected a finite weight, found {}", tensor.name,
                    first.bad_row, bad - row.begin(), bad == row.end() ? row.back() : *bad);
  }
  const float largest = AbsMax(first.row_maxima);
  ReadAgain(tensor, largest, pool, first.errors);
  out.typical = first.magnitudes / static_cast<double>(tensor.elements());
  out.ratio = out.typical > 0 ? double{largest} / out.typical : 0;
  out.outputs = RatiosOf(first.row_maxima, out.typical);
  out.inputs = RatiosOf(first.col_maxima, out.typical);
  out.errors = first.errors.Over(first.magnitudes);
  return out;
}

void ActivationTap::Input(int layer, std::string_view linear, MatrixView<const float> x) {
  Seen& seen = seen_[{layer, std::string(linear)}];
  seen.maxima.resize(static_cast<size_t>(x.cols));
  for (int r = 0; r < x.rows; ++r) {
    const auto row = x.row_span(r);
    for (size_t c = 0; c < row.size(); ++c) {
      seen.maxima[c] = std::max(seen.maxima[c], std::fabs(row[c]));
    }
    seen.magnitudes += Magnitudes(row);
    if (seen.rows++ < kKeptRows) seen.kept.insert(seen.kept.end(), row.begin(), row.end());
  }
}

std::vector<ActivationOutliers> ActivationTap::Finish() const {
  std::vector<ActivationOutliers> out;
  for (const auto& [key, seen] : seen_) {
    const size_t cols = seen.maxima.size();
    if (cols == 0 || seen.rows == 0) continue;
    ActivationOutliers one = {.layer = key.first,
                              .linear = key.second,
                              .tokens = seen.rows,
                              .channels = {},
                              .errors = {}};
    const float largest = AbsMax(seen.maxima);
    one.typical = seen.magnitudes / (static_cast<double>(seen.rows) * static_cast<double>(cols));
    one.ratio = one.typical > 0 ? double{largest} / one.typical : 0;
    one.channels = RatiosOf(seen.maxima, one.typical);
    one.above_six = std::ranges::count_if(seen.maxima, [](float x) { return x >= 6; });
    ErrorSums errors;
    const std::span<const float> kept(seen.kept);
    for (size_t at = 0; at < kept.size(); at += cols) {
      AddErrors(kept.subspan(at, cols), largest, kTensorIndex, errors);
      AddRowErrors(kept.subspan(at, cols), errors);
    }
    one.errors = errors.Over(Magnitudes(kept));
    out.push_back(std::move(one));
  }
  // The head's number is -1.
  std::ranges::stable_partition(out, [](const ActivationOutliers& one) { return one.layer >= 0; });
  return out;
}

}  // namespace nibble
