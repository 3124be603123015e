#include "model/config/format_mix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

namespace nibble {
namespace {

// The layers at both ends, and every third between, matter most.
bool UseMoreBits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

Format Fallback(Format format) {
  switch (format) {
    case Format::kQ2K:
    case Format::kQ3K:
    case Format::kIq4Xs:
      return Format::kIq4Nl;
    case Format::kQ4K:
      return Format::kQ5_0;
    case Format::kQ5K:
      return Format::kQ5_1;
    case Format::kQ6K:
      return Format::kQ8_0;
    case Format::kW4G128:
      return Format::kW4G64;
    case Format::kW4G64:
      return Format::kW4G32;
    case Format::kW8G128:
      return Format::kW8G64;
    case Format::kW8G64:
      return Format::kW8G32;
    default:
      return Format::kF16;
  }
}

}  // namespace

const std::vector<FormatMix::Row>& FormatMix::Mixes() {
  static const std::vector<Row> mixes = {
      {"q2_k", Kind::kQ2K, Format::kQ2K},
      {"q2_k_s", Kind::kQ2KS, Format::kQ2K},
      {"q3_k_s", Kind::kQ3KS, Format::kQ3K},
      {"q3_k_m", Kind::kQ3KM, Format::kQ3K},
      {"q3_k_l", Kind::kQ3KL, Format::kQ3K},
      {"q4_k_s", Kind::kQ4KS, Format::kQ4K},
      {"q4_k_m", Kind::kQ4KM, Format::kQ4K},
      {"q5_k_s", Kind::kQ5KS, Format::kQ5K},
      {"q5_k_m", Kind::kQ5KM, Format::kQ5K},
      {"iq4_xs", Kind::kIq4, Format::kIq4Xs},
      {"iq4_nl", Kind::kIq4, Format::kIq4Nl},
      // Names that users of llama.cpp type for its medium mixes.
      {"q3_k", Kind::kQ3KM, Format::kQ3K},
      {"q4_k", Kind::kQ4KM, Format::kQ4K},
      {"q5_k", Kind::kQ5KM, Format::kQ5K},
  };
  return mixes;
}

Result<FormatMix> FormatMix::FromName(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  FormatMix mix;
  for (const Row& row : Mixes()) {
    if (row.name != lower) continue;
    mix.name_ = row.name;
    mix.kind_ = row.kind;
    mix.base_ = row.base;
    return mix;
  }
  if (const auto format = FormatFromName(lower)) {
    mix.base_ = *format;
    mix.name_ = TraitsOf(*format).name;
    return mix;
  }
  std::vector<std::string_view> known;  // some mixes have the name of their base
  for (const Row& row : Mixes()) known.push_back(row.name);
  for (const FormatTraits& traits : AllFormats()) {
    if (std::ranges::find(known, traits.name) == known.end()) known.push_back(traits.name);
  }
  return BadInput("unknown format '{}'; known: {}", name, fmt::join(known, " "));
}

Format FormatMix::WantedValue(const TensorPlace& place) const {
  switch (kind_) {
    case Kind::kQ2K:
      return place.query_groups >= 4 ? Format::kQ4K : Format::kQ3K;
    case Kind::kQ2KS:
      return place.query_groups >= 4 ? Format::kQ4K : base_;
    case Kind::kQ3KM:
      return place.layer < 2 ? Format::kQ5K : Format::kQ4K;
    case Kind::kQ3KL:
      return Format::kQ5K;
    case Kind::kQ4KS:
      return place.layer < 4 ? Format::kQ5K : base_;
    case Kind::kQ4KM:
    case Kind::kQ5KM:
      return UseMoreBits(place.layer, place.layers) ? Format::kQ6K : base_;
    case Kind::kIq4:
      return place.query_groups >= 4 ? Format::kQ5K : base_;
    default:
      return base_;
  }
}

Format FormatMix::WantedDown(const TensorPlace& place) const {
  const bool early = place.layer < place.layers / 8;
  switch (kind_) {
    case Kind::kPlain:
      // Theirs is a rough search: the first layers can go wrong under it.
      if (!has_importance_ || !early) return base_;
      if (base_ == Format::kQ4_0) return Format::kQ4_1;
      return base_ == Format::kQ5_0 ? Format::kQ5_1 : base_;
    case Kind::kQ2KS:
      return early ? Format::kQ4K : base_;
    case Kind::kQ2K:
      return Format::kQ3K;
    case Kind::kQ3KM:
      return place.layer < place.layers / 16 ? Format::kQ5K : Format::kQ4K;
    case Kind::kQ3KL:
      return Format::kQ5K;
    case Kind::kQ4KS:
      return early ? Format::kQ5K : base_;
    case Kind::kIq4:
      return early && !has_importance_ ? Format::kQ5K : base_;
    case Kind::kQ4KM:
    case Kind::kQ5KM:
      return UseMoreBits(place.layer, place.layers) ? Format::kQ6K : base_;
    default:
      return base_;
  }
}

Format FormatMix::Wanted(const TensorPlace& place) const {
  const bool plain_float = TraitsOf(base_).block_elements == 1;
  switch (place.role) {
    case TensorRole::kOutput:
      if (plain_float || base_ == Format::kQ8_0) return base_;
      return place.cols % 256 == 0 ? Format::kQ6K : Format::kQ8_0;
    case TensorRole::kAttnValue:
      return WantedValue(place);
    case TensorRole::kFfnDown:
      return WantedDown(place);
    case TensorRole::kAttnOutput:
      if (kind_ == Kind::kQ2K) return Format::kQ3K;
      if (kind_ == Kind::kQ3KM) return Format::kQ4K;
      return kind_ == Kind::kQ3KL ? Format::kQ5K : base_;
    default:
      return base_;
  }
}

Format FormatMix::For(const TensorPlace& place) const {
  Format format = Wanted(place);
  while (place.cols % TraitsOf(format).block_elements != 0) format = Fallback(format);
  return format;
}

}  // namespace nibble
