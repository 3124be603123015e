// The vector form of ref/attention_sealed_ref.cc: integer products over sealed pages, read as they
// lie, and the unpacking for float products.
#include <cstdint>

#include "kernels/attention_kernels.h"
#include "kernels/math_constants.h"
#include "kernels/simd/int_dot.h"
#include "kernels/simd/sealed_codes.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

NIBBLE_INLINE int Dim16(int head_dim) { return (head_dim + 15) / 16 * 16; }

NIBBLE_INLINE const uint8_t* Bytes(const std::byte* p) {
  return reinterpret_cast<const uint8_t*>(p);
}
NIBBLE_INLINE float FloatAt(const std::byte* p) {
  float value = 0;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

// Lines of the pages to come, a few at a time (simd/floats/attention_tiles.h).
struct Fetcher {
  const std::byte* near = nullptr;
  const std::byte* far = nullptr;

  Fetcher() = default;
  __attribute__((always_inline)) Fetcher(const AttentionTask& task, int page, size_t offset) {
    if (!task.prefetch) return;
    const int last = task.known_pages - 1;
    near = task.pages[page + 1 < last ? page + 1 : last] + offset;
    far = task.pages[page + 6 < last ? page + 6 : last] + offset;
  }
  __attribute__((always_inline)) void Lines(size_t begin, size_t end) const {
    if (near == nullptr) return;
    for (size_t at = begin; at < end; at += 64) {
      __builtin_prefetch(near + at, 0, 3);
      __builtin_prefetch(far + at, 0, 2);
    }
  }
};

// A step is 16 channels: four quads.
template <class Codes, int kRows, int kVectors>
NIBBLE_INLINE void KeyTile(const uint8_t* block, const uint8_t* side, int dim16,
                           const IntQuery& query, int row, int vector,
                           I32x16 (&sums)[kRows][kVectors], const Fetcher& fetch) {
  using Dot = GroupDot<Codes::kMaxCode, Codes::kLog2Zero>;
  Dot dots[kRows][kVectors];
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
      dots[r][v] = Dot::Start(query.neg_sum[row + r]);
    }
  }
  constexpr int kRaws = 4 / Codes::kPack;  // of a step
  constexpr int kRawBytes = kPageTokens * 4;
  const int32_t* q = query.q + row;
  for (int step = 0; step < dim16 / 16; ++step) {
    fetch.Lines(static_cast<size_t>(step) * kRaws * kRawBytes,
                static_cast<size_t>(step + 1) * kRaws * kRawBytes);
    NIBBLE_UNROLL for (int i = 0; i < kRaws; ++i) {
      U8x64 raw[kVectors];
      NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
        raw[v] = LoadU8(block + (step * kRaws + i) * kRawBytes + (vector + v) * 64);
      }
      NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
        const int quad = step * 4 + i * Codes::kPack + s;
        U8x64 key[kVectors];
        NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
          key[v] = Codes::Key(raw[v], s, side + quad * 16);
        }
        NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
          const int32_t a = q[quad * kRowBlock + r];
          NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
            dots[r][v].Step(i * Codes::kPack + s, 4, key[v], a);
          }
        }
      }
    }
  }
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = dots[r][v].sum;
  }
}

template <class Codes, int kRows>
NIBBLE_INLINE void KeyRows(const AttentionTask& task, const uint8_t* block,
                           const F32x16 (&factors)[kKeyVectors], int row, float* s,
                           const Fetcher& fetch) {
  const int dim16 = Dim16(task.head_dim);
  const uint8_t* side = block + CodeBytes<Codes>(dim16);
  for (int vector = 0; vector < kKeyVectors; vector += kSealedVectors) {
    I32x16 sums[kRows][kSealedVectors];
    KeyTile<Codes, kRows, kSealedVectors>(block, side, dim16, task.int_query, row, vector, sums,
                                          vector == 0 && row == 0 ? fetch : Fetcher());
    NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
      const F32x16 scale = SplatF(task.int_query.scale[row + r]);
      NIBBLE_UNROLL for (int v = 0; v < kSealedVectors; ++v) {
        StoreF(s + (row + r) * kPageTokens + (vector + v) * 16,
               Mul(ToFloat(sums[r][v]), Mul(factors[vector + v], scale)));
      }
    }
  }
}

template <class Codes>
NIBBLE_INLINE void LoadFactors(const std::byte* block, const std::byte* page_float, int dim16,
                               F32x16 (&factors)[kKeyVectors]) {
  NIBBLE_UNROLL for (int v = 0; v < kKeyVectors; ++v) {
    if constexpr (Codes::kPerToken) {
      factors[v] = LoadF16(Bytes(block) + CodeBytes<Codes>(dim16) + v * 32);
    } else {
      factors[v] = SplatF(FloatAt(page_float));
    }
  }
}

