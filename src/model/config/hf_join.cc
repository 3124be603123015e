#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "format/format.h"
#include "model/config/hf_quantization.h"

namespace nibble {
namespace {

using Method = HfQuantization::Method;

// Tensors of a linear beside its codes, by the last part of their names.
constexpr std::string_view kPartNames[] = {
    "qzeros",
    "scales",
    "g_idx",
    "weight_scale",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
    "input_scale",
    "input_zero_point",
    "SCB",
    "weight_format",
};

class Joiner {
 public:
  Joiner(const TensorSource& stored, const HfQuantization& quantization)
      : stored_(stored), quantization_(quantization) {}

  Result<HfQuantizedTensors> Join();

 private:
  // The module whose codes a tensor holds; empty when it holds none.
  std::string_view ModuleOf(const SourceTensor& tensor) const;
  const SourceTensor* Part(std::string_view module, std::string_view name) const {
    return stored_.Find(std::string(module) + "." + std::string(name));
  }
  HfLayout LayoutOf(const SourceTensor& codes) const;
  HfParts PartsOf(const SourceTensor& codes, std::string_view module) const;
  Result<HfLinear> Read(const SourceTensor& codes, std::string_view module) const;
  Status ReadInput(std::string_view module, HfLinear& linear) const;

  const TensorSource& stored_;
  const HfQuantization& quantization_;
};

std::string_view Without(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return {};
  return name.substr(0, name.size() - suffix.size());
}

std::string_view Joiner::ModuleOf(const SourceTensor& tensor) const {
  switch (quantization_.method) {
    case Method::kGptq:
    case Method::kAwq:
      return Without(tensor.name, ".qweight");
    case Method::kLlmInt8:
      return tensor.type_name == "I8" ? Without(tensor.name, ".weight") : std::string_view();
    case Method::kF8:
    case Method::kCompressed:
      break;
  }
  if (tensor.type_name == "I32") return Without(tensor.name, ".weight_packed");
  if (tensor.type_name != "I8" && tensor.type_name != "F8_E4M3") return {};
  const std::string_view module = Without(tensor.name, ".weight");
  const bool scaled = !module.empty() && (Part(module, "weight_scale") != nullptr ||
                                          Part(module, "weight_scale_inv") != nullptr);
  return scaled ? module : std::string_view();
}

HfLayout Joiner::LayoutOf(const SourceTensor& codes) const {
  if (quantization_.method == Method::kGptq) {
    return quantization_.gptq_v2 ? HfLayout::kGptqV2 : HfLayout::kGptq;
  }
  if (quantization_.method == Method::kAwq) return HfLayout::kAwq;
  if (quantization_.method == Method::kLlmInt8) return HfLayout::kLlmInt8;
  if (codes.type_name == "I32") return HfLayout::kPackQuantized;
  return codes.type_name == "I8" ? HfLayout::kIntQuantized : HfLayout::kFloatQuantized;
}

HfParts Joiner::PartsOf(const SourceTensor& codes, std::string_view module) const {
  const auto part = [&](std::string_view name) { return Part(module, name); };
  HfParts parts;
  parts.codes = &codes;
  switch (LayoutOf(codes)) {
    case HfLayout::kGptq:
    case HfLayout::kGptqV2:
      parts.groups = part("g_idx");
      [[fallthrough]];
    case HfLayout::kAwq:
      parts.scales = part("scales");
      parts.zeros = part("qzeros");
      return parts;
    case HfLayout::kLlmInt8:
      parts.scales = part("SCB");
      return parts;
    case HfLayout::kPackQuantized:
      parts.groups = part("weight_g_idx");
      parts.shape = part("weight_shape");
      [[fallthrough]];
    case HfLayout::kIntQuantized:
    case HfLayout::kFloatQuantized:
      parts.scales = part("weight_scale");
      if (parts.scales == nullptr) parts.scales = part("weight_scale_inv");
      parts.zeros = part("weight_zero_point");
      return parts;
  }
  return parts;
}

Status Joiner::ReadInput(std::string_view module, HfLinear& linear) const {
  using Kind = HfInput::Kind;
  if (linear.input.kind != Kind::kInt8Static && linear.input.kind != Kind::kF8Static) return {};
  const SourceTensor* scale = Part(module, "input_scale");
  if (scale == nullptr) return BadInput("tensor '{}.input_scale' is missing", module);
  if (scale->elements() != 1 || !scale->format || TraitsOf(*scale->format).block_elements != 1) {
    return BadInput("tensor '{}': expected one float, found {} {}", scale->name, scale->type_name,
                    scale->ShapeString());
  }
  TraitsOf(*scale->format).decode(scale->bytes.data(), &linear.input.scale, 1);
  if (linear.input.scale > 0x1p-100F && linear.input.scale < 0x1p100F) return {};
  return BadInput("tensor '{}': expected a positive scale, found {}", scale->name,
                  linear.input.scale);
}

Result<HfLinear> Joiner::Read(const SourceTensor& codes, std::string_view module) const {
  NIBBLE_TRY(const HfQuantization::Rule* rule, quantization_.Find(module));
  const HfHints hints = rule != nullptr ? rule->hints : HfHints{};
  NIBBLE_TRY(HfLinear linear, ReadHfLinear(LayoutOf(codes), PartsOf(codes, module), hints));
  if (rule != nullptr) linear.input = rule->input;
  NIBBLE_RETURN_IF_ERROR(ReadInput(module, linear));
  const SourceTensor* zero = Part(module, "input_zero_point");
  if (zero != nullptr &&
      std::ranges::any_of(zero->bytes, [](std::byte b) { return b != std::byte{}; })) {
    return BadInput("tensor '{}': asymmetric activations are not supported", zero->name);
  }
  const SourceTensor* order = Part(module, "weight_format");
  if (order != nullptr &&
      std::ranges::any_of(order->bytes, [](std::byte b) { return b != std::byte{}; })) {
    return BadInput("tensor '{}': only rows in their own order (0) are supported", order->name);
  }
  return linear;
}

Result<HfQuantizedTensors> Joiner::Join() {
  HfQuantizedTensors out;
  std::set<std::string, std::less<>> modules;
  std::vector<SourceTensor> tensors;
  for (const SourceTensor& stored : stored_.tensors()) {
    const std::string_view module = ModuleOf(stored);
    if (module.empty()) {
      tensors.push_back(stored);
      continue;
    }
    NIBBLE_TRY(HfLinear linear, Read(stored, module));
    modules.emplace(module);
    out.linears.push_back(std::move(linear));
    out.names.push_back(std::string(module) + ".weight");
    SourceTensor joined;
    joined.name = out.names.back();
    joined.linear = &out.linears.back();
    joined.format = joined.linear->format;
    joined.type_name = TraitsOf(joined.linear->format).name;
    joined.rank = 2;
    joined.shape[0] = static_cast<uint64_t>(joined.linear->rows);
    joined.shape[1] = static_cast<uint64_t>(joined.linear->cols);
    joined.file = stored.file;
    tensors.push_back(joined);
  }
  std::erase_if(tensors, [&](const SourceTensor& tensor) {
    if (tensor.linear != nullptr) return false;
    return std::ranges::any_of(kPartNames, [&](std::string_view part) {
      const std::string_view parent = Without(tensor.name, part);
      return !parent.empty() && parent.back() == '.' &&
             modules.contains(parent.substr(0, parent.size() - 1));
    });
  });
  NIBBLE_TRY(out.source, TensorSource::Build(std::move(tensors)));
  return out;
}

}  // namespace

Result<HfQuantizedTensors> JoinHfLinears(const TensorSource& stored,
                                         const HfQuantization& quantization) {
  return Joiner(stored, quantization).Join();
}

}  // namespace nibble
