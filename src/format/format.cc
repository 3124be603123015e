#include "format/format.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "format/fp4.h"
#include "format/grouped_quants.h"
#include "format/iq4.h"
#include "format/kquants.h"
#include "format/legacy_quants.h"
#include "format/plain_formats.h"

namespace nibble {
namespace {

constexpr std::array<FormatTraits, kFormatCount> kTable = {
    kF32Traits,   kF16Traits,    kBF16Traits,  kF8E4M3Traits, kF8E5M2Traits,
    kQ4_0Traits,  kQ4_1Traits,   kQ5_0Traits,  kQ5_1Traits,   kQ8_0Traits,
    kQ2KTraits,   kQ3KTraits,    kQ4KTraits,   kQ5KTraits,    kQ6KTraits,
    kIq4NlTraits, kIq4XsTraits,  kMxfp4Traits, kNvfp4Traits,  kW4G32Traits,
    kW4G64Traits, kW4G128Traits, kW8G32Traits, kW8G64Traits,  kW8G128Traits,
};

constexpr bool TableInOrder() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].format) != i) return false;
  }
  return true;
}
static_assert(TableInOrder(), "rows lie in the order of the enum");

struct TypeName {
  uint32_t type;
  std::string_view name;
};
constexpr TypeName kUnsupported[] = {
    {4, "Q4_2"},    {5, "Q4_3"},        {9, "Q8_1"},        {15, "Q8_K"},       {16, "IQ2_XXS"},
    {17, "IQ2_XS"}, {18, "IQ3_XXS"},    {19, "IQ1_S"},      {21, "IQ3_S"},      {22, "IQ2_S"},
    {24, "I8"},     {25, "I16"},        {26, "I32"},        {27, "I64"},        {28, "F64"},
    {29, "IQ1_M"},  {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},
    {35, "TQ2_0"},  {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {41, "Q1_0"},
    {42, "Q2_0"},
};

constexpr char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

const FormatTraits& TraitsOf(Format format) {
  const auto index = static_cast<size_t>(format);
  NIBBLE_CHECK(index < kTable.size());
  return kTable[index];
}

std::span<const FormatTraits> AllFormats() { return kTable; }

std::optional<Format> FormatFromGguf(uint32_t type) {
  for (const FormatTraits& traits : kTable) {
    if (traits.gguf_type == type) return traits.format;
  }
  return std::nullopt;
}

std::optional<Format> FormatFromName(std::string_view name) {
  for (const FormatTraits& traits : kTable) {
    if (std::ranges::equal(traits.name, name, {}, {}, Lower)) return traits.format;
  }
  return std::nullopt;
}

std::string_view UnsupportedGgufTypeName(uint32_t type) {
  for (const TypeName& entry : kUnsupported) {
    if (entry.type == type) return entry.name;
  }
  return {};
}

}  // namespace nibble
