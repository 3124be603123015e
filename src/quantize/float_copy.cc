#include "quantize/float_copy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/split_mix.h"
#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "quantize/gguf_output.h"

namespace nibble {
namespace {

// Element i of the copy is element order[i] of the original.
using Order = std::vector<uint32_t>;

Order InOrder(size_t count) {
  Order order(count);
  std::iota(order.begin(), order.end(), uint32_t{0});
  return order;
}

// Numbers of one purpose: keyed, so that no layer's order depends on another's.
enum class Channels : uint8_t { kResidual, kFfn, kValue };

// Fisher and Yates. The remainder's bias is below count / 2^64.
Order Shuffled(size_t count, uint64_t seed, Channels channels, size_t index) {
  const uint64_t state =
      SplitMixAt(SplitMixAt(seed, static_cast<uint64_t>(channels)), static_cast<uint64_t>(index));
  Order order = InOrder(count);
  for (size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[SplitMixAt(state, i) % i]);
  }
  return order;
}

// How one stored tensor is put in order; an empty list leaves rows or columns as they are. Vectors
// have columns alone.
struct TensorOrder {
  Order rows;
  Order cols;
};

class OrdersOfModel {
 public:
  OrdersOfModel(const ModelFile& model, uint64_t seed);
  const TensorOrder* Find(const SourceTensor& tensor) const {
    const auto it = orders_.find(&tensor);
    return it == orders_.end() ? nullptr : &it->second;
  }

 private:
  void AddCols(const MatrixRef& matrix, const Order& order) {
    if (matrix) orders_[matrix.tensor].cols = order;
  }
  // Several linears may share a tensor, each with its own rows.
  void AddRows(const MatrixRef& matrix, const Order& order) {
    if (matrix) Put(orders_[matrix.tensor].rows, matrix.tensor->rows(), matrix.first_row, order);
  }
  void Add(const VectorRef& vector, const Order& order) {
    if (vector) Put(orders_[vector.tensor].cols, vector.tensor->cols(), vector.first, order);
  }
  void Add(const NormRef& norm, const Order& order) {
    Add(norm.weight, order);
    Add(norm.bias, order);
  }
  static void Put(Order& whole, uint64_t size, int first, const Order& order) {
    if (whole.empty()) whole = InOrder(size);
    for (size_t i = 0; i < order.size(); ++i) {
      whole[static_cast<size_t>(first) + i] = static_cast<uint32_t>(first) + order[i];
    }
  }
  void AddLayer(const LayerTensors& layer, const ModelConfig& config, size_t index);

  uint64_t seed_;
  Order residual_;
  std::map<const SourceTensor*, TensorOrder> orders_;
};

OrdersOfModel::OrdersOfModel(const ModelFile& model, uint64_t seed)
    : seed_(seed),
      residual_(Shuffled(static_cast<size_t>(model.config().width), seed, Channels::kResidual, 0)) {
  const ModelTensors& tensors = model.tensors();
  AddCols(tensors.embedding, residual_);
  AddCols(tensors.positions, residual_);
  AddCols(tensors.output.weight, residual_);
  Add(tensors.output_norm, residual_);
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    AddLayer(tensors.layers[i], model.config(), i);
  }
}

