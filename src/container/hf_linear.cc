#include "container/hf_linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "container/hf_linear_values.h"
#include "container/packed_codes.h"
#include "format/grouped_quants.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr uint64_t kMaxSize = 1 << 30;  // of a dimension

Status CheckStoredType(const SourceTensor& tensor, std::initializer_list<std::string_view> types) {
  if (std::ranges::find(types, tensor.type_name) != types.end()) return {};
  return BadInput("tensor '{}': expected type {}, found {}", tensor.name, *types.begin(),
                  tensor.type_name);
}
Status CheckScaleType(const SourceTensor& tensor) {
  return CheckStoredType(tensor, {"F16", "BF16", "F32"});
}

Status CheckRank2(const SourceTensor& tensor) {
  if (tensor.rank == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0 &&
      tensor.shape[0] <= kMaxSize && tensor.shape[1] <= kMaxSize) {
    return {};
  }
  return BadInput("tensor '{}': expected a matrix, found {}", tensor.name, tensor.ShapeString());
}

Status CheckShape(const SourceTensor& tensor, uint64_t rows, uint64_t cols) {
  if (tensor.rank == 2 && tensor.shape[0] == rows && tensor.shape[1] == cols) return {};
  return BadInput("tensor '{}': expected {} x {}, found {}", tensor.name, rows, cols,
                  tensor.ShapeString());
}

Status Need(const SourceTensor* tensor, const SourceTensor& codes, std::string_view what) {
  if (tensor != nullptr) return {};
  return BadInput("tensor '{}' has no {}", codes.name, what);
}

// Groups of the inputs from the number of them and what the configuration says.
Status SetGroups(HfLinear& linear, uint64_t groups, int hint, const SourceTensor& scales) {
  const auto cols = static_cast<uint64_t>(linear.cols);
  linear.groups = static_cast<int>(groups);
  const auto wanted = static_cast<uint64_t>(std::max(hint, 0));
  if (wanted > 0 && (cols + wanted - 1) / wanted == groups) {
    linear.group = static_cast<int>(std::min(wanted, cols));
  } else if (groups > 0 && cols % groups == 0) {
    linear.group = static_cast<int>(cols / groups);
  } else {
    return BadInput("tensor '{}': {} groups do not divide {} inputs", scales.name, groups, cols);
  }
  return {};
}

// g_idx: the group of each input. Sorts the inputs by it; a group larger or smaller than the others
// leaves the linear to be decoded.
Status ReadGroupIndex(HfLinear& linear) {
  const SourceTensor& tensor = *linear.parts.groups;
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(tensor, {"I32"}));
  if (tensor.elements() != static_cast<uint64_t>(linear.cols)) {
    return BadInput("tensor '{}': expected {} numbers, found {}", tensor.name, linear.cols,
                    tensor.ShapeString());
  }
  std::vector<int32_t> index(static_cast<size_t>(linear.cols));
  std::memcpy(index.data(), tensor.bytes.data(), tensor.bytes.size());
  std::vector<int> sizes(static_cast<size_t>(linear.groups));
  bool sorted = true;
  for (size_t c = 0; c < index.size(); ++c) {
    const int32_t g = index[c];
    if (g < 0 || g >= linear.groups) {
      return BadInput("tensor '{}': input {} is in group {} of {}", tensor.name, c, g,
                      linear.groups);
    }
    ++sizes[static_cast<size_t>(g)];
    sorted = sorted && g == static_cast<int32_t>(c) / linear.group;
  }
  if (sorted) {
    linear.parts.groups = nullptr;
    return {};
  }
  const bool equal = std::ranges::all_of(sizes, [&](int size) { return size == linear.group; });
  if (!equal) return {};
  std::vector<int32_t> next(sizes.size());
  for (size_t g = 1; g < sizes.size(); ++g) next[g] = next[g - 1] + sizes[g - 1];
  linear.order.resize(index.size());
  for (size_t c = 0; c < index.size(); ++c) {
    linear.order[static_cast<size_t>(next[static_cast<size_t>(index[c])]++)] =
        static_cast<int32_t>(c);
  }
  return {};
}

