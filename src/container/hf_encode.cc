#include <cmath>
#include <cstring>

#include "base/math.h"
#include "container/hf_scheme.h"
#include "container/packed_codes.h"
#include "format/small_float.h"

namespace nibble {
namespace {

using Bytes = std::vector<std::byte>;

// Scales of one type. Error: one that the type does not hold.
Result<Bytes> EncodeScales(const HfScheme& scheme, std::span<const float> scales) {
  Bytes out(scales.size() * sizeof(uint16_t));
  for (size_t i = 0; i < scales.size(); ++i) {
    const float scale = scales[i];
    if (!std::isfinite(scale) || RoundHfScale(scheme, scale) != scale) {
      return BadInput("scale {}: {} is not exact in {}", i, scale,
                      scheme.bf16_scales ? "bf16" : "f16");
    }
    const uint16_t half = scheme.bf16_scales ? F32ToBF16(scale) : F32ToF16(scale);
    std::memcpy(out.data() + i * sizeof half, &half, sizeof half);
  }
  return out;
}

// [rows][groups] to [groups][rows], as GPTQ and AWQ have it.
template <class T>
std::vector<T> Transposed(std::span<const T> values, int rows, int groups) {
  std::vector<T> out(values.size());
  const auto r_count = static_cast<size_t>(rows);
  const auto g_count = static_cast<size_t>(groups);
  for (size_t r = 0; r < r_count; ++r) {
    for (size_t g = 0; g < g_count; ++g) out[g * r_count + r] = values[r * g_count + g];
  }
  return out;
}

Bytes WordBytes(uint64_t words) { return Bytes(words * sizeof(uint32_t)); }

Bytes Int32Bytes(std::span<const int32_t> values) {
  Bytes out(values.size_bytes());
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

}  // namespace

Status CheckGroupedMatrix(const HfScheme& scheme, const GroupedMatrix& m) {
  NIBBLE_RETURN_IF_ERROR(CheckHfLinear(scheme, m.rows, m.cols));
  const int group = scheme.group == 0 ? m.cols : scheme.group;
  if (m.bits != scheme.bits || m.group != group || m.symmetric != scheme.symmetric) {
    return BadInput("a matrix of {} bits in {} groups of {} does not fit the scheme", m.bits,
                    m.symmetric ? "symmetric" : "asymmetric", m.group);
  }
  const auto cols = static_cast<size_t>(m.cols);
  const auto rows = static_cast<size_t>(m.rows);
  const size_t scales = rows * static_cast<size_t>(m.groups());
  if (m.codes.size() != rows * cols || m.scales.size() != scales || m.zeros.size() != scales ||
      (!m.group_of.empty() && m.group_of.size() != cols)) {
    return BadInput("a matrix of {} x {} has {} codes, {} scales, {} zeros", m.rows, m.cols,
                    m.codes.size(), m.scales.size(), m.zeros.size());
  }
  if (!m.group_of.empty() && !scheme.act_order) {
    return BadInput("groups in another order: expected a scheme with act_order");
  }
  const auto largest = static_cast<uint8_t>((1 << m.bits) - 1);
  for (const auto* numbers : {&m.codes, &m.zeros}) {
    for (const uint8_t number : *numbers) {
      if (number > largest)
        return BadInput("code or zero {} has more than {} bits", number, m.bits);
    }
  }
  for (const int32_t g : m.group_of) {
    if (g < 0 || g >= m.groups()) return BadInput("group {} of {} groups", g, m.groups());
  }
  return {};
}

namespace {

std::vector<int32_t> GroupIndex(const GroupedMatrix& m) {
  if (!m.group_of.empty()) return m.group_of;
  std::vector<int32_t> index(static_cast<size_t>(m.cols));
  for (int c = 0; c < m.cols; ++c) index[static_cast<size_t>(c)] = c / m.group;
  return index;
}

// GPTQ: codes down the inputs, zeros along the outputs; v1 stores a zero minus one, wrapped.
Result<std::vector<Bytes>> EncodeGptq(const HfScheme& scheme, const GroupedMatrix& m) {
  const auto rows = static_cast<size_t>(m.rows);
  const auto cols = static_cast<size_t>(m.cols);
  const auto groups = static_cast<size_t>(m.groups());
  Bytes qweight = WordBytes(PackedCodesView::Words(cols, m.bits) * rows);
  for (size_t r = 0; r < rows; ++r) {
    PackedCodes column(qweight.data() + r * sizeof(uint32_t), rows, m.bits);
    for (size_t c = 0; c < cols; ++c) column.Put(c, m.codes[r * cols + c]);
  }
  const uint64_t zero_words = PackedCodesView::Words(rows, m.bits);
  Bytes qzeros = WordBytes(groups * zero_words);
  const uint32_t offset = scheme.layout == HfLayout::kGptq ? 1 : 0;
  const uint32_t mask = (1U << m.bits) - 1;
  for (size_t g = 0; g < groups; ++g) {
    PackedCodes line(qzeros.data() + g * zero_words * sizeof(uint32_t), 1, m.bits);
    for (size_t r = 0; r < rows; ++r) line.Put(r, (m.zeros[r * groups + g] - offset) & mask);
  }
  const std::vector<float> scales = Transposed<float>(m.scales, m.rows, m.groups());
  NIBBLE_TRY(Bytes scale_bytes, EncodeScales(scheme, scales));
  return std::vector{std::move(qweight), std::move(qzeros), std::move(scale_bytes),
                     Int32Bytes(GroupIndex(m))};
}

// AWQ: one word holds the codes of eight outputs of one input.
Result<std::vector<Bytes>> EncodeAwq(const HfScheme& scheme, const GroupedMatrix& m) {
  const auto rows = static_cast<size_t>(m.rows);
  const auto cols = static_cast<size_t>(m.cols);
  const auto groups = static_cast<size_t>(m.groups());
  const auto place = [](size_t r) { return r / 8 * 8 + static_cast<size_t>(kAwqNibble[r % 8]); };
  Bytes qweight = WordBytes(cols * rows / 8);
  for (size_t c = 0; c < cols; ++c) {
    PackedCodes line(qweight.data() + c * rows / 2, 1, 4);
    for (size_t r = 0; r < rows; ++r) line.Put(place(r), m.codes[r * cols + c]);
  }
  Bytes qzeros = WordBytes(groups * rows / 8);
  for (size_t g = 0; g < groups; ++g) {
    PackedCodes line(qzeros.data() + g * rows / 2, 1, 4);
    for (size_t r = 0; r < rows; ++r) line.Put(place(r), m.zeros[r * groups + g]);
  }
  const std::vector<float> scales = Transposed<float>(m.scales, m.rows, m.groups());
  NIBBLE_TRY(Bytes scale_bytes, EncodeScales(scheme, scales));
  return std::vector{std::move(qweight), std::move(qzeros), std::move(scale_bytes)};
}

// compressed-tensors: codes along the inputs, zeros along the outputs (its dimension 0).
Result<std::vector<Bytes>> EncodePacked(const HfScheme& scheme, const GroupedMatrix& m) {
  const auto rows = static_cast<size_t>(m.rows);
  const auto cols = static_cast<size_t>(m.cols);
  const auto groups = static_cast<size_t>(m.groups());
  const uint64_t words = PackedCodesView::Words(cols, m.bits);
  Bytes packed = WordBytes(rows * words);
  for (size_t r = 0; r < rows; ++r) {
    PackedCodes line(packed.data() + r * words * sizeof(uint32_t), 1, m.bits);
    for (size_t c = 0; c < cols; ++c) line.Put(c, m.codes[r * cols + c]);
  }
  NIBBLE_TRY(Bytes scale_bytes, EncodeScales(scheme, m.scales));
  const int64_t shape[2] = {m.rows, m.cols};
  Bytes shape_bytes(sizeof shape);
  std::memcpy(shape_bytes.data(), shape, sizeof shape);
  std::vector out{std::move(packed), std::move(scale_bytes), std::move(shape_bytes)};
  if (!m.symmetric) {
    Bytes zeros = WordBytes(PackedCodesView::Words(rows, m.bits) * groups);
    for (size_t g = 0; g < groups; ++g) {
      PackedCodes column(zeros.data() + g * sizeof(uint32_t), groups, m.bits);
      for (size_t r = 0; r < rows; ++r) column.Put(r, m.zeros[r * groups + g]);
    }
    out.push_back(std::move(zeros));
  }
  if (scheme.act_order) out.push_back(Int32Bytes(GroupIndex(m)));
  return out;
}

// The SCB whose 127th part is the scale: one exists where the scale was made so.
Result<Bytes> EncodeScb(std::span<const float> scales) {
  Bytes out(scales.size() * sizeof(float));
  for (size_t i = 0; i < scales.size(); ++i) {
    float scb = scales[i] * 127.0F;
    if (scb / 127.0F > scales[i]) scb = std::nextafter(scb, 0.0F);
    if (scb / 127.0F < scales[i]) scb = std::nextafter(scb, HUGE_VALF);
    if (!std::isfinite(scb) || scb / 127.0F != scales[i]) {
      return BadInput("scale {}: {} is no 127th part of an f32", i, scales[i]);
    }
    std::memcpy(out.data() + i * sizeof scb, &scb, sizeof scb);
  }
  return out;
}

Result<std::vector<Bytes>> EncodeInt8(const HfScheme& scheme, const GroupedMatrix& m) {
  Bytes codes(m.codes.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::byte>(m.codes[i] ^ 0x80);  // 128 is zero
  }
  const bool scb = scheme.layout == HfLayout::kLlmInt8;
  NIBBLE_TRY(Bytes scale_bytes, scb ? EncodeScb(m.scales) : EncodeScales(scheme, m.scales));
  return std::vector{std::move(codes), std::move(scale_bytes)};
}

}  // namespace

std::string_view HfLayoutName(HfLayout layout) {
  switch (layout) {
    case HfLayout::kGptq:
      return "gptq";
    case HfLayout::kGptqV2:
      return "gptq_v2";
    case HfLayout::kAwq:
      return "awq";
    case HfLayout::kPackQuantized:
      return "pack-quantized";
    case HfLayout::kIntQuantized:
      return "int-quantized";
    case HfLayout::kFloatQuantized:
      return "float-quantized";
    case HfLayout::kLlmInt8:
      return "bitsandbytes";
  }
  return {};
}

float RoundHfScale(const HfScheme& scheme, float scale) {
  if (scheme.layout == HfLayout::kLlmInt8) return scale * 127.0F / 127.0F;
  return scheme.bf16_scales ? BF16ToF32(F32ToBF16(scale)) : F16ToF32(F32ToF16(scale));
}

Status CheckHfLinear(const HfScheme& scheme, int rows, int cols) {
  if (rows < 1 || cols < 1) return BadInput("a matrix of {} x {} is empty", rows, cols);
  const bool gptq = scheme.layout == HfLayout::kGptq || scheme.layout == HfLayout::kGptqV2;
  const auto whole = [](int count, int bits) { return int64_t{count} * bits % 32 == 0; };
  switch (scheme.layout) {
    case HfLayout::kGptq:
    case HfLayout::kGptqV2:
      if (scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8) {
        return BadInput("GPTQ stores codes of 2, 3, 4 or 8 bits, not {}", scheme.bits);
      }
      if (scheme.bf16_scales) return BadInput("GPTQ stores its scales in f16");
      break;
    case HfLayout::kAwq:
      if (scheme.bits != 4) return BadInput("AWQ stores codes of 4 bits, not {}", scheme.bits);
      if (scheme.act_order) return BadInput("AWQ has no order of its own for groups");
      if (scheme.bf16_scales) return BadInput("AWQ stores its scales in f16");
      break;
    case HfLayout::kPackQuantized:
      if (scheme.bits != 4 && scheme.bits != 8) {
        return BadInput("pack-quantized stores codes of 4 or 8 bits, not {}", scheme.bits);
      }
      break;
    case HfLayout::kIntQuantized:
    case HfLayout::kLlmInt8:
      if (scheme.bits != 8 || scheme.group != 0 || !scheme.symmetric || scheme.act_order) {
        return BadInput("{} stores symmetric codes of 8 bits with one scale a row",
                        HfLayoutName(scheme.layout));
      }
      return {};
    case HfLayout::kFloatQuantized:
      return {};
  }
  if (!whole(cols, scheme.bits) && scheme.layout != HfLayout::kAwq) {
    return BadInput("{} inputs of {} bits do not fill whole words of 32 bits", cols, scheme.bits);
  }
  const bool zeros_along_rows = gptq || scheme.layout == HfLayout::kAwq || !scheme.symmetric;
  if (zeros_along_rows && !whole(rows, scheme.bits)) {
    return BadInput("{} outputs of {} bits do not fill whole words of 32 bits", rows, scheme.bits);
  }
  if (scheme.group < 0 || (scheme.group > 0 && cols % scheme.group != 0)) {
    return BadInput("{} inputs are not whole groups of {}", cols, scheme.group);
  }
  return {};
}

std::vector<HfTensor> HfLinearTensors(const HfScheme& scheme, std::string_view module, int rows,
                                      int cols) {
  const std::string prefix = std::string(module) + ".";
  const auto out = static_cast<uint64_t>(rows);
  const auto in = static_cast<uint64_t>(cols);
  const uint64_t groups = scheme.group == 0 ? 1 : in / static_cast<uint64_t>(scheme.group);
  const auto words = [&](uint64_t count) { return PackedCodesView::Words(count, scheme.bits); };
  const std::string_view half = scheme.bf16_scales ? "BF16" : "F16";
  std::vector<HfTensor> tensors;
  switch (scheme.layout) {
    case HfLayout::kGptq:
    case HfLayout::kGptqV2:
      return {{prefix + "qweight", "I32", {words(in), out}},
              {prefix + "qzeros", "I32", {groups, words(out)}},
              {prefix + "scales", "F16", {groups, out}},
              {prefix + "g_idx", "I32", {in}}};
    case HfLayout::kAwq:
      return {{prefix + "qweight", "I32", {in, out / 8}},
              {prefix + "qzeros", "I32", {groups, out / 8}},
              {prefix + "scales", "F16", {groups, out}}};
    case HfLayout::kPackQuantized:
      tensors = {{prefix + "weight_packed", "I32", {out, words(in)}},
                 {prefix + "weight_scale", half, {out, groups}},
                 {prefix + "weight_shape", "I64", {2}}};
      if (!scheme.symmetric) {
        tensors.push_back({prefix + "weight_zero_point", "I32", {words(out), groups}});
      }
      if (scheme.act_order) tensors.push_back({prefix + "weight_g_idx", "I32", {in}});
      return tensors;
    case HfLayout::kIntQuantized:
      return {{prefix + "weight", "I8", {out, in}}, {prefix + "weight_scale", half, {out, 1}}};
    case HfLayout::kLlmInt8:
      return {{prefix + "weight", "I8", {out, in}}, {prefix + "SCB", "F32", {out}}};
    case HfLayout::kFloatQuantized:
      tensors = {{prefix + "weight", "F8_E4M3", {out, in}},
                 {prefix + "weight_scale", half, {out, 1}}};
      if (scheme.tensor_scale) tensors[1].shape = {1};
      return tensors;
  }
  return tensors;
}

Result<std::vector<Bytes>> EncodeHfLinear(const HfScheme& scheme, const GroupedMatrix& matrix) {
  NIBBLE_RETURN_IF_ERROR(CheckGroupedMatrix(scheme, matrix));
  switch (scheme.layout) {
    case HfLayout::kGptq:
    case HfLayout::kGptqV2:
      return EncodeGptq(scheme, matrix);
    case HfLayout::kAwq:
      return EncodeAwq(scheme, matrix);
    case HfLayout::kPackQuantized:
      return EncodePacked(scheme, matrix);
    case HfLayout::kIntQuantized:
    case HfLayout::kLlmInt8:
      return EncodeInt8(scheme, matrix);
    case HfLayout::kFloatQuantized:
      break;
  }
  return BadInput("float-quantized stores FP8 codes, not integers");
}

Result<std::vector<Bytes>> EncodeHfLinear(const HfScheme& scheme, const Fp8Matrix& matrix) {
  if (scheme.layout != HfLayout::kFloatQuantized) {
    return BadInput("{} stores integers, not FP8 codes", HfLayoutName(scheme.layout));
  }
  NIBBLE_RETURN_IF_ERROR(CheckHfLinear(scheme, matrix.rows, matrix.cols));
  const auto rows = static_cast<size_t>(matrix.rows);
  const size_t scales = scheme.tensor_scale ? 1 : rows;
  if (matrix.codes.size() != rows * static_cast<size_t>(matrix.cols) ||
      matrix.scales.size() != scales) {
    return BadInput("a matrix of {} x {} has {} codes and {} scales", matrix.rows, matrix.cols,
                    matrix.codes.size(), matrix.scales.size());
  }
  NIBBLE_TRY(Bytes scale_bytes, EncodeScales(scheme, matrix.scales));
  Bytes codes(matrix.codes.size());
  std::memcpy(codes.data(), matrix.codes.data(), codes.size());
  return std::vector{std::move(codes), std::move(scale_bytes)};
}

}  // namespace nibble