void OrdersOfModel::AddLayer(const LayerTensors& layer, const ModelConfig& config, size_t index) {
  for (const Norm norm : {Norm::kAttention, Norm::kPostAttention, Norm::kFfn, Norm::kPostFfn}) {
    Add(layer[norm], residual_);
  }
  for (const Linear reader :
       {Linear::kQuery, Linear::kKey, Linear::kValue, Linear::kGate, Linear::kUp}) {
    AddCols(layer[reader].weight, residual_);
  }
  for (const Linear writer : {Linear::kOutput, Linear::kDown}) {
    AddRows(layer[writer].weight, residual_);
    Add(layer[writer].bias, residual_);
  }

  const Order ffn = Shuffled(static_cast<size_t>(config.ffn_width), seed_, Channels::kFfn, index);
  for (const Linear writer : {Linear::kGate, Linear::kUp}) {
    AddRows(layer[writer].weight, ffn);
    Add(layer[writer].bias, ffn);
  }
  AddCols(layer[Linear::kDown].weight, ffn);

  // Attention mixes positions, never a head's channels: those of a KV head's values come out as
  // the channels of every query head that reads it.
  const auto head = static_cast<size_t>(config.head_dim);
  const auto kv_heads = static_cast<size_t>(config.kv_heads);
  const size_t shared = static_cast<size_t>(config.heads) / kv_heads;
  Order values, outputs;
  for (size_t kv = 0; kv < kv_heads; ++kv) {
    const Order order = Shuffled(head, seed_, Channels::kValue, index * kv_heads + kv);
    for (const uint32_t channel : order) {
      values.push_back(static_cast<uint32_t>(kv * head) + channel);
    }
    for (size_t query = kv * shared; query < (kv + 1) * shared; ++query) {
      for (const uint32_t channel : order) {
        outputs.push_back(static_cast<uint32_t>(query * head) + channel);
      }
    }
  }
  AddRows(layer[Linear::kValue].weight, values);
  Add(layer[Linear::kValue].bias, values);
  AddCols(layer[Linear::kOutput].weight, outputs);
}

Format CopyFormat(const SourceTensor& tensor, const FloatCopyOptions& options) {
  return tensor.rank == 1 ? Format::kF32 : options.matrices;
}

Status SetMetadata(const ModelFile& model, const FloatCopyOptions& options, GgufWriter& writer) {
  for (const GgufEntry& entry : model.gguf()->metadata()) {
    const bool replaced = entry.key == "general.file_type" || entry.key == kCardKey ||
                          entry.key == "general.quantization_version" ||
                          entry.key == "general.alignment" || entry.key.starts_with("split.") ||
                          entry.key.starts_with("nibble.float_copy.");
    if (!replaced) NIBBLE_RETURN_IF_ERROR(writer.Copy(entry));
  }
  // llama.cpp's numbers for "mostly F16" and "all F32".
  writer.SetUint32("general.file_type", options.matrices == Format::kF16 ? 1 : 0);
  writer.SetString("nibble.float_copy.of", model.path().filename().string());
  writer.SetUint64("nibble.float_copy.seed", options.seed);
  return {};
}

// One tensor's rows in their new order, all threads at once, some MB at a time.
class TensorCopy {
 public:
  TensorCopy(const SourceTensor& tensor, const TensorOrder& order, Format to)
      : tensor_(tensor),
        order_(order),
        to_(TraitsOf(to)),
        cols_(static_cast<size_t>(tensor.cols())) {}