Status ReadGptq(HfLinear& linear, const HfHints& hints) {
  const HfParts& parts = linear.parts;
  NIBBLE_RETURN_IF_ERROR(Need(parts.zeros, *parts.codes, "qzeros"));
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.codes, {"I32"}));
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.zeros, {"I32"}));
  NIBBLE_RETURN_IF_ERROR(CheckRank2(*parts.codes));
  NIBBLE_RETURN_IF_ERROR(CheckRank2(*parts.scales));
  const uint64_t rows = parts.codes->shape[1];
  const uint64_t words = parts.codes->shape[0];
  const uint64_t groups = parts.scales->shape[0];
  NIBBLE_RETURN_IF_ERROR(CheckShape(*parts.scales, groups, rows));
  const bool listed = parts.groups != nullptr;
  const auto inputs_of = [&](int bits) {
    return listed ? parts.groups->elements() : words * 32 / static_cast<uint64_t>(bits);
  };
  const auto fits = [&](int bits) {
    return parts.zeros->rank == 2 && parts.zeros->shape[0] == groups &&
           parts.zeros->shape[1] == PackedCodesView::Words(rows, bits) &&
           PackedCodesView::Words(inputs_of(bits), bits) == words && inputs_of(bits) > 0 &&
           inputs_of(bits) <= kMaxSize;
  };
  for (const int bits : {hints.bits, 4, 8, 3, 2}) {
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8) continue;
    if (!fits(bits)) continue;
    linear.bits = bits;
    linear.rows = static_cast<int>(rows);
    linear.cols = static_cast<int>(inputs_of(bits));
    NIBBLE_RETURN_IF_ERROR(SetGroups(linear, groups, hints.group, *parts.scales));
    return listed ? ReadGroupIndex(linear) : Status{};
  }
  return BadInput("tensor '{}' ({}) and '{}' ({}) fit no number of bits", parts.codes->name,
                  parts.codes->ShapeString(), parts.zeros->name, parts.zeros->ShapeString());
}

Status ReadAwq(HfLinear& linear, const HfHints& hints) {
  const HfParts& parts = linear.parts;
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.codes, {"I32"}));
  NIBBLE_RETURN_IF_ERROR(CheckRank2(*parts.codes));
  NIBBLE_RETURN_IF_ERROR(CheckRank2(*parts.scales));
  linear.bits = 4;
  if (parts.codes->shape[1] > kMaxSize / 8) {
    return BadInput("tensor '{}': {} is too large", parts.codes->name, parts.codes->ShapeString());
  }
  const uint64_t rows = parts.codes->shape[1] * 8;
  const uint64_t groups = parts.scales->shape[0];
  linear.rows = static_cast<int>(rows);
  linear.cols = static_cast<int>(parts.codes->shape[0]);
  NIBBLE_RETURN_IF_ERROR(CheckShape(*parts.scales, groups, rows));
  if (parts.zeros != nullptr) {
    NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.zeros, {"I32"}));
    NIBBLE_RETURN_IF_ERROR(CheckShape(*parts.zeros, groups, rows / 8));
  }
  return SetGroups(linear, groups, hints.group, *parts.scales);
}

