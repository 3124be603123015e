#include "container/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "container/hf_linear.h"

namespace nibble {

uint64_t SourceTensor::rows() const {
  uint64_t rows = 1;
  for (int i = 0; i + 1 < rank; ++i) rows *= shape[static_cast<size_t>(i)];
  return rows;
}

uint64_t SourceTensor::StoredBytes() const {
  return linear != nullptr ? linear->StoredBytes() : bytes.size();
}

std::string SourceTensor::ShapeString() const {
  if (rank == 0) return "scalar";
  std::string text;
  for (int i = 0; i < rank; ++i) {
    fmt::format_to(std::back_inserter(text), "{}{}", i > 0 ? " x " : "",
                   shape[static_cast<size_t>(i)]);
  }
  return text;
}

Result<TensorSource> TensorSource::Build(std::vector<SourceTensor> tensors) {
  TensorSource source;
  source.tensors_ = std::move(tensors);
  const auto name = [&](uint32_t i) { return source.tensors_[i].name; };
  source.by_name_.resize(source.tensors_.size());
  std::iota(source.by_name_.begin(), source.by_name_.end(), 0u);
  std::ranges::sort(source.by_name_, {}, name);
  const auto twice = std::ranges::adjacent_find(source.by_name_, {}, name);
  if (twice != source.by_name_.end()) return BadInput("two tensors named '{}'", name(*twice));
  for (const SourceTensor& tensor : source.tensors_) source.total_bytes_ += tensor.StoredBytes();
  return source;
}

const SourceTensor* TensorSource::Find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(by_name_, name, {}, [&](uint32_t i) { return tensors_[i].name; });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

}  // namespace nibble
