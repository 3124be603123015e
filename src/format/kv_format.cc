#include "format/kv_format.h"

#include <array>

#include "base/math.h"

namespace nibble {
namespace {

// clang-format off
constexpr std::array<KvFormatTraits, kKvFormatCount> kTraits = {{
    //                    bits  S  sealed_only integer page float
    {KvFormat::kF32,   "f32",   32, 1, false, false, {false, false}},
    {KvFormat::kF16,   "f16",   16, 1, false, false, {false, false}},
    {KvFormat::kFp8,   "fp8",    8, 1, true,  false, {true, true}},
    {KvFormat::kInt8,  "int8",   8, 1, true,  true,  {false, true}},
    {KvFormat::kInt4,  "int4",   4, 1, true,  true,  {false, true}},
    {KvFormat::kKivi4, "kivi4",  4, 4, true,  true,  {true, true}},
    {KvFormat::kKivi2, "kivi2",  2, 4, true,  true,  {true, true}},
}};
// clang-format on

constexpr bool InOrder() {
  for (size_t i = 0; i < kTraits.size(); ++i) {
    if (static_cast<size_t>(kTraits[i].format) != i) return false;
  }
  return true;
}
static_assert(InOrder());

constexpr size_t BlockBytes(KvFormat format, KvSide side, int head_dim) {
  const KvFormatTraits& traits = kTraits[static_cast<size_t>(format)];
  const auto dim = static_cast<size_t>(traits.integer ? RoundUp(head_dim, 16) : head_dim);
  const size_t codes = dim * kPageTokens * static_cast<size_t>(traits.code_bits) / 8;
  const auto groups = static_cast<size_t>(CeilDiv(head_dim, 32));
  switch (format) {
    case KvFormat::kInt8:
    case KvFormat::kInt4:
      return codes + size_t{2} * kPageTokens;
    case KvFormat::kKivi4:
    case KvFormat::kKivi2:
      return codes + 4 * (side == KvSide::kKeys ? dim : groups * kPageTokens);
    default:
      return codes;
  }
}

// Bits per value of docs/architecture.md §7, in hundredths, both sides, page floats included.
constexpr int CentiBits(KvFormat format, int head_dim) {
  const KvFormatTraits& traits = kTraits[static_cast<size_t>(format)];
  const size_t bytes = BlockBytes(format, KvSide::kKeys, head_dim) +
                       BlockBytes(format, KvSide::kValues, head_dim) +
                       4 * (size_t{traits.page_float[0]} + size_t{traits.page_float[1]});
  const auto values = static_cast<size_t>(2 * kPageTokens * head_dim);
  return static_cast<int>((bytes * 800 + values / 2) / values);
}
static_assert(CentiBits(KvFormat::kF16, 64) == 1600 && CentiBits(KvFormat::kF32, 128) == 3200);
static_assert(CentiBits(KvFormat::kFp8, 64) == 802 && CentiBits(KvFormat::kFp8, 128) == 801);
static_assert(CentiBits(KvFormat::kInt8, 64) == 826 && CentiBits(KvFormat::kInt8, 128) == 813);
static_assert(CentiBits(KvFormat::kInt4, 64) == 426 && CentiBits(KvFormat::kInt4, 128) == 413);
static_assert(CentiBits(KvFormat::kKivi4, 64) == 502 && CentiBits(KvFormat::kKivi4, 128) == 501);
static_assert(CentiBits(KvFormat::kKivi2, 64) == 302 && CentiBits(KvFormat::kKivi2, 128) == 301);

}  // namespace

const KvFormatTraits& TraitsOf(KvFormat format) { return kTraits[static_cast<size_t>(format)]; }

std::span<const KvFormatTraits> AllKvFormats() { return kTraits; }

std::optional<KvFormat> KvFormatFromName(std::string_view name) {
  for (const KvFormatTraits& traits : kTraits) {
    if (traits.name == name) return traits.format;
  }
  return std::nullopt;
}

size_t KvBlockBytes(KvFormat format, KvSide side, int head_dim) {
  return BlockBytes(format, side, head_dim);
}

}  // namespace nibble
