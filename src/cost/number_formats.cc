#include "cost/number_formats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "base/text.h"
#include "kv/storage/kv_storage.h"

namespace nibble {
namespace {

// Names of the literature and the format that stands for each where bytes are true.
struct Generic {
  std::string_view name;
  std::string_view format;
};
constexpr Generic kGeneric[] = {{"f32", "f32"},     {"f16", "f16"},   {"bf16", "bf16"},
                                {"fp8", "f8_e4m3"}, {"int8", "q8_0"}, {"int4", "q4_0"}};

// "q4_k_m", "w4g128", "bf16", "mxfp4": the first number is the bits of a code.
double BitsInName(std::string_view name) {
  const size_t digit = name.find_first_of("0123456789");
  int bits = 16;
  if (digit != name.npos) {
    std::from_chars(name.data() + digit, name.data() + name.size(), bits);
  }
  return bits;
}

// What the format's matrices are multiplied in where a device has a rate for it.
Arithmetic ArithmeticOf(const FormatMix& mix) {
  if (mix.name().starts_with("f8")) return Arithmetic::kFp8;
  const bool integer = TraitsOf(mix.For({.cols = 256})).activation_group > 0;
  return integer ? Arithmetic::kInt8 : Arithmetic::kBf16;
}

Result<KvFormat> ParseSide(std::string_view name) {
  if (name == "bf16") return KvFormat::kF16;  // the same bytes
  if (const auto format = KvFormatFromName(name)) return *format;
  std::string known = "bf16";
  for (const KvFormatTraits& traits : AllKvFormats()) known += ", " + std::string(traits.name);
  return BadInput("expected one of {}, or two of them as KEYS/VALUES, found '{}'", known,
                  name.substr(0, 64));
}

}  // namespace

std::vector<std::string_view> GenericWeightFormats() {
  std::vector<std::string_view> names;
  for (const Generic& one : kGeneric) names.push_back(one.name);
  return names;
}

Result<WeightFormat> ParseWeightFormat(std::string_view name) {
  WeightFormat format{.name = AsciiLower(name.substr(0, 64)), .mix = {}};
  if (format.name == "own") return format;
  const auto* const generic = std::ranges::find(kGeneric, format.name, &Generic::name);
  format.generic = generic != std::end(kGeneric);
  const auto mix = FormatMix::FromName(format.generic ? generic->format : format.name);
  if (!mix) {
    return BadInput(
        "'{}' is no weight format; known: {}, own, or a format or mix of quantize --to "
        "such as q4_k_m, q8_0, mxfp4",
        name.substr(0, 64), fmt::join(GenericWeightFormats(), ", "));
  }
  format.mix = *mix;
  format.nominal_bits = BitsInName(format.name);
  format.arithmetic = ArithmeticOf(*mix);
  return format;
}

Result<KvChoice> ParseKvChoice(std::string_view name) {
  KvChoice choice{.name = AsciiLower(name.substr(0, 64)), .formats = {}};
  const std::string_view text = choice.name;
  const size_t slash = text.find('/');
  NIBBLE_TRY(choice.formats.k, ParseSide(text.substr(0, slash)));
  choice.formats.v = choice.formats.k;
  if (slash != text.npos) {
    NIBBLE_TRY(choice.formats.v, ParseSide(text.substr(slash + 1)));
  }
  return choice;
}

Bytes BytesOf(const WeightGroup& group, const WeightFormat& format, Counting counting) {
  if (!format.mix) return group.own;
  if (counting == Counting::kNominal) return Bytes(group.weights * format.nominal_bits / 8);
  const FormatTraits& plain = TraitsOf(format.mix->For({.cols = 256}));
  // Norms and biases are floats; where all weights are 16-bit ones, of that kind.
  double bits = plain.block_elements == 1 && plain.block_bytes >= 2 ? plain.BitsPerWeight() : 32;
  if (group.use != WeightUse::kVector) {
    bits = TraitsOf(format.mix->For(group.place)).BitsPerWeight();
  }
  return Bytes(group.weights * bits / 8);
}

Result<KvCost> KvCost::Create(const ModelShape& shape, const KvChoice& choice, Counting counting) {
  KvCost cost;
  cost.counting_ = counting;
  NIBBLE_TRY(cost.groups_, MakeKvGroups(shape.config, choice.formats));
  for (const KvGroup& group : cost.groups_) {
    Layers layers{.window = group.window, .per_token = {}};
    if (counting == Counting::kTrue) {
      const KvGroup one[] = {group};
      layers.per_token = Bytes(static_cast<double>(KvBytesPerToken(one)));
    } else {
      const double bits = TraitsOf(group.sealed.k).code_bits + TraitsOf(group.sealed.v).code_bits;
      const double values =
          static_cast<double>(group.layers.size()) * group.sealed.kv_heads * group.sealed.head_dim;
      layers.per_token = Bytes(values * bits / 8);
    }
    cost.per_token_ += layers.per_token;
    cost.layers_.push_back(layers);
  }
  return cost;
}

Bytes KvCost::Read(int context) const {
  if (counting_ == Counting::kTrue) return Bytes(KvBytesRead(groups_, context));
  return Held(context + 1);
}

Bytes KvCost::ReadBy(int first, int rows) const {
  const int last = first + rows;
  Bytes sum = Read(last - 1);
  if (rows == 1) return sum;
  for (const Layers& one : layers_) {
    if (one.window == 0) continue;
    // The last row sees a window; those before it see as many more as they are.
    sum += one.per_token * (std::min(last, one.window + rows - 1) - std::min(last, one.window));
  }
  return sum;
}

Bytes KvCost::Held(int tokens) const {
  if (counting_ == Counting::kTrue) {
    return Bytes(static_cast<double>(KvBytesHeld(groups_, tokens)));
  }
  Bytes sum;
  for (const Layers& one : layers_) {
    sum += one.per_token * (one.window == 0 ? tokens : std::min(tokens, one.window));
  }
  return sum;
}

std::optional<Tokens> KvCost::Crossover(Bytes weights, int batch) const {
  // Bytes over tokens rise in straight pieces that end at the windows.
  std::vector<double> ends = {std::numeric_limits<double>::infinity()};
  for (const Layers& one : layers_) {
    if (one.window > 0) ends.push_back(one.window);
  }
  std::ranges::sort(ends);
  const Bytes wanted = weights / batch;
  double from = 0;
  Bytes there;
  for (const double end : ends) {
    Bytes slope;
    for (const Layers& one : layers_) {
      if (one.window == 0 || one.window >= end) slope += one.per_token;
    }
    if (slope.value > 0) {
      const double at = from + (wanted - there) / slope;
      if (at <= end) return Tokens(at * batch);
      there += slope * (end - from);
    }
    from = end;
  }
  return std::nullopt;
}

}  // namespace nibble
