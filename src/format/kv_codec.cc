// The error bounds. s is the scale of a number, u = 2^-24, h = 2^-11 (half a unit of f16).
//
//   int8, int4  s = f16(a / n), a the token's largest magnitude, n = 127 or 7. Rounding to a code:
//   at
//               most s / 2; where s was rounded down, the largest numbers are clamped to n s: at
//               most a h, or n 2^-25 where s is subnormal.
//   fp8         s = a / 448, a the page's: 2^-4 relative, or 2^-10 s below the normal numbers.
//   kivi        c = round((x - low) / t), t = (high - low) / (2^b - 1): at most t / 2. The level is
//               then rounded to a unit U = a / 127, a the page's: half of it. kivi4 holds low and t
//               in units of U / 256, rounded: (1 + 15) / 512 U more.
// The arithmetic itself (a division, a product) adds a few u relative to a: 8 u a covers it.
#include "format/kv_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/math.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kRound = 12582912.0F;  // rounds to an integer, ties to even, when added

int RoundToInt(float x) { return static_cast<int>((x + kRound) - kRound); }

// Of one block: where codes and side data are.
class Block {
 public:
  Block(KvFormat format, KvSide side, int head_dim)
      : side_(side),
        bits_(TraitsOf(format).code_bits),
        per_byte_(8 / bits_),
        dim_(RoundUp(head_dim, 16)) {}

  size_t CodeBytes() const { return static_cast<size_t>(dim_) * kPageTokens / per_byte_; }

  unsigned Code(const std::byte* block, int j, int c) const {
    const Place place = At(j, c);
    return (std::to_integer<unsigned>(block[place.byte]) >> place.shift) & Mask();
  }
  void SetCode(std::byte* block, int j, int c, unsigned code) const {
    const Place place = At(j, c);
    block[place.byte] |= static_cast<std::byte>((code & Mask()) << place.shift);
  }

 private:
  struct Place {
    size_t byte;
    int shift;
  };
  unsigned Mask() const { return (1U << bits_) - 1; }
  // Quads of the reduction: channels of keys, tokens of values.
  Place At(int j, int c) const {
    const int reduced = side_ == KvSide::kKeys ? c : j;
    const int lane = side_ == KvSide::kKeys ? j : c;
    const int lanes = side_ == KvSide::kKeys ? kPageTokens : dim_;
    const int quad = reduced / 4;
    const int byte = (quad / per_byte_ * lanes + lane) * 4 + reduced % 4;
    return {static_cast<size_t>(byte), bits_ * (quad % per_byte_)};
  }

  KvSide side_;
  int bits_;
  int per_byte_;
  int dim_;
};

// Numbers that share a scale: channel `first` of all tokens (keys) or token j's channels
// [first, end) (values).
struct Group {
  int index = 0;  // of its four side bytes
  int j_begin = 0;
  int j_end = 0;
  int c_begin = 0;
  int c_end = 0;
};

template <class Visit>
void ForEachKiviGroup(KvSide side, int dim, Visit visit) {
  if (side == KvSide::kKeys) {
    for (int c = 0; c < dim; ++c) visit(Group{c, 0, kPageTokens, c, c + 1});
    return;
  }
  for (int g = 0; g < CeilDiv(dim, 32); ++g) {
    for (int j = 0; j < kPageTokens; ++j) {
      visit(Group{g * kPageTokens + j, j, j + 1, g * 32, std::min(dim, g * 32 + 32)});
    }
  }
}

template <class Visit>
void ForEachIn(const Group& group, Visit visit) {
  for (int j = group.j_begin; j < group.j_end; ++j) {
    for (int c = group.c_begin; c < group.c_end; ++c) visit(j, c);
  }
}

bool HasNan(const float* x, int n) {
  return std::any_of(x, x + n, [](float value) { return std::isnan(value); });
}

// NaN counts as 0: the scale tells.
float Number(float x) { return std::isnan(x) ? 0.0F : x; }

float Largest(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(Number(x[i])));
  return most;
}

void EncodeFp8(const float* x, int dim, KvSide side, std::byte* block, float* page_float,
               float given_scale) {
  const int n = kPageTokens * dim;
  const float scale = given_scale > 0 ? given_scale : Largest(x, n) / 448.0F;
  for (int j = 0; j < kPageTokens; ++j) {
    for (int c = 0; c < dim; ++c) {
      const float value = Number(x[j * dim + c]);
      const int at = side == KvSide::kKeys ? c * kPageTokens + j : j * dim + c;
      block[at] = std::byte{scale > 0 ? F32ToF8E4M3Saturating(value / scale) : uint8_t{0}};
    }
  }
  *page_float = HasNan(x, n) ? kNan : scale;
}

