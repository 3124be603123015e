// The vector form of ref/attention_sealed_ref.cc: integer products over sealed pages, read as they
// lie, and the unpacking for float products.
#include <cstdint>

#include "kernels/attention_kernels.h"
#include "kernels/math_constants.h"
#include "kernels/simd/attention_ahead.h"
#include "kernels/simd/int_dot.h"
#include "kernels/simd/sealed_codes.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

NIBBLE_INLINE int Dim16(int head_dim) { return (head_dim + 15) / 16 * 16; }

NIBBLE_INLINE const uint8_t* Bytes(const std::byte* p) {
  return reinterpret_cast<const uint8_t*>(p);
}

// Lines of the pages to come, as many as are read, each along with the multiplies of its own
// (simd/attention_ahead.h). A page that comes from a cache fetches itself, which is cheaper than a
// second form of every loop.
struct Fetcher {
  const std::byte* near;
  const std::byte* far;

  NIBBLE_INLINE Fetcher Of(const AttentionTask& task, int page, size_t offset) {
    if (!task.prefetch) return {task.pages[page] + offset, task.pages[page] + offset};
    return {PageAhead(task, page, kNearPages) + offset, PageAhead(task, page, kFarPages) + offset};
  }
  __attribute__((always_inline)) void Line(ptrdiff_t at) const {
    __builtin_prefetch(near + at, 0, 3);
    __builtin_prefetch(far + at, 0, 2);
  }
};

// Where a key product wants signed bytes (DotOperand).
template <class Codes>
struct KeyDot : GroupDot<Codes::kMaxCode, Codes::kLog2Zero> {
  using Base = GroupDot<Codes::kMaxCode, Codes::kLog2Zero>;
#if defined(NIBBLE_DOT_VNNI)
  static constexpr bool kSigned = false;
#else
  static constexpr bool kSigned = Base::kBytes;
#endif
  NIBBLE_INLINE KeyDot Start(int32_t neg_sum) { return {Base::Start(neg_sum)}; }
};

struct NoFetch {
  __attribute__((always_inline)) void Line(ptrdiff_t) const {}
};

// A sealed block: its codes, and the side data behind them.
template <class Codes>
struct SealedBlock {
  SealedBlock(const uint8_t* base, int dim)
      : codes(base), dim16(dim), side(codes + CodeBytes<Codes>(dim16)) {}
  const uint8_t* codes;
  int dim16;
  const uint8_t* side;
};

// Where a tile has not all rows, unpacking once to bytes in the first cache beats unpacking in
// registers for every tile.
template <class Codes>
constexpr bool kUnpacks = kSealedRows < kRowBlock && Codes::kPack > 1;

// sums = Σ key · query of kRows rows from `row` on and kVectors vectors of 16 tokens from `vector`
// on. A step is 16 channels: four quads.
template <class Codes, class Fetch, int kRows, int kVectors>
NIBBLE_INLINE void KeyTile(const SealedBlock<Codes>& block, const IntQuery& query, int row,
                           int vector, const Fetch& fetch, I32x16 (&sums)[kRows][kVectors]) {
  using Dot = KeyDot<Codes>;
  Dot dots[kRows][kVectors];
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
      dots[r][v] = Dot::Start(query.neg_sum[row + r]);
    }
  }
  constexpr int kRaws = 4 / Codes::kPack;  // of a step
  constexpr int kRawBytes = kPageTokens * 4;
  const int32_t* q = query.q + row;
  for (int step = 0; step < block.dim16 / 16; ++step) {
    if constexpr (!Codes::kPerToken) fetch.Line(block.side - block.codes + step * 64);
    NIBBLE_UNROLL for (int i = 0; i < kRaws; ++i) {
      U8x64 raw[kVectors];
      NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
        const int at = (step * kRaws + i) * kRawBytes + (vector + v) * 64;
        raw[v] = LoadU8(block.codes + at);
        fetch.Line(at);
      }
      NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
        const int quad = step * 4 + i * Codes::kPack + s;
        U8x64 key[kVectors];
        NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
          key[v] = Codes::template Key<Dot::kSigned>(raw[v], s, block.side + quad * 16);
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

// Scores of a page, their factors included.
struct ScoreOut {
  const F32x16 (&factors)[kKeyVectors];
  float* s;
};

template <int kRows, class Codes, class Fetch>
NIBBLE_INLINE void KeyRows(const SealedBlock<Codes>& block, const IntQuery& query, int row,
                           const Fetch& fetch, const ScoreOut& out) {
  for (int vector = 0; vector < kKeyVectors; vector += kSealedVectors) {
    I32x16 sums[kRows][kSealedVectors];
    KeyTile(block, query, row, vector, fetch, sums);
    NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
      const F32x16 scale = SplatF(query.scale[row + r]);
      NIBBLE_UNROLL for (int v = 0; v < kSealedVectors; ++v) {
        StoreF(out.s + (row + r) * kPageTokens + (vector + v) * 16,
               Mul(ToFloat(sums[r][v]), Mul(out.factors[vector + v], scale)));
      }
    }
  }
}

