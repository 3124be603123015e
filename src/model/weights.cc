#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "container/hf_linear.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// dst[r][c] = src[c][first + r]: `rows` columns of a stored {cols, stride} tensor become rows.
template <size_t kBytes>
void TransposeColumns(const MatrixRef& ref, std::byte* dst, ThreadPool& pool) {
  const auto stride = static_cast<size_t>(ref.tensor->cols());
  const auto cols = static_cast<size_t>(ref.cols);
  const std::byte* src = ref.tensor->bytes.data() + static_cast<size_t>(ref.first_row) * kBytes;
  pool.ParallelFor(ref.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (size_t c = 0; c < cols; ++c) {
      for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
        std::memcpy(dst + (r * cols + c) * kBytes, src + (c * stride + r) * kBytes, kBytes);
      }
    }
  });
}

// Walks all tensors in one order. Without an arena it only adds up, so that the plan and the
// allocation cannot differ.
class Packer {
 public:
  Packer(const ModelFile& file, OutputChoice output)
      : file_(file), config_(file.config()), output_(output) {}
  Packer(const ModelFile& file, OutputChoice output, std::span<std::byte> arena, ThreadPool& pool)
      : file_(file), config_(file.config()), output_(output), arena_(arena), pool_(&pool) {}

  Status Pack(ModelWeights& weights);
  Result<PackedMatrix> Matrix(const MatrixRef& ref);
  size_t used() const { return used_; }
  size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  Result<PackedMatrix> Transposed(const MatrixRef& ref, std::span<std::byte> dst);
  Result<PackedMatrix> Joined(const MatrixRef& ref);
  const int32_t* Order(const HfLinear& linear);
  const float* Vector(const VectorRef& ref, float add);
  PackedNorm PackNorm(const NormRef& ref);
  Status PackLinear(const LinearRef& ref, PackedLinear& linear);
  std::span<std::byte> Take(size_t bytes);
  void Drop(const SourceTensor& tensor, std::span<const std::byte> bytes) const;

  const ModelFile& file_;
  const ModelConfig& config_;
  OutputChoice output_;
  std::span<std::byte> arena_;
  ThreadPool* pool_ = nullptr;
  size_t used_ = 0;
  size_t scratch_bytes_ = 0;
  // The last permutation: queries, keys and values usually have one in common.
  const HfLinear* last_ordered_ = nullptr;
  const int32_t* last_order_ = nullptr;
};

std::span<std::byte> Packer::Take(size_t bytes) {
  const size_t begin = used_;
  used_ += RoundUp<size_t>(bytes, 64);
  if (pool_ == nullptr) return {};
  NIBBLE_CHECK(used_ <= arena_.size());
  return arena_.subspan(begin, bytes);
}

void Packer::Drop(const SourceTensor& tensor, std::span<const std::byte> bytes) const {
  const std::span<const MappedFile> files = file_.files();
  if (files.empty()) return;
  const MappedFile& file = files[static_cast<size_t>(tensor.file)];
  file.Drop(static_cast<size_t>(bytes.data() - file.bytes().data()), bytes.size());
}

Result<PackedMatrix> Packer::Transposed(const MatrixRef& ref, std::span<std::byte> dst) {
  const Format format = *ref.tensor->format;
  const auto element = static_cast<size_t>(TraitsOf(format).block_bytes);
  const size_t bytes = static_cast<size_t>(ref.rows) * static_cast<size_t>(ref.cols) * element;
  scratch_bytes_ = std::max(scratch_bytes_, bytes);
  if (pool_ == nullptr) return PackedMatrix{};
  NIBBLE_TRY(AlignedBuffer scratch, AlignedBuffer::Allocate(bytes));
  if (element == 4) {
    TransposeColumns<4>(ref, scratch.data(), *pool_);
  } else if (element == 2) {
    TransposeColumns<2>(ref, scratch.data(), *pool_);
  } else {
    TransposeColumns<1>(ref, scratch.data(), *pool_);
  }
  const std::span<const std::byte> rows(scratch.data(), bytes);
  return PackedMatrix::Pack(format, ref.rows, ref.cols, rows, dst, *pool_);
}

const int32_t* Packer::Order(const HfLinear& linear) {
  if (linear.order.empty()) return nullptr;
  if (last_ordered_ != nullptr && last_ordered_->order == linear.order) return last_order_;
  const size_t bytes = linear.order.size() * sizeof(int32_t);
  const std::span<std::byte> dst = Take(bytes);
  last_ordered_ = &linear;
  last_order_ = linear.order.data();
  if (pool_ != nullptr) {
    std::memcpy(dst.data(), linear.order.data(), bytes);
    last_order_ = reinterpret_cast<const int32_t*>(dst.data());
  }
  return last_order_;
}