Status ReadPacked(HfLinear& linear, const HfHints& hints) {
  const HfParts& parts = linear.parts;
  NIBBLE_RETURN_IF_ERROR(Need(parts.shape, *parts.codes, "weight_shape"));
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.codes, {"I32"}));
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.shape, {"I64", "I32"}));
  NIBBLE_RETURN_IF_ERROR(CheckRank2(*parts.codes));
  NIBBLE_RETURN_IF_ERROR(CheckRank2(*parts.scales));
  if (parts.shape->elements() != 2) {
    return BadInput("tensor '{}': expected two numbers, found {}", parts.shape->name,
                    parts.shape->ShapeString());
  }
  uint64_t shape[2] = {};
  const size_t number = parts.shape->bytes.size() / 2;
  for (size_t i = 0; i < 2; ++i) {
    std::memcpy(&shape[i], parts.shape->bytes.data() + i * number, number);
  }
  const uint64_t rows = parts.codes->shape[0];
  const uint64_t words = parts.codes->shape[1];
  if (shape[0] != rows || shape[1] == 0 || shape[1] > kMaxSize) {
    return BadInput("tensor '{}' says {} x {}, and '{}' is {}", parts.shape->name, shape[0],
                    shape[1], parts.codes->name, parts.codes->ShapeString());
  }
  linear.rows = static_cast<int>(rows);
  linear.cols = static_cast<int>(shape[1]);
  linear.bits = 0;
  for (const int bits : {hints.bits, 4, 8, 2, 3, 5, 6, 7}) {
    if (bits < 2 || bits > 8 || PackedCodesView::Words(shape[1], bits) != words) continue;
    linear.bits = bits;
    break;
  }
  if (linear.bits == 0) {
    return BadInput("tensor '{}': {} words hold no {} codes", parts.codes->name, words, shape[1]);
  }
  const uint64_t groups = parts.scales->shape[1];
  NIBBLE_RETURN_IF_ERROR(CheckShape(*parts.scales, rows, groups));
  NIBBLE_RETURN_IF_ERROR(SetGroups(linear, groups, hints.group, *parts.scales));
  if (parts.zeros != nullptr) {
    NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.zeros, {"I32"}));
    NIBBLE_RETURN_IF_ERROR(
        CheckShape(*parts.zeros, PackedCodesView::Words(rows, linear.bits), groups));
  }
  return parts.groups != nullptr ? ReadGroupIndex(linear) : Status{};
}

// Bytes of their own: int8 or FP8, with one scale, one a row, one a group or one a block.
Status ReadBytes(HfLinear& linear, const HfHints& hints) {
  const HfParts& parts = linear.parts;
  const bool floats = linear.layout == HfLayout::kFloatQuantized;
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.codes, {floats ? "F8_E4M3" : "I8"}));
  NIBBLE_RETURN_IF_ERROR(CheckRank2(*parts.codes));
  linear.bits = 8;
  const uint64_t rows = parts.codes->shape[0];
  const uint64_t cols = parts.codes->shape[1];
  linear.rows = static_cast<int>(rows);
  linear.cols = static_cast<int>(cols);
  linear.group = linear.cols;
  const SourceTensor& scales = *parts.scales;
  const uint64_t count = scales.elements();
  const auto blocks = [](uint64_t n, int block) {
    return (n + static_cast<uint64_t>(block) - 1) / static_cast<uint64_t>(block);
  };
  if (count == 1) {
    linear.block_rows = linear.rows;
  } else if (count == rows && (scales.rank == 1 || scales.shape[0] == rows)) {
    linear.block_rows = 1;
  } else if (scales.rank == 2 && scales.shape[0] == rows) {
    NIBBLE_RETURN_IF_ERROR(SetGroups(linear, scales.shape[1], hints.group, scales));
  } else if (floats && scales.rank == 2 && hints.block_rows > 0 && hints.block_cols > 0 &&
             scales.shape[0] == blocks(rows, hints.block_rows) &&
             scales.shape[1] == blocks(cols, hints.block_cols)) {
    linear.block_rows = hints.block_rows;
    linear.group = std::min(hints.block_cols, linear.cols);
    linear.groups = static_cast<int>(scales.shape[1]);
  } else {
    return BadInput("tensor '{}': scales of {} do not fit a matrix of {}", scales.name,
                    scales.ShapeString(), parts.codes->ShapeString());
  }
  if (parts.zeros == nullptr) return {};
  if (floats) return BadInput("tensor '{}': FP8 has no zeros", parts.zeros->name);
  NIBBLE_RETURN_IF_ERROR(CheckStoredType(*parts.zeros, {"I8"}));
  if (parts.zeros->elements() == count) return {};
  return BadInput("tensor '{}': expected {} zeros, found {}", parts.zeros->name, count,
                  parts.zeros->ShapeString());
}