// Rows from `row` on, kSealedRows at most.
template <class Codes, class Fetch>
NIBBLE_INLINE void SomeKeyRows(const SealedBlock<Codes>& block, const AttentionTask& task, int row,
                               const Fetch& fetch, const ScoreOut& out) {
  const int rows = task.rows - row;
  if (rows > 4 && kSealedRows > 4) {
    KeyRows<kSealedRows>(block, task.int_query, row, fetch, out);
  } else if (rows > 2) {
    KeyRows<4>(block, task.int_query, row, fetch, out);
  } else if (rows > 1) {
    KeyRows<2>(block, task.int_query, row, fetch, out);
  } else {
    KeyRows<1>(block, task.int_query, row, fetch, out);
  }
}

// Keys as bytes [dim16 / 4][32][4].
template <class Codes>
NIBBLE_INLINE void UnpackKeyBytes(const SealedBlock<Codes>& block, const Fetcher& fetch,
                                  uint8_t* to) {
  constexpr bool kSigned = KeyDot<Codes>::kSigned;
  for (int i = 0; i < block.dim16 / 4 / Codes::kPack; ++i) {
    fetch.Line(block.side - block.codes + i * Codes::kPack * 16);
    NIBBLE_UNROLL for (int v = 0; v < kKeyVectors; ++v) {
      const int at = i * kPageTokens * 4 + v * 64;
      const U8x64 raw = LoadU8(block.codes + at);
      fetch.Line(at);
      NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
        const int quad = i * Codes::kPack + s;
        StoreU8(to + quad * kPageTokens * 4 + v * 64,
                Codes::template Key<kSigned>(raw, s, block.side + quad * 16));
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
  const int dim16 = Dim16(task.head_dim);
  for (int i = 0; i < count; ++i, s += kRowBlock * kPageTokens) {
    const std::byte* base = task.pages[page + i];
    const SealedBlock<Codes> block(Bytes(base), dim16);
    const Fetcher fetch = Fetcher::Of(task, page + i, 0);
    F32x16 factors[kKeyVectors];
    LoadFactors<Codes>(base, base + form.k_float_offset, dim16, factors);
    const ScoreOut out = {factors, s};
    if (kUnpacks<Codes> && task.rows > kSealedRows) {
      auto* bytes = reinterpret_cast<uint8_t*>(task.page_scratch);
      UnpackKeyBytes(block, fetch, bytes);
      const SealedBlock<Unpacked<Codes>> unpacked(bytes, dim16);
      for (int row = 0; row < task.rows; row += kSealedRows) {
        SomeKeyRows(unpacked, task, row, NoFetch(), out);
      }
    } else {
      SomeKeyRows(block, task, 0, fetch, out);
      for (int row = kSealedRows; row < task.rows; row += kSealedRows) {
        SomeKeyRows(block, task, row, NoFetch(), out);
      }
    }
    fetch.Line(static_cast<ptrdiff_t>(form.v_offset) - 64);
  }
}

// Weights as codes of 7 bits: quads of tokens, in the order of QuadPlace.
struct WeightCodes {
  alignas(64) uint8_t p[kRowBlock][kPageTokens];
};

// o = o · shrink + sum · unit
struct RowFactors {
  int rows;
  float unit[kRowBlock];
  const float* shrink;
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
    I32x16 code[kKeyVectors];
    NIBBLE_UNROLL for (int v = 0; v < kKeyVectors; ++v) {
      const F32x16 rounded = Fma(LoadF(p + row * kPageTokens + v * 16), scale[v], round);
      code[v] = AndI(AsBits(rounded), SplatI(0x7f));
    }
    StoreQuads(codes.p[row], code[0], code[1]);
  }
}

// o of kRows rows from `row` on and kVectors vectors of 16 channels from channel c on.
struct OutTile {
  float* o;
  int stride;
  int row;
  int c;
};

template <int kRows, int kVectors, class Codes, class Fetch>
NIBBLE_INLINE void ValueTile(const SealedBlock<Codes>& block, const WeightCodes& codes,
                             const RowFactors& factors, const OutTile& to, const Fetch& fetch) {
  // GCC would otherwise load all weights before the loop over tiles, into general registers and
  // from there to the stack: 64 loads and stores a page.
  asm volatile("" ::: "memory");
  I32x16 sums[kRows][kVectors];
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = ZeroI();
  }
  NIBBLE_UNROLL for (int i = 0; i < kPageTokens / 4 / Codes::kPack; ++i) {
    U8x64 raw[kVectors];
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
      const ptrdiff_t at = (static_cast<ptrdiff_t>(i) * block.dim16 + to.c + v * 16) * 4;
      raw[v] = LoadU8(block.codes + at);
      fetch.Line(at);
    }
    NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
      const int quad = i * Codes::kPack + s;
      U8x64 value[kVectors];
      NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
        const int group = (to.c + v * 16) / 32;
        value[v] = Codes::Value(raw[v], s, block.side + (group * (kPageTokens / 4) + quad) * 16);
      }
      NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
        const int32_t weights = WordAt(codes.p[to.row + r] + QuadPlace(quad) * 4);
        NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = Codes::kSmallValues ? DotSmall(sums[r][v], weights, value[v])
                                           : DotWeights(sums[r][v], weights, value[v]);
        }
      }
    }
  }
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    const int row = to.row + r;
    float* o = to.o + static_cast<ptrdiff_t>(row) * to.stride + to.c;
    NIBBLE_UNROLL for (int v = 0; v < kVectors; ++v) {
      const I32x16 sum = Codes::kSmallValues ? WidenSmall(sums[r][v]) : sums[r][v];
      const F32x16 before = Mul(LoadF(o + v * 16), SplatF(factors.shrink[row]));
      StoreF(o + v * 16, Fma(ToFloat(sum), SplatF(factors.unit[row]), before));
    }
  }
}