// A quantised linear of a checkpoint: its rows are made in its format's blocks first.
Result<PackedMatrix> Packer::Joined(const MatrixRef& ref) {
  const HfLinear& linear = *ref.tensor->linear;
  const auto rows = static_cast<size_t>(ref.rows);
  const std::span<std::byte> dst = Take(PackedMatrix::Bytes(linear.format, ref.rows, ref.cols));
  const int32_t* order = Order(linear);
  const std::span<std::byte> scales =
      linear.row_scales ? Take(rows * sizeof(float)) : std::span<std::byte>();
  const size_t blocks =
      linear.block_scales ? PackedMatrix::BlockScaleFloats(ref.rows, ref.cols, linear.group) : 0;
  const std::span<std::byte> block_scales =
      blocks > 0 ? Take(blocks * sizeof(float)) : std::span<std::byte>();
  const size_t row_bytes = TraitsOf(linear.format).RowBytes(static_cast<size_t>(ref.cols));
  scratch_bytes_ = std::max(scratch_bytes_, row_bytes * rows);
  if (pool_ == nullptr) return PackedMatrix{};
  NIBBLE_TRY(AlignedBuffer scratch, AlignedBuffer::Allocate(row_bytes * rows));
  pool_->ParallelFor(ref.rows, 16, [&](int64_t begin, int64_t end, int) {
    DecodeHfRows(linear, ref.first_row + static_cast<int>(begin), static_cast<int>(end - begin),
                 scratch.data() + static_cast<size_t>(begin) * row_bytes);
  });
  PackedMatrix packed = PackedMatrix::Pack(
      linear.format, ref.rows, ref.cols, std::span(scratch.data(), row_bytes * rows), dst, *pool_);
  if (linear.row_scales) {
    auto* factors = reinterpret_cast<float*>(scales.data());
    HfRowScales(linear, ref.first_row, ref.rows, factors);
    packed.SetRowScales(factors);
  }
  if (linear.block_scales) {
    auto* factors = reinterpret_cast<float*>(block_scales.data());
    std::fill_n(factors, blocks, 0.0F);
    const size_t padded = blocks / static_cast<size_t>(linear.groups);
    for (int b = 0; b < linear.groups; ++b) {
      HfBlockScales(linear, b, ref.first_row, ref.rows, factors + static_cast<size_t>(b) * padded);
    }
    packed.SetBlockScales(factors, linear.group);
  }
  packed.SetInput(InputForm(*ref.tensor, order));
  // Every part of a fused linear touches words of the others: the last one gives them back.
  if (ref.first_row + ref.rows == linear.rows) {
    for (const SourceTensor* part : {linear.parts.codes, linear.parts.scales}) {
      Drop(*part, part->bytes);
    }
  }
  return packed;
}

Result<PackedMatrix> Packer::Matrix(const MatrixRef& ref) {
  if (!ref) return PackedMatrix{};
  if (ref.tensor->linear != nullptr) return Joined(ref);
  const Format format = *ref.tensor->format;
  const std::span<std::byte> dst = Take(PackedMatrix::Bytes(format, ref.rows, ref.cols));
  if (ref.transposed) {
    auto packed = Transposed(ref, dst);
    // Every part of a tensor touches all of its rows: the last one gives them back.
    const bool last = ref.first_row + ref.rows == static_cast<int>(ref.tensor->cols());
    if (pool_ != nullptr && last) Drop(*ref.tensor, ref.tensor->bytes);
    return packed;
  }
  if (pool_ == nullptr) return PackedMatrix{};
  const size_t row_bytes = TraitsOf(format).RowBytes(static_cast<size_t>(ref.cols));
  const std::span<const std::byte> rows = ref.tensor->bytes.subspan(
      static_cast<size_t>(ref.first_row) * row_bytes, static_cast<size_t>(ref.rows) * row_bytes);
  const PackedMatrix packed = PackedMatrix::Pack(format, ref.rows, ref.cols, rows, dst, *pool_);
  Drop(*ref.tensor, rows);
  return packed;
}

const float* Packer::Vector(const VectorRef& ref, float add) {
  if (!ref) return nullptr;
  const auto size = static_cast<size_t>(ref.size);
  const std::span<std::byte> dst = Take(size * sizeof(float));
  if (pool_ == nullptr) return nullptr;
  const FormatTraits& traits = TraitsOf(*ref.tensor->format);
  auto* values = reinterpret_cast<float*>(dst.data());
  traits.decode(ref.tensor->bytes.data() + traits.RowBytes(static_cast<size_t>(ref.first)), values,
                size);
  for (size_t i = 0; i < size && add != 0; ++i) values[i] += add;
  return values;
}

