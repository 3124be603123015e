#include "quantize/hf_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "quantize/gguf_output.h"
#include "quantize/gptq.h"
#include "quantize/matrix_bytes.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

// The group size at the end of a name: "w4a16-g64".
std::optional<int> GroupIn(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size());
  int group = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), group);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return group > 0 ? std::optional(group) : std::nullopt;
}

bool IsFp8(const HfScheme& scheme) { return scheme.layout == HfLayout::kFloatQuantized; }

}  // namespace

Result<HfScheme> HfSchemeFromName(std::string_view name, bool bf16) {
  HfScheme scheme;
  scheme.true_sequential = true;
  const bool compressed = name.starts_with("w") || name.starts_with("fp8");
  scheme.bf16_scales = bf16 && compressed;
  if (name == "gptq" || name == "gptq_v2") {
    scheme.layout = name == "gptq" ? HfLayout::kGptq : HfLayout::kGptqV2;
    return scheme;
  }
  if (name == "awq") {
    scheme.layout = HfLayout::kAwq;
    scheme.symmetric = false;
    return scheme;
  }
  scheme.layout = HfLayout::kPackQuantized;
  if (const auto group = GroupIn(name, "w4a16-g")) {
    scheme.group = *group;
    return scheme;
  }
  if (const auto group = GroupIn(name, "w4a16-asym-g")) {
    scheme.group = *group;
    scheme.symmetric = false;
    return scheme;
  }
  scheme.bits = 8;
  if (const auto group = GroupIn(name, "w8a16-g")) {
    scheme.group = *group;
    return scheme;
  }
  scheme.group = 0;
  if (name == "w8a8") {
    scheme.layout = HfLayout::kIntQuantized;
    scheme.activations = HfActivations::kInt8Token;
    return scheme;
  }
  if (name == "fp8" || name == "fp8-dynamic") {
    scheme.layout = HfLayout::kFloatQuantized;
    scheme.tensor_scale = name == "fp8";
    scheme.activations = HfActivations::kFp8Token;
    return scheme;
  }
  if (name == "llm-int8") {
    scheme.layout = HfLayout::kLlmInt8;
    return scheme;
  }
  return BadInput(
      "--to: unknown layout '{}'; known for folders: gptq, gptq_v2, awq, w4a16-gN, w4a16-asym-gN, "
      "w8a16-gN (N inputs a group, mostly 128), w8a8, fp8, fp8-dynamic, llm-int8",
      name);
}

GridSpec GridOf(const HfScheme& scheme) {
  GridSpec spec;
  spec.bits = scheme.bits;
  spec.granularity = scheme.group == 0 ? Granularity::kChannel : Granularity::kGroup;
  if (scheme.equal_scales) spec.granularity = Granularity::kTensor;
  spec.group = scheme.group;
  spec.symmetric = scheme.symmetric;
  spec.scale_type = scheme.bf16_scales ? ScaleType::kBf16 : ScaleType::kF16;
  switch (scheme.layout) {
    case HfLayout::kGptq:
    case HfLayout::kGptqV2:
      spec.convention = GridConvention::kGptq;
      break;
    case HfLayout::kAwq:
      spec.convention = GridConvention::kAwq;
      break;
    case HfLayout::kLlmInt8:
      spec.convention = GridConvention::kSmoothQuant;
      spec.scale_type = ScaleType::kF32;
      break;
    default:
      spec.convention = GridConvention::kCompressedTensors;
  }
  return spec;
}