template <int kRows, class Codes, class Fetch>
NIBBLE_INLINE void ValueRows(const SealedBlock<Codes>& block, const WeightCodes& codes,
                             const RowFactors& factors, OutTile to, const Fetch& fetch) {
  for (; to.c + kSealedVectors * 16 <= block.dim16; to.c += kSealedVectors * 16) {
    if constexpr (!Codes::kPerToken) {  // 128 bytes for 32 channels
      fetch.Line(block.side - block.codes + to.c * 4);
      if constexpr (kSealedVectors > 1) fetch.Line(block.side - block.codes + to.c * 4 + 64);
    }
    ValueTile<kRows, kSealedVectors>(block, codes, factors, to, fetch);
  }
  if constexpr (kSealedVectors > 1) {
    if (to.c < block.dim16) ValueTile<kRows, 1>(block, codes, factors, to, fetch);
  }
}

// Rows from to.row on, kSealedRows at most. Returns how many.
template <class Codes, class Fetch>
NIBBLE_INLINE int SomeValueRows(const SealedBlock<Codes>& block, const WeightCodes& codes,
                                const RowFactors& factors, const OutTile& to, const Fetch& fetch) {
  const int rows = factors.rows - to.row;
  if (rows >= kSealedRows) {
    ValueRows<kSealedRows>(block, codes, factors, to, fetch);
    return kSealedRows;
  }
  if (kSealedRows > 4 && rows >= 4) {
    ValueRows<4>(block, codes, factors, to, fetch);
    return 4;
  }
  if (rows >= 2) {
    ValueRows<2>(block, codes, factors, to, fetch);
    return 2;
  }
  ValueRows<1>(block, codes, factors, to, fetch);
  return 1;
}