int LargestBlock(int n) {
  for (const int block : {128, 64, 32}) {
    if (n % block == 0) return block;
  }
  return 0;
}

bool ExactInF16(float value) { return F16ToF32(F32ToF16(value)) == value; }

// Whether every scale, as it is or divided by its row's power of two, is exact in f16.
enum class F16Fit { kYes, kByRow, kNo };
F16Fit FitF16(const HfLinear& linear) {
  if (linear.parts.scales->type_name == "F16") return F16Fit::kYes;
  const HfValues values(linear);
  bool all = true;
  bool by_row = true;
  for (int r = 0; r < linear.rows && (all || by_row); ++r) {
    const float power = values.PowerOfRow(r);
    for (int g = 0; g < linear.groups; ++g) {
      const float scale = values.Scale(r, g);
      all = all && ExactInF16(scale);
      by_row = by_row && ExactInF16(scale / power);
    }
  }
  return all ? F16Fit::kYes : by_row ? F16Fit::kByRow : F16Fit::kNo;
}

void ChooseFormat(HfLinear& linear) {
  linear.format = Format::kF32;
  const bool floats = linear.layout == HfLayout::kFloatQuantized;
  const bool one_a_row =
      linear.groups == 1 && (linear.block_rows == 1 || linear.block_rows >= linear.rows);
  if (floats) {
    // Scales of f32 beside codes of 8 bits: narrower blocks would not be worth it.
    constexpr int kNarrowest = 16;
    if (!one_a_row && linear.group < kNarrowest) return;
    linear.format = Format::kF8E4M3;
    linear.row_scales = one_a_row;
    linear.block_scales = !one_a_row;
    return;
  }
  const int block = LargestBlock(one_a_row ? linear.cols : linear.group);
  const bool whole = linear.cols % linear.group == 0;
  const bool odd_groups = linear.parts.groups != nullptr && linear.order.empty();
  if (block == 0 || !whole || odd_groups) return;
  const F16Fit fit = one_a_row ? F16Fit::kByRow : FitF16(linear);
  if (fit == F16Fit::kNo) return;
  linear.row_scales = fit == F16Fit::kByRow;
  linear.format = GroupedFormat(linear.bits <= 4 ? 4 : 8, block);
}

}  // namespace

uint64_t HfLinear::StoredBytes() const {
  uint64_t bytes = 0;
  for (const SourceTensor* part :
       {parts.codes, parts.scales, parts.zeros, parts.groups, parts.shape}) {
    if (part != nullptr) bytes += part->bytes.size();
  }
  return bytes;
}

Result<HfLinear> ReadHfLinear(HfLayout layout, const HfParts& parts, const HfHints& hints) {
  HfLinear linear;
  linear.layout = layout;
  linear.parts = parts;
  NIBBLE_RETURN_IF_ERROR(Need(parts.scales, *parts.codes, "scales"));
  NIBBLE_RETURN_IF_ERROR(CheckScaleType(*parts.scales));
  Status status;
  switch (layout) {
    case HfLayout::kGptq:
    case HfLayout::kGptqV2:
      status = ReadGptq(linear, hints);
      break;
    case HfLayout::kAwq:
      status = ReadAwq(linear, hints);
      break;
    case HfLayout::kPackQuantized:
      status = ReadPacked(linear, hints);
      break;
    case HfLayout::kIntQuantized:
    case HfLayout::kFloatQuantized:
    case HfLayout::kLlmInt8:
      status = ReadBytes(linear, hints);
      break;
  }
  if (!status) return std::unexpected(status.error());
  ChooseFormat(linear);
  return linear;
}

}  // namespace nibble