template <class Codes>
void IntScores(const AttentionTask& task, const PageForm& form, int page, int count, float* s) {
  for (int i = 0; i < count; ++i, s += kRowBlock * kPageTokens) {
    const std::byte* block = task.pages[page + i];
    const Fetcher fetch(task, page + i, 0);
    F32x16 factors[kKeyVectors];
    LoadFactors<Codes>(block, block + form.k_float_offset, Dim16(task.head_dim), factors);
    const uint8_t* bytes = Bytes(block);
    for (int row = 0; row < task.rows; row += kSealedRows) {
      const int rows = task.rows - row;
      if (rows > 4 && kSealedRows > 4) {
        KeyRows<Codes, kSealedRows>(task, bytes, factors, row, s, fetch);
      } else if (rows > 2) {
        KeyRows<Codes, 4>(task, bytes, factors, row, s, fetch);
      } else if (rows > 1) {
        KeyRows<Codes, 2>(task, bytes, factors, row, s, fetch);
      } else {
        KeyRows<Codes, 1>(task, bytes, factors, row, s, fetch);
      }
    }
    fetch.Lines(CodeBytes<Codes>(Dim16(task.head_dim)), form.v_offset);
  }
}

// Weights as codes of 7 bits, four tokens a word.
struct WeightCodes {
  alignas(64) uint8_t p[kRowBlock][kPageTokens];
};

template <class Codes>
NIBBLE_INLINE void QuantiseWeights(const AttentionTask& task, const float* p,
                                   const F32x16 (&factors)[kKeyVectors], float most,
                                   WeightCodes& codes) {
  F32x16 scale[kKeyVectors];
  NIBBLE_UNROLL for (int v = 0; v < kKeyVectors; ++v) {
    scale[v] = Codes::kPerToken ? Mul(factors[v], SplatF(kMostWeight / most)) : SplatF(kMostWeight);
  }
  const F32x16 round = SplatF(math_constants::kRound);
  for (int row = 0; row < task.rows; ++row) {
    NIBBLE_UNROLL for (int v = 0; v < kKeyVectors; ++v) {
      const F32x16 rounded = Fma(LoadF(p + row * kPageTokens + v * 16), scale[v], round);
      StoreBytes(codes.p[row] + v * 16, AndI(AsBits(rounded), SplatI(0x7f)));
    }
  }
}

template <class Codes, int kRows, int kVectors>
NIBBLE_INLINE void ValueTile(const AttentionTask& task, const uint8_t* block, int row, int c,
                             const WeightCodes& codes, const float* unit) {
  const int dim16 = Dim16(task.head_dim);
  const uint8_t* side = block + CodeBytes<Codes>(dim16);
  I32x16 sums[kRows][kVectors];
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = ZeroI();
  }
  NIBBLE_UNROLL for (int i = 0; i < kPageTokens / 4 / Codes::kPack; ++i) {
    U8x64 raw[kVectors];
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
      raw[v] = LoadU8(block + (static_cast<ptrdiff_t>(i) * dim16 + c + v * 16) * 4);
    }
    NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
      const int quad = i * Codes::kPack + s;
      U8x64 value[kVectors];
      NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
        const int group = (c + v * 16) / 32;
        value[v] = Codes::Value(raw[v], s, side + (group * (kPageTokens / 4) + quad) * 16);
      }
      NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
        const int32_t weights = WordAt(codes.p[row + r] + quad * 4);
        NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = Codes::kSmallValues ? DotSmall(sums[r][v], weights, value[v])
                                           : DotWeights(sums[r][v], weights, value[v]);
        }
      }
    }
  }
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    float* o = task.o + static_cast<ptrdiff_t>(row + r) * task.o_stride + c;
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
      const I32x16 sum = Codes::kSmallValues ? WidenSmall(sums[r][v]) : sums[r][v];
      StoreF(o + v * 16, Fma(ToFloat(sum), SplatF(unit[row + r]), LoadF(o + v * 16)));
    }
  }
}

template <class Codes, int kRows>
NIBBLE_INLINE void ValueRows(const AttentionTask& task, const uint8_t* block, int row,
                             const WeightCodes& codes, const float* unit, const Fetcher& fetch) {
  const int dim16 = Dim16(task.head_dim);
  const size_t line_bytes = CodeBytes<Codes>(16);
  int c = 0;
  for (; c + kSealedVectors * 16 <= dim16; c += kSealedVectors * 16) {
    fetch.Lines(line_bytes * static_cast<size_t>(c / 16),
                line_bytes * static_cast<size_t>(c / 16 + kSealedVectors));
    ValueTile<Codes, kRows, kSealedVectors>(task, block, row, c, codes, unit);
  }
  if (kSealedVectors > 1 && c < dim16) ValueTile<Codes, kRows, 1>(task, block, row, c, codes, unit);
}

