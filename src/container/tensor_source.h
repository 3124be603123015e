#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/format.h"

namespace nibble {

struct HfLinear;

// A stored tensor of either container, as the model loader sees it. Views into the file.
struct SourceTensor {
  static constexpr int kMaxRank = 8;
  std::string_view name;
  // Nothing for what is no weight format (integers, booleans, F64 in safetensors).
  std::optional<Format> format;
  std::string_view type_name;  // "q4_k" (GGUF); "BF16", "I32" (safetensors)
  // Outermost dimension first, as in PyTorch, whatever the container: a linear layer's weight is
  // {out, in}, rows of `in` consecutive elements. GGUF's ne order is the reverse of this.
  int rank = 0;
  std::array<uint64_t, kMaxRank> shape = {};  // the first `rank` count
  std::span<const std::byte> bytes;           // any alignment
  int file = 0;                               // shard that holds the bytes
  // A quantised linear of a Hugging Face checkpoint, which lies in several tensors
  // (container/hf_linear.h): this one stands for its weight and has no bytes.
  const HfLinear* linear = nullptr;

  // The tensor as a matrix: cols is the last dimension, rows the product of the others.
  uint64_t cols() const { return rank > 0 ? shape[static_cast<size_t>(rank - 1)] : 1; }
  uint64_t rows() const;
  uint64_t elements() const { return rows() * cols(); }
  uint64_t StoredBytes() const;     // a quantised linear: of all its tensors
  std::string ShapeString() const;  // "576 x 1536"
};

// The tensors of a model by name, from one file or several.
class TensorSource {
 public:
  // Error: two tensors of one name.
  static Result<TensorSource> Build(std::vector<SourceTensor> tensors);

  const SourceTensor* Find(std::string_view name) const;  // null when absent; logarithmic
  std::span<const SourceTensor> tensors() const { return tensors_; }  // in file order
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  std::vector<SourceTensor> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
  uint64_t total_bytes_ = 0;
};

}  // namespace nibble