void EncodePerToken(KvFormat format, KvSide side, const float* x, int dim, std::byte* block,
                    float* page_float) {
  const Block codes(format, side, dim);
  const int limit = format == KvFormat::kInt8 ? 127 : 7;
  const int bias = format == KvFormat::kInt4 ? 8 : side == KvSide::kKeys ? 128 : 0;
  float largest = 0;
  for (int j = 0; j < kPageTokens; ++j) {
    const float* token = x + static_cast<ptrdiff_t>(j) * dim;
    uint16_t half = F32ToF16(Largest(token, dim) / static_cast<float>(limit));
    const float scale = F16ToF32(half);
    largest = std::max(largest, scale);
    for (int c = 0; c < RoundUp(dim, 16); ++c) {
      int code = 0;
      if (c < dim && scale > 0) {
        code = std::clamp(RoundToInt(Number(token[c]) / scale), -limit, limit);
      }
      codes.SetCode(block, j, c, static_cast<unsigned>(code + bias));
    }
    if (HasNan(token, dim)) half = F32ToF16(kNan);
    std::memcpy(block + codes.CodeBytes() + 2 * static_cast<size_t>(j), &half, 2);
  }
  if (side == KvSide::kValues) *page_float = largest;
}

// Side bytes of a kivi4 group: step and base, even members of the quad first.
struct KiviPlace {
  size_t step;
  size_t base;
};
KiviPlace PlaceOf(int index) {
  const int quad = index / 4;
  const int member = index % 4;
  const int slot = member % 2 * 2 + member / 2;  // 0 2 | 1 3
  return {static_cast<size_t>(quad * 16 + slot * 2), static_cast<size_t>(quad * 16 + 8 + slot * 2)};
}

// The integer levels of a group's codes, in units of the page float.
std::array<int, 16> LevelsOf(KvFormat format, KvSide side, const std::byte* sides, int index) {
  std::array<int, 16> levels{};
  if (format == KvFormat::kKivi2) {
    for (size_t i = 0; i < 4; ++i) {
      const auto byte = std::to_integer<uint8_t>(sides[4 * static_cast<size_t>(index) + i]);
      levels[i] = side == KvSide::kKeys ? byte - 128 : static_cast<int8_t>(byte);
    }
    return levels;
  }
  uint16_t step = 0;
  int16_t base = 0;
  std::memcpy(&step, sides + PlaceOf(index).step, 2);
  std::memcpy(&base, sides + PlaceOf(index).base, 2);
  for (int i = 0; i < 16; ++i) levels[static_cast<size_t>(i)] = (base + step * i) >> 8;
  return levels;
}

void StoreLevels(KvFormat format, KvSide side, float low, float step, std::byte* sides, int index) {
  if (format == KvFormat::kKivi2) {
    for (int i = 0; i < 4; ++i) {
      const int level = RoundToInt(std::fma(static_cast<float>(i), step, low));
      const int stored = std::clamp(level, -127, 127) + (side == KvSide::kKeys ? 128 : 0);
      sides[4 * index + i] = static_cast<std::byte>(stored);
    }
    return;
  }
  const auto fine = static_cast<uint16_t>(RoundToInt(step * 256.0F));
  const auto base = static_cast<int16_t>(RoundToInt(low * 256.0F) + 128);
  std::memcpy(sides + PlaceOf(index).step, &fine, 2);
  std::memcpy(sides + PlaceOf(index).base, &base, 2);
}

void EncodeKivi(KvFormat format, KvSide side, const float* x, int dim, std::byte* block,
                float* page_float) {
  const Block codes(format, side, dim);
  const int top = (1 << TraitsOf(format).code_bits) - 1;
  const int n = kPageTokens * dim;
  const float unit = Largest(x, n) / 127.0F;
  // Multiplied, not divided: what a vector form does too.
  const float inverse = unit > 0 ? 1.0F / unit : 0.0F;
  ForEachKiviGroup(side, dim, [&](const Group& group) {
    float low = std::numeric_limits<float>::infinity();
    float high = -low;
    ForEachIn(group, [&](int j, int c) {
      low = std::min(low, Number(x[j * dim + c]));
      high = std::max(high, Number(x[j * dim + c]));
    });
    const float step = (high - low) / static_cast<float>(top);
    const float per_step = step > 0 ? 1.0F / step : 0.0F;
    ForEachIn(group, [&](int j, int c) {
      const int code = RoundToInt((Number(x[j * dim + c]) - low) * per_step);
      codes.SetCode(block, j, c, static_cast<unsigned>(std::clamp(code, 0, top)));
    });
    StoreLevels(format, side, low * inverse, step * inverse, block + codes.CodeBytes(),
                group.index);
  });
  *page_float = HasNan(x, n) ? kNan : unit;
}

}  // namespace