// Values as bytes [8][dim16][4].
template <class Codes>
NIBBLE_INLINE void UnpackValueBytes(const SealedBlock<Codes>& block, const Fetcher& fetch,
                                    uint8_t* to) {
  for (int i = 0; i < kPageTokens / 4 / Codes::kPack; ++i) {
    for (int c = 0; c < block.dim16; c += 16) {
      const ptrdiff_t at = (static_cast<ptrdiff_t>(i) * block.dim16 + c) * 4;
      const U8x64 raw = LoadU8(block.codes + at);
      fetch.Line(at);
      if constexpr (!Codes::kPerToken) {
        if (i == 0) fetch.Line(block.side - block.codes + c * 4);
      }
      NIBBLE_UNROLL for (int s = 0; s < Codes::kPack; ++s) {
        const int quad = i * Codes::kPack + s;
        StoreU8(to + (static_cast<ptrdiff_t>(quad) * block.dim16 + c) * 4,
                Codes::Value(raw, s, block.side + (c / 32 * (kPageTokens / 4) + quad) * 16));
      }
    }
  }
}

template <class Codes>
void IntValues(const AttentionTask& task, const PageForm& form, int page,
               const PageWeights& weights) {
  const std::byte* base = task.pages[page];
  const int dim16 = Dim16(task.head_dim);
  const SealedBlock<Codes> block(Bytes(base + form.v_offset), dim16);
  const float most = FloatAt(base + form.v_float_offset);
  F32x16 token_factors[kKeyVectors];
  LoadFactors<Codes>(base + form.v_offset, base + form.v_float_offset, dim16, token_factors);
  WeightCodes codes;
  QuantiseWeights<Codes>(task, weights.p, token_factors, most, codes);
  RowFactors factors = {task.rows, {}, weights.shrink};
  NIBBLE_UNROLL for (int row = 0; row < kRowBlock; ++row) {
    factors.unit[row] = weights.beta[row] * (most / kMostWeight);
  }
  const Fetcher fetch = Fetcher::Of(task, page, form.v_offset);
  OutTile to = {task.o, task.o_stride, 0, 0};
  if (kUnpacks<Codes> && task.rows > kSealedRows) {
    auto* bytes = reinterpret_cast<uint8_t*>(task.page_scratch);
    UnpackValueBytes(block, fetch, bytes);
    const SealedBlock<Unpacked<Codes>> unpacked(bytes, dim16);
    while (to.row < task.rows) to.row += SomeValueRows(unpacked, codes, factors, to, NoFetch());
  } else {
    to.row += SomeValueRows(block, codes, factors, to, fetch);
    while (to.row < task.rows) to.row += SomeValueRows(block, codes, factors, to, NoFetch());
  }
  // The last line of side data, and the next head's first where blocks are not aligned to lines.
  fetch.Line(block.side - block.codes + (Codes::kPerToken ? 0 : dim16 * 4));
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
        const U8x64 key = Codes::template Key<false>(raw, s, side + quad * 16);
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
        const U8x64 shifted = MoveBy128(value);
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