template <class Codes>
void IntValues(const AttentionTask& task, const PageForm& form, int page,
               const PageWeights& weights) {
  const std::byte* base = task.pages[page];
  const std::byte* block = base + form.v_offset;
  const int dim16 = Dim16(task.head_dim);
  const float most = FloatAt(base + form.v_float_offset);
  F32x16 factors[kKeyVectors];
  LoadFactors<Codes>(block, base + form.v_float_offset, dim16, factors);
  WeightCodes codes;
  QuantiseWeights<Codes>(task, weights.p, factors, most, codes);
  float unit[kRowBlock];
  for (int row = 0; row < task.rows; ++row) unit[row] = weights.beta[row] * (most / kMostWeight);
  const Fetcher fetch(task, page, form.v_offset);
  const Fetcher none;
  const uint8_t* bytes = Bytes(block);
  int row = 0;
  for (; task.rows - row >= kSealedRows; row += kSealedRows) {
    ValueRows<Codes, kSealedRows>(task, bytes, row, codes, unit, row == 0 ? fetch : none);
  }
  if (kSealedRows > 4 && task.rows - row >= 4) {
    ValueRows<Codes, 4>(task, bytes, row, codes, unit, row == 0 ? fetch : none);
    row += 4;
  }
  if (task.rows - row >= 2) {
    ValueRows<Codes, 2>(task, bytes, row, codes, unit, row == 0 ? fetch : none);
    row += 2;
  }
  if (task.rows > row) {
    ValueRows<Codes, 1>(task, bytes, row, codes, unit, row == 0 ? fetch : none);
  }
  fetch.Lines(CodeBytes<Codes>(dim16), CodeBytes<Codes>(dim16) + 64);
}

// Four members' bytes of 16 lanes as floats, less `zero`.
NIBBLE_INLINE F32x16 Member(U8x64 bytes, int e, int zero) {
  const I32x16 code = AndI(ShiftRightI(AsI32(bytes), 8 * e), SplatI(0xff));
  return ToFloat(SubI(code, SplatI(zero)));
}

template <class Codes>
NIBBLE_INLINE void StoreFactors(const std::byte* block, float page_float, int dim16,
                                float* factors) {
  F32x16 values[kKeyVectors];
  std::byte bytes[sizeof page_float];
  __builtin_memcpy(bytes, &page_float, sizeof page_float);
  LoadFactors<Codes>(block, bytes, dim16, values);
  NIBBLE_UNROLL for (int v = 0; v < kKeyVectors; ++v) StoreF(factors + v * 16, values[v]);
}

template <class Codes>
void UnpackKeys(const std::byte* block, float page_float, int head_dim, float* x, float* factors) {
  const int dim16 = Dim16(head_dim);
  const uint8_t* side = Bytes(block) + CodeBytes<Codes>(dim16);
  for (int i = 0; i < dim16 / 4 / Codes::kPack; ++i) {
    NIBBLE_UNROLL for (int v = 0; v < kKeyVectors; ++v) {
      const U8x64 raw = LoadU8(Bytes(block) + i * kPageTokens * 4 + v * 64);
      NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
        const int quad = i * Codes::kPack + s;
        const U8x64 key = Codes::Key(raw, s, side + quad * 16);
        NIBBLE_UNROLL for (int e = 0; e < 4; ++e) {
          StoreF(x + (quad * 4 + e) * kPageTokens + v * 16, Member(key, e, 1 << Codes::kLog2Zero));
        }
      }
    }
  }
  StoreFactors<Codes>(block, page_float, dim16, factors);
}

template <class Codes>
void UnpackValues(const std::byte* block, float page_float, int head_dim, float* x,
                  float* factors) {
  const int dim16 = Dim16(head_dim);
  const uint8_t* side = Bytes(block) + CodeBytes<Codes>(dim16);
  for (int i = 0; i < kPageTokens / 4 / Codes::kPack; ++i) {
    for (int c = 0; c < dim16; c += 16) {
      const U8x64 raw = LoadU8(Bytes(block) + (static_cast<ptrdiff_t>(i) * dim16 + c) * 4);
      NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
        const int quad = i * Codes::kPack + s;
        const U8x64 value = Codes::Value(raw, s, side + (c / 32 * (kPageTokens / 4) + quad) * 16);
        const U8x64 shifted = AddBytes(value, SplatBytes(0x80808080U));
        NIBBLE_UNROLL for (int e = 0; e < 4; ++e) {
          StoreF(x + static_cast<ptrdiff_t>(quad * 4 + e) * dim16 + c, Member(shifted, e, 128));
        }
      }
    }
  }
  StoreFactors<Codes>(block, page_float, dim16, factors);
}

template <class Codes>
NIBBLE_INLINE void Add(AttentionKernels& kernels, KvFormat format) {
  const auto index = static_cast<int>(format);
  kernels.int_score[index] = IntScores<Codes>;
  kernels.int_value[index] = IntValues<Codes>;
  kernels.unpack[index][0] = UnpackKeys<Codes>;
  kernels.unpack[index][1] = UnpackValues<Codes>;
}

}  // namespace

void AddSealedKernels(AttentionKernels& kernels) {
  Add<Int8Codes>(kernels, KvFormat::kInt8);
  Add<Int4Codes>(kernels, KvFormat::kInt4);
  Add<Kivi4Codes>(kernels, KvFormat::kKivi4);
  Add<Kivi2Codes>(kernels, KvFormat::kKivi2);
}

}  // namespace nibble::NIBBLE_ISA_NS