std::string_view HfTarget::ModuleOf(const SourceTensor& tensor) {
  std::string_view name = tensor.name;
  if (name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
  return name;
}

Result<HfTarget> HfTarget::Create(const ModelFile& model, const HfScheme& scheme,
                                  const Recipe& recipe, ThreadPool& pool, TensorStore& store) {
  if (recipe.rounding == Rounding::kHqq || recipe.rounding == Rounding::kKquant) {
    return BadInput("--method: hqq and kquant make GGUF types; of folders rtn and gptq do");
  }
  HfTarget target(scheme, recipe, pool, store);
  target.plus_one_ = model.config().norm_plus_one;
  // A tied output has no tensor, but is a linear to those that look for linears to replace.
  NIBBLE_TRY(const Architecture* architecture, FindArchitecture(model.config().architecture));
  target.kept_.emplace_back(model.tensors().output.weight
                                ? ModuleOf(*model.tensors().output.weight.tensor)
                                : architecture->hf.output);
  for (const LayerTensors& layer : model.tensors().layers) {
    for (const LinearRef& linear : layer.linears) {
      const MatrixRef& ref = linear.weight;
      if (!ref || target.modules_.contains(ref.tensor)) continue;
      const std::string_view module = ModuleOf(*ref.tensor);
      if (ref.transposed) {
        return BadInput("'{}': weights stored as {{in, out}} have no place in this layout",
                        ref.tensor->name);
      }
      const auto rows = static_cast<int>(ref.tensor->rows());
      if (const Status fits = CheckHfLinear(scheme, rows, ref.cols); !fits) {
        if (std::ranges::find(target.kept_, module) != target.kept_.end()) continue;
        target.kept_.emplace_back(module);
        target.notes_.push_back(fmt::format("{} stays as it is: {}", module, fits.error().message));
        continue;
      }
      target.modules_[ref.tensor] = true;
    }
  }
  if (target.modules_.empty()) {
    return BadInput("the layout holds none of the model's linears: {}",
                    target.notes_.empty() ? "" : target.notes_.front());
  }
  std::ranges::sort(target.kept_);
  return target;
}

// Scales change even weights that stay in floats.
bool HfTarget::Keeps(const StoredLinear& linear) const {
  return !Quantises(*linear.tensor) && recipe_.scaling == Scaling::kNone;
}

bool HfTarget::Done(const StoredLinear& linear) const {
  return store_->Find(linear.tensor->name) != nullptr;
}

Result<std::vector<std::byte>> HfTarget::ReadRecord(const SourceTensor& tensor) const {
  const TensorStore::Record& record = *store_->Find(tensor.name);
  std::vector<std::byte> bytes(record.bytes);
  NIBBLE_RETURN_IF_ERROR(store_->Read(record, 0, bytes));
  return bytes;
}

Status HfTarget::Restore(const StoredLinear& linear, MatrixView<float> values) {
  NIBBLE_TRY(const std::vector<std::byte> bytes, ReadRecord(*linear.tensor));
  const size_t count = static_cast<size_t>(values.rows) * static_cast<size_t>(values.cols);
  const auto damaged = [&] {
    return BadInput("'{}': a record of the unfinished output is damaged", linear.tensor->name);
  };
  if (!Quantises(*linear.tensor)) {
    const FormatTraits& traits = TraitsOf(*linear.tensor->format);
    if (bytes.size() != traits.RowBytes(count)) return damaged();
    traits.decode(bytes.data(), values.data, count);
    return {};
  }
  if (IsFp8(scheme_)) {
    NIBBLE_TRY(const Fp8Matrix matrix, ReadFp8Matrix(bytes));
    const size_t scales = scheme_.tensor_scale ? 1 : static_cast<size_t>(values.rows);
    if (matrix.rows != values.rows || matrix.cols != values.cols || matrix.codes.size() != count ||
        matrix.scales.size() != scales) {
      return damaged();
    }
    Dequantize(matrix, values);
    return {};
  }
  NIBBLE_TRY(const GroupedMatrix matrix, ReadGroupedMatrix(bytes));
  if (matrix.rows != values.rows || matrix.cols != values.cols || matrix.bits != scheme_.bits ||
      matrix.group < 1 || !CheckGroupedMatrix(scheme_, matrix)) {
    return damaged();
  }
  Dequantize(matrix, values, *pool_);
  return {};
}

Result<GroupedMatrix> HfTarget::Codes(MatrixView<const float> w, const LinearInput& input,
                                      std::string& note) {
  GridSpec spec = GridOf(scheme_);
  spec.search_range = recipe_.mse;
  if (recipe_.rounding != Rounding::kGptq || input.factor == nullptr) {
    return QuantizeRtn(w, spec, *pool_);
  }
  const GptqOptions options = {.grid = spec, .static_groups = recipe_.static_groups};
  NIBBLE_TRY(GptqResult made, QuantizeGptq(w, *input.factor, options, *pool_));
  note = fmt::format("loss {:.4g}", made.loss);
  return std::move(made.matrix);
}

// A scale that the stored type cuts off at its largest makes every weight of its group smaller.
Status CheckScales(std::span<const float> scales, ScaleType type, std::string_view tensor) {
  if (type != ScaleType::kF16) return {};
  constexpr float kLargestHalf = 65504;
  const auto at_end = [](float scale) { return std::abs(scale) >= kLargestHalf; };
  if (std::ranges::none_of(scales, at_end)) return {};
  return BadInput("'{}': weights so large need a scale beyond f16 ({})", tensor, kLargestHalf);
}

Status HfTarget::Quantize(const StoredLinear& linear, MatrixView<const float> w,
                          const LinearInput& input, MatrixView<float> values) {
  std::string note;
  std::vector<std::byte> bytes;
  if (!Quantises(*linear.tensor)) {
    const FormatTraits& traits = TraitsOf(*linear.tensor->format);
    const size_t count = static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols);
    bytes.resize(traits.RowBytes(count));
    traits.encode(w.data, bytes.data(), count);
    traits.decode(bytes.data(), values.data, count);
  } else if (IsFp8(scheme_)) {
    const ScaleType type = scheme_.bf16_scales ? ScaleType::kBf16 : ScaleType::kF16;
    const Granularity granularity =
        scheme_.tensor_scale ? Granularity::kTensor : Granularity::kChannel;
    NIBBLE_TRY(const Fp8Matrix matrix, QuantizeFp8(w, granularity, type, *pool_));
    NIBBLE_RETURN_IF_ERROR(CheckScales(matrix.scales, type, linear.tensor->name));
    Dequantize(matrix, values);
    bytes = MatrixBytes(matrix);
  } else {
    NIBBLE_TRY(const GroupedMatrix matrix, Codes(w, input, note));
    NIBBLE_RETURN_IF_ERROR(
        CheckScales(matrix.scales, GridOf(scheme_).scale_type, linear.tensor->name));
    Dequantize(matrix, values, *pool_);
    bytes = MatrixBytes(matrix);
  }
  const EncodeLoss loss = MeasureLoss(w, values, *pool_);
  NIBBLE_RETURN_IF_ERROR(CheckFiniteLoss(loss, linear.tensor->name, "this layout"));
  return store_->Put(linear.tensor->name, bytes, LossNote(loss, note));
}

Status HfTarget::PutVector(const SourceTensor& tensor, std::span<const float> values, bool norm) {
  if (store_->Find(tensor.name) != nullptr) return {};
  std::vector<float> own(values.begin(), values.end());
  for (float& value : own) value -= norm && plus_one_ ? 1.0F : 0.0F;
  const FormatTraits& traits = TraitsOf(*tensor.format);
  std::vector<std::byte> bytes(traits.RowBytes(own.size()));
  traits.encode(own.data(), bytes.data(), own.size());
  return store_->Put(tensor.name, bytes, LossNote({}, ""));
}

Result<std::vector<std::vector<std::byte>>> HfTarget::Encoded(const SourceTensor& tensor) const {
  NIBBLE_TRY(const std::vector<std::byte> bytes, ReadRecord(tensor));
  if (IsFp8(scheme_)) {
    NIBBLE_TRY(const Fp8Matrix matrix, ReadFp8Matrix(bytes));
    return EncodeHfLinear(scheme_, matrix);
  }
  NIBBLE_TRY(const GroupedMatrix matrix, ReadGroupedMatrix(bytes));
  return EncodeHfLinear(scheme_, matrix);
}

}  // namespace nibble