void EncodeKv(KvFormat format, KvSide side, const float* x, int head_dim, std::byte* block,
              float* page_float, float given_scale) {
  std::memset(block, 0, KvBlockBytes(format, side, head_dim));
  switch (format) {
    case KvFormat::kF32:
    case KvFormat::kF16:
      for (int j = 0; j < kPageTokens; ++j) {
        for (int c = 0; c < head_dim; ++c) {
          const float value = x[j * head_dim + c];
          const int at = side == KvSide::kKeys ? c * kPageTokens + j : j * head_dim + c;
          if (format == KvFormat::kF32) {
            reinterpret_cast<float*>(block)[at] = value;
          } else {
            reinterpret_cast<uint16_t*>(block)[at] = F32ToF16Saturating(value);
          }
        }
      }
      return;
    case KvFormat::kFp8:
      EncodeFp8(x, head_dim, side, block, page_float, given_scale);
      return;
    case KvFormat::kInt8:
    case KvFormat::kInt4:
      EncodePerToken(format, side, x, head_dim, block, page_float);
      return;
    case KvFormat::kKivi4:
    case KvFormat::kKivi2:
      EncodeKivi(format, side, x, head_dim, block, page_float);
      return;
  }
}

void DecodeKv(KvFormat format, KvSide side, const std::byte* block, float page_float, int head_dim,
              float* x) {
  const bool keys = side == KvSide::kKeys;
  const auto plain = [&](auto value_at) {
    for (int j = 0; j < kPageTokens; ++j) {
      for (int c = 0; c < head_dim; ++c) {
        x[j * head_dim + c] = value_at(keys ? c * kPageTokens + j : j * head_dim + c);
      }
    }
  };
  switch (format) {
    case KvFormat::kF32:
      return plain([&](int at) { return reinterpret_cast<const float*>(block)[at]; });
    case KvFormat::kF16:
      return plain([&](int at) { return F16ToF32(reinterpret_cast<const uint16_t*>(block)[at]); });
    case KvFormat::kFp8:
      return plain(
          [&](int at) { return F8E4M3ToF32(std::to_integer<uint8_t>(block[at])) * page_float; });
    default: {
      std::vector<int> codes(static_cast<size_t>(kPageTokens * head_dim));
      float factors[kPageTokens];
      DecodeKvCodes(format, side, block, page_float, head_dim, codes.data(), factors);
      for (int i = 0; i < kPageTokens * head_dim; ++i) {
        x[i] = static_cast<float>(codes[static_cast<size_t>(i)]) * factors[i / head_dim];
      }
      return;
    }
  }
}

void DecodeKvCodes(KvFormat format, KvSide side, const std::byte* block, float page_float,
                   int head_dim, int* codes, float* factors) {
  const bool keys = side == KvSide::kKeys;
  const Block places(format, side, head_dim);
  const std::byte* sides = block + places.CodeBytes();
  if (TraitsOf(format).unit_pages > 1) {
    std::fill_n(factors, kPageTokens, page_float);
    ForEachKiviGroup(side, head_dim, [&](const Group& group) {
      const auto levels = LevelsOf(format, side, sides, group.index);
      ForEachIn(group,
                [&](int j, int c) { codes[j * head_dim + c] = levels[places.Code(block, j, c)]; });
    });
    return;
  }
  for (int j = 0; j < kPageTokens; ++j) {
    uint16_t half = 0;
    std::memcpy(&half, sides + 2 * static_cast<size_t>(j), 2);
    factors[j] = F16ToF32(half);
    for (int c = 0; c < head_dim; ++c) {
      const unsigned stored = places.Code(block, j, c);
      codes[j * head_dim + c] = format == KvFormat::kInt4 ? static_cast<int>(stored) - 8
                                : keys                    ? static_cast<int>(stored) - 128
                                                          : static_cast<int8_t>(stored);
    }
  }
}

double KvErrorBound(KvFormat format, KvSpread spread) {
  const double own = std::max(std::fabs(spread.low), std::fabs(spread.high));
  const double unit = spread.largest / 127;
  const double arithmetic = 8 * 0x1p-24 * spread.largest;
  const auto per_token = [&](double n) {
    return (own / n * (1 + 0x1p-11) + 0x1p-25) / 2 + own * 0x1p-11 + n * 0x1p-25 + arithmetic;
  };
  switch (format) {
    case KvFormat::kF32:
      return 0;
    case KvFormat::kF16:
      return own * 0x1p-11 + 0x1p-25;
    case KvFormat::kFp8:
      return std::max(own * 0x1p-4, spread.largest / 448 * 0x1p-10) + arithmetic;
    case KvFormat::kInt8:
      return per_token(127);
    case KvFormat::kInt4:
      return per_token(7);
    case KvFormat::kKivi4:
      return (spread.high - spread.low) / 30 + unit * (0.5 + 16.0 / 512) + arithmetic;
    case KvFormat::kKivi2:
      return (spread.high - spread.low) / 6 + unit * 0.5 + arithmetic;
  }
  return 0;
}

}  // namespace nibble
