#include "quantize/encode_tensor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// One thread's rows.
struct RowWork {
  std::vector<float> source;
  std::vector<float> decoded;
};

// The first weight of a row that is no finite number, or its length.
size_t FirstBad(std::span<const float> row) {
  const auto bad = std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
  return static_cast<size_t>(bad - row.begin());
}

EncodeLoss LossOf(std::span<const float> source, std::span<const float> decoded) {
  EncodeLoss loss;
  for (size_t i = 0; i < source.size(); ++i) {
    const double error = double{decoded[i]} - double{source[i]};
    loss.squared_error += error * error;
    loss.squares += double{source[i]} * double{source[i]};
    loss.largest = std::max(loss.largest, std::fabs(source[i]));
  }
  loss.weights = source.size();
  return loss;
}

void AddTo(EncodeLoss& total, const EncodeLoss& part) {
  total.squared_error += part.squared_error;
  total.squares += part.squares;
  total.largest = std::max(total.largest, part.largest);
  total.weights += part.weights;
}

constexpr uint64_t kNone = UINT64_MAX;  // no row

// `type`: in what the row is no more finite, if it was.
std::unexpected<Error> NameBadRow(const TensorView& tensor, uint64_t row, std::string_view type) {
  std::vector<float> values(static_cast<size_t>(tensor.cols()));
  tensor.ReadRow(row, values.data());
  const size_t col = FirstBad(values);
  if (col == values.size()) {
    const float largest =
        *std::ranges::max_element(values, {}, [](float x) { return std::fabs(x); });
    return BadInput("'{}' row {}: {} is too large for {}", tensor.name, row, largest, type);
  }
  return BadInput("'{}' row {} column {}: expected a finite weight, found {}", tensor.name, row,
                  col, values[col]);
}

void NoteLower(std::atomic<uint64_t>& least, uint64_t value) {
  uint64_t seen = least.load();
  while (value < seen && !least.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

double EncodeLoss::RelativeError() const {
  return squares > 0 ? std::sqrt(squared_error / squares) : 0;
}

double EncodeLoss::OutlierRatio() const {
  return squares > 0 ? double{largest} / std::sqrt(squares / static_cast<double>(weights)) : 0;
}

EncodeLoss MeasureLoss(MatrixView<const float> source, MatrixView<const float> decoded,
                       ThreadPool& pool) {
  std::vector<EncodeLoss> losses(static_cast<size_t>(source.rows));
  pool.ParallelFor(source.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int r = static_cast<int>(begin); r < end; ++r) {
      losses[static_cast<size_t>(r)] = LossOf(source.row_span(r), decoded.row_span(r));
    }
  });
  EncodeLoss total;
  for (const EncodeLoss& loss : losses) AddTo(total, loss);
  return total;
}

Result<EncodeLoss> EncodeTensor(const TensorView& tensor, const EncodeTarget& to, ThreadPool& pool,
                                const AppendBytes& append,
                                const std::function<void(uint64_t weights)>& progress) {
  const FormatTraits& to_traits = TraitsOf(to.format);
  const uint64_t rows = tensor.rows();
  const auto cols = static_cast<size_t>(tensor.cols());
  const size_t to_bytes = to_traits.RowBytes(cols);
  const bool weighted = !to.importance.empty() && to_traits.encode_weighted != nullptr;
  NIBBLE_CHECK(to.importance.empty() || to.importance.size() == cols);
  constexpr size_t kChunkBytes = size_t{4} << 20;
  const uint64_t chunk = std::clamp<uint64_t>(kChunkBytes / std::max<size_t>(to_bytes, 1), 1, rows);

  std::vector<RowWork> work(static_cast<size_t>(pool.size()));
  for (RowWork& own : work) {
    own.source.resize(cols);
    own.decoded.resize(cols);
  }
  std::vector<std::byte> encoded(chunk * to_bytes);
  std::vector<EncodeLoss> losses(chunk);  // by row: the sum does not depend on the threads
  EncodeLoss total;
  std::atomic<uint64_t> bad_row = kNone;
  for (uint64_t first = 0; first < rows; first += chunk) {
    const uint64_t count = std::min(chunk, rows - first);
    const auto encode_row = [&](size_t r, RowWork& own) {
      tensor.ReadRow(first + r, own.source.data());
      if (FirstBad(own.source) != cols) return NoteLower(bad_row, first + r);
      std::byte* codes = encoded.data() + r * to_bytes;
      if (weighted) {
        to_traits.encode_weighted(own.source.data(), to.importance.data(), codes, cols);
      } else {
        to_traits.encode(own.source.data(), codes, cols);
      }
      to_traits.decode(codes, own.decoded.data(), cols);
      if (FirstBad(own.decoded) != cols) return NoteLower(bad_row, first + r);
      losses[r] = LossOf(own.source, own.decoded);
    };
    pool.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t r = begin; r < end; ++r) {
        encode_row(static_cast<size_t>(r), work[static_cast<size_t>(thread)]);
      }
    });
    if (const uint64_t row = bad_row.load(); row != kNone) {
      return NameBadRow(tensor, row, to_traits.name);
    }
    for (size_t r = 0; r < count; ++r) AddTo(total, losses[r]);
    NIBBLE_RETURN_IF_ERROR(append(std::span(encoded).first(count * to_bytes)));
    progress(count * cols);
  }
  return total;
}

namespace {

Status CheckFiniteTensor(const SourceTensor& tensor, ThreadPool& pool) {
  const TensorView view = {.name = std::string(tensor.name), .tensor = &tensor};
  std::atomic<uint64_t> bad_row = kNone;
  pool.ParallelFor(static_cast<int64_t>(view.rows()), 64, [&](int64_t begin, int64_t end, int) {
    std::vector<float> values(static_cast<size_t>(view.cols()));
    for (auto r = static_cast<uint64_t>(begin); r < static_cast<uint64_t>(end); ++r) {
      view.ReadRow(r, values.data());
      if (FirstBad(values) != values.size()) NoteLower(bad_row, r);
    }
  });
  if (const uint64_t row = bad_row.load(); row != kNone) return NameBadRow(view, row, {});
  return {};
}

}  // namespace

Status CheckFiniteWeights(const ModelFile& model, ThreadPool& pool,
                          const std::function<bool(const SourceTensor&)>& leave_out) {
  for (const SourceTensor& tensor : model.source().tensors()) {
    if (!tensor.format || (leave_out && leave_out(tensor))) continue;
    NIBBLE_RETURN_IF_ERROR(CheckFiniteTensor(tensor, pool));
    if (tensor.linear != nullptr) continue;
    const MappedFile& file = model.files()[static_cast<size_t>(tensor.file)];
    file.Drop(static_cast<size_t>(tensor.bytes.data() - file.bytes().data()), tensor.bytes.size());
  }
  return {};
}

Status CheckFiniteLoss(const EncodeLoss& loss, std::string_view tensor, std::string_view type) {
  if (std::isfinite(loss.squared_error)) return {};
  return BadInput("'{}': a weight of up to {} is too large for {}", tensor, loss.largest, type);
}

}  // namespace nibble