  // done: after each piece, the number of rows written.
  Status Write(ThreadPool& pool, TensorStream& out,
               const std::function<Status(uint64_t rows)>& done) const {
    constexpr size_t kPiece = size_t{4} << 20;
    const size_t row_bytes = to_.RowBytes(cols_);
    const uint64_t at_once = std::max<uint64_t>(1, kPiece / std::max<size_t>(row_bytes, 1));
    std::vector<std::byte> piece;
    for (uint64_t first = 0; first < tensor_.rows(); first += at_once) {
      const uint64_t count = std::min(at_once, tensor_.rows() - first);
      piece.resize(count * row_bytes);
      std::atomic<bool> bad = false;
      pool.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int) {
        std::vector<float> decoded(cols_), ordered(cols_);
        for (auto r = static_cast<uint64_t>(begin); r < static_cast<uint64_t>(end); ++r) {
          Decode(first + r, decoded);
          if (FirstBad(decoded) != cols_) bad = true;
          for (size_t c = 0; c < cols_; ++c) {
            ordered[c] = decoded[order_.cols.empty() ? c : order_.cols[c]];
          }
          to_.encode(ordered.data(), piece.data() + r * row_bytes, cols_);
        }
      });
      if (bad) return BadWeight(first, count);
      NIBBLE_RETURN_IF_ERROR(out.Append(piece));
      NIBBLE_RETURN_IF_ERROR(done(first + count));
    }
    return {};
  }

 private:
  uint64_t SourceRow(uint64_t row) const { return order_.rows.empty() ? row : order_.rows[row]; }

  // The row that the copy has as `row`, its columns in the original's order.
  void Decode(uint64_t row, std::span<float> into) const {
    const FormatTraits& from = TraitsOf(*tensor_.format);
    from.decode(tensor_.bytes.data() + SourceRow(row) * from.RowBytes(cols_), into.data(), cols_);
  }

  // The first weight that the copy cannot hold, or the row's length.
  size_t FirstBad(std::span<const float> row) const {
    const float largest = to_.format == Format::kF16 ? 65504.0F : std::numeric_limits<float>::max();
    const auto fits = [&](float value) { return std::fabs(value) <= largest; };
    return static_cast<size_t>(std::ranges::find_if_not(row, fits) - row.begin());
  }

  Status BadWeight(uint64_t first, uint64_t count) const {
    std::vector<float> decoded(cols_);
    for (uint64_t row = first; row < first + count; ++row) {
      Decode(row, decoded);
      const size_t col = FirstBad(decoded);
      if (col == cols_) continue;
      return BadInput("'{}' row {} column {}: expected a weight that {} can hold, found {}",
                      tensor_.name, SourceRow(row), col, to_.name, decoded[col]);
    }
    return {};
  }

  const SourceTensor& tensor_;
  const TensorOrder& order_;
  const FormatTraits& to_;
  size_t cols_;
};

// Gives the pages of a tensor that has been copied back to the system.
void DropTensor(const ModelFile& model, const SourceTensor& tensor) {
  const MappedFile& file = model.files()[static_cast<size_t>(tensor.file)];
  file.Drop(static_cast<size_t>(tensor.bytes.data() - file.bytes().data()), tensor.bytes.size());
}

}  // namespace

Status WriteFloatCopy(const ModelFile& model, const std::filesystem::path& path,
                      const FloatCopyOptions& options, ThreadPool& pool) {
  if (!model.is_gguf()) {
    return BadInput("{}: expected a GGUF file to copy", model.path().string());
  }
  const auto tensors = model.source().tensors();
  GgufWriter writer;
  NIBBLE_RETURN_IF_ERROR(SetMetadata(model, options, writer));
  for (const SourceTensor& tensor : tensors) {
    if (!tensor.format) {
      return BadInput("'{}' is {}, which cannot be copied", tensor.name, tensor.type_name);
    }
    NIBBLE_RETURN_IF_ERROR(
        writer.AddTensor(tensor.name, CopyFormat(tensor, options),
                         std::span(tensor.shape).first(static_cast<size_t>(tensor.rank))));
  }
  NIBBLE_CHECK(options.matrices == Format::kF16 || options.matrices == Format::kF32);
  NIBBLE_TRY(TensorStream out, writer.Begin(path));
  const OrdersOfModel orders(model, options.seed);
  const auto total = static_cast<double>(model.source().total_bytes());
  double before = 0;
  for (const SourceTensor& tensor : tensors) {
    static const TensorOrder kUnchanged;
    const TensorOrder* order = orders.Find(tensor);
    const auto done = [&](uint64_t rows) -> Status {
      const double part = static_cast<double>(tensor.bytes.size()) * static_cast<double>(rows) /
                          static_cast<double>(tensor.rows());
      if (!options.progress || options.progress((before + part) / total, tensor.name)) return {};
      return Fail(ErrorKind::kCancelled, "{}: stopped, nothing is left of it", path.string());
    };
    const TensorCopy copy(tensor, order == nullptr ? kUnchanged : *order,
                          CopyFormat(tensor, options));
    NIBBLE_RETURN_IF_ERROR(copy.Write(pool, out, done));
    DropTensor(model, tensor);
    before += static_cast<double>(tensor.bytes.size());
  }
  NIBBLE_TRY(OutputFile file, out.Complete());
  return file.Commit();
}

}  // namespace nibble