PackedNorm Packer::PackNorm(const NormRef& ref) {
  const float* weight = Vector(ref.weight, config_.norm_plus_one ? 1.0F : 0.0F);
  return {.weight = weight, .bias = Vector(ref.bias, 0)};
}

Status Packer::PackLinear(const LinearRef& ref, PackedLinear& linear) {
  NIBBLE_TRY(linear.weight, Matrix(ref.weight));
  linear.bias = Vector(ref.bias, 0);
  return {};
}

Status Packer::Pack(ModelWeights& weights) {
  const ModelTensors& tensors = file_.tensors();
  LinearRef output = tensors.output;
  if (output_ == OutputChoice::kEmbedding) output.weight = {};
  NIBBLE_TRY(weights.positions, Matrix(tensors.positions));
  const size_t before_embedding = used_;
  NIBBLE_TRY(weights.embedding, Matrix(tensors.embedding));
  const size_t embeddings = output.weight ? used_ : before_embedding;
  weights.layers.resize(tensors.layers.size());
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    PackedLayer& layer = weights.layers[i];
    for (size_t n = 0; n < kNorms; ++n) layer.norms[n] = PackNorm(tensors.layers[i].norms[n]);
    for (size_t l = 0; l < kLinears; ++l) {
      NIBBLE_RETURN_IF_ERROR(PackLinear(tensors.layers[i].linears[l], layer.linears[l]));
    }
  }
  weights.output_norm = PackNorm(tensors.output_norm);
  NIBBLE_RETURN_IF_ERROR(PackLinear(output, weights.output));
  weights.bytes_per_step = used_ - embeddings;
  return {};
}

}  // namespace

ActForm InputForm(const SourceTensor& tensor, const int32_t* order) {
  using Kind = HfInput::Kind;
  ActForm form;
  if (tensor.linear == nullptr) return form;
  const HfLinear& linear = *tensor.linear;
  form.order = order != nullptr || linear.order.empty() ? order : linear.order.data();
  const bool integers = TraitsOf(linear.format).activation_group != 0;
  switch (linear.input.kind) {
    case Kind::kUsual:
      break;
    case Kind::kF8Token:
      form.scheme = ActScheme::kF8Token;
      break;
    case Kind::kF8Static:
      form.scheme = ActScheme::kF8Static;
      form.scale = linear.input.scale;
      break;
    // A weight that had to be decoded to floats takes its input in floats as well.
    case Kind::kInt8Token:
      if (integers) form.scheme = ActScheme::kInt8Token;
      break;
    case Kind::kInt8Static:
      if (integers) form.scheme = ActScheme::kInt8Static;
      if (integers) form.scale = linear.input.scale;
      break;
    case Kind::kInt8Outliers:
      if (integers) form.scheme = ActScheme::kInt8Outliers;
      if (integers) form.threshold = linear.input.threshold;
      break;
  }
  return form;
}

WeightSizes MeasureWeights(const ModelFile& file, OutputChoice output) {
  Packer packer(file, output);
  ModelWeights ignored;
  NIBBLE_CHECK(packer.Pack(ignored).has_value());  // nothing is allocated, so nothing can fail
  return {.arena_bytes = packer.used(), .scratch_bytes = packer.scratch_bytes()};
}

Result<ModelWeights> PackWeights(const ModelFile& file, OutputChoice output,
                                 std::span<std::byte> arena, ThreadPool& pool) {
  Packer packer(file, output, arena, pool);
  ModelWeights weights;
  NIBBLE_RETURN_IF_ERROR(packer.Pack(weights));
  NIBBLE_CHECK(packer.used() == arena.size());
  return weights;
}

Result<PackedMatrix> PackOne(const ModelFile& file, const MatrixRef& ref, AlignedBuffer& storage,
                             ThreadPool& pool) {
  Packer measure(file, OutputChoice::kStored);
  NIBBLE_RETURN_IF_ERROR(measure.Matrix(ref));
  NIBBLE_TRY(storage, AlignedBuffer::Allocate(measure.used()));
  Packer packer(file, OutputChoice::kStored, storage.as<std::byte>().first(measure.used()), pool);
  return packer.Matrix(ref);
}

std::vector<float> ReadVector(const VectorRef& ref, float add) {
  if (!ref) return {};
  std::vector<float> values(static_cast<size_t>(ref.size));
  const FormatTraits& traits = TraitsOf(*ref.tensor->format);
  traits.decode(ref.tensor->bytes.data() + traits.RowBytes(static_cast<size_t>(ref.first)),
                values.data(), values.size());
  for (float& value : values) value += add;
  return values;
}

}  // namespace nibble
