#pragma once

#include <cstdint>

#include "kernels/matmul_kernels.h"
#include "kernels/panel_layout.h"
#include "kernels/simd/finish.h"
#include "kernels/simd/panel_unpack.h"
#include "kernels/simd/pieces.h"
#include "kernels/simd/weight_ahead.h"

// act=f32: four partial chains over the depth modulo 4, as the scalar twin fixes it. Weights are
// decoded exactly to [depth][16 rows] in scratch and then multiplied; floats for few tokens go from
// the packed bytes straight into the multiply.
namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int kF32SliceDepth = 256;
constexpr int kF32BlockTokens = 64;
constexpr int kChains = 4;

// Byte c of each lane.
NIBBLE_INLINE I32x16 ByteOf(I32x16 word, int c) {
  return AndI(c == 0 ? word : ShiftRightI(word, 8 * c), SplatI(0xff));
}

// out [block depths][16] of one chunk of a block format.
template <Format F>
void DecodeBlockChunk(const uint8_t* chunk, float* out) {
  constexpr PanelLayout kLayout = PanelLayoutOf(F);
  const Side<kLayout.side> side(chunk);
  const uint8_t* all_codes = chunk + kLayout.side_bytes();
  for (int g = 0; g < kLayout.block / 32; ++g) {
    NIBBLE_UNROLL for (int s = 0; s < 8; ++s) {
      const int group = (g * 32 + s * 4) / kLayout.group;
      const F32x16 scale = side.Scale(group);
      F32x16 min = ZeroF();
      I32x16 zero = SplatI(kLayout.zero());
      if constexpr (kLayout.has_zero()) zero = side.Zero();
      if constexpr (kLayout.side == SideKind::kF16Min) min = side.Min();
      if constexpr (kLayout.side == SideKind::kK6Min || kLayout.side == SideKind::kK4Min) {
        min = Mul(ToFloat(WidenU8(side.mins + 16 * group)), side.neg_dmin);
      }
      const I32x16 codes = AsI32(
          UnpackStep<kLayout.planes, kLayout.table>(all_codes + g * kLayout.group32_bytes(), s));
      NIBBLE_UNROLL for (int c = 0; c < 4; ++c) {
        I32x16 value = ByteOf(codes, c);
        if constexpr (kLayout.log2_zero >= 0 || kLayout.has_zero()) value = SubI(value, zero);
        // The product is exact, so that the sum rounds once, as in the format's definition.
        const F32x16 product = Mul(ToFloat(value), scale);
        StoreF(out + (g * 32 + s * 4 + c) * 16, kLayout.has_min() ? Add(product, min) : product);
      }
    }
  }
}

template <Format F>
NIBBLE_INLINE F32x16 LoadWeights16(const uint8_t* p) {
  if constexpr (F == Format::kF32) return LoadF(reinterpret_cast<const float*>(p));
  if constexpr (F == Format::kF16) return LoadF16(p);
  if constexpr (F == Format::kBF16) return BitsF(ShiftLeftI(WidenU16(p), 16));
  if constexpr (F == Format::kF8E4M3) return LoadE4M3(p);
  if constexpr (F == Format::kF8E5M2) return LoadE5M2(p);
}

// out [depth][16]: `depth` depths from chunk `chunk` on.
template <Format F>
__attribute__((noinline)) void DecodeSlice(const uint8_t* chunk, int depth, float* out) {
  constexpr PanelLayout kLayout = PanelLayoutOf(F);
  if constexpr (kLayout.planes == CodePlanes::kFloat) {
    for (int k = 0; k < depth; ++k) {
      StoreF(out + k * 16, LoadWeights16<F>(chunk + k * kLayout.chunk_bytes));
    }
  } else {
    for (int k = 0; k < depth; k += kLayout.block, chunk += kLayout.chunk_bytes) {
      DecodeBlockChunk<F>(chunk, out + k * 16);
    }
  }
}

// The same of FP8 with a scale for every block of depths: one product, rounded once.
template <Format F>
__attribute__((noinline)) void DecodeScaledSlice(const MatmulJob& job, int panel, int slice,
                                                 int depth, float* out) {
  constexpr int kBytes = PanelLayoutOf(F).chunk_bytes;
  const uint8_t* chunk = job.weights + static_cast<size_t>(panel) * job.panel_bytes +
                         static_cast<size_t>(slice) * kBytes;
  const ptrdiff_t padded = ptrdiff_t{(job.rows + 15) / 16} * 16;
  for (int k = 0; k < depth;) {
    const int block = (slice + k) / job.block_depth;
    const int next = (block + 1) * job.block_depth - slice;
    const int end = next < depth ? next : depth;
    const F32x16 scale = LoadF(job.block_scale + block * padded + ptrdiff_t{panel} * 16);
    for (; k < end; ++k) StoreF(out + k * 16, Mul(LoadWeights16<F>(chunk + k * kBytes), scale));
  }
}

// acc [T][4 chains][16] += w [depth][16] · x, T tokens one chain at a time: T sums in registers.
template <int T>
void AddFloatTile(const float* w, int depth, const float* x, ptrdiff_t x_stride, float* acc) {
  for (int c = 0; c < kChains; ++c) {
    F32x16 sums[T];
    NIBBLE_UNROLL for (int t = 0; t < T; ++t) sums[t] = LoadF(acc + (t * kChains + c) * 16);
    for (int k = c; k < depth; k += kChains) {
      const F32x16 wk = LoadF(w + k * 16);
      NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
        sums[t] = Fma(wk, SplatF(x[t * x_stride + k]), sums[t]);
      }
    }
    NIBBLE_UNROLL for (int t = 0; t < T; ++t) StoreF(acc + (t * kChains + c) * 16, sums[t]);
  }
}

// The same for one token, all four chains at once.
inline void AddFloatRow(const float* w, int depth, const float* x, float* acc) {
  F32x16 sums[kChains];
  NIBBLE_UNROLL for (int c = 0; c < kChains; ++c) sums[c] = LoadF(acc + c * 16);
  int k = 0;
  for (; k + kChains <= depth; k += kChains) {
    NIBBLE_UNROLL for (int c = 0; c < kChains; ++c) {
      sums[c] = Fma(LoadF(w + (k + c) * 16), SplatF(x[k + c]), sums[c]);
    }
  }
  NIBBLE_UNROLL for (int c = 0; c < kChains; ++c) {
    if (k + c < depth) sums[c] = Fma(LoadF(w + (k + c) * 16), SplatF(x[k + c]), sums[c]);
    StoreF(acc + c * 16, sums[c]);
  }
}

template <int kMax>
void AddFloatTokens(const float* w, int depth, const float* x, ptrdiff_t x_stride, int count,
                    float* acc) {
  int t = 0;
  for (; t + kMax <= count; t += kMax) {
    AddFloatTile<kMax>(w, depth, x + t * x_stride, x_stride, acc + t * kChains * 16);
  }
  if constexpr (kMax > 4) {
    for (; t + 4 <= count; t += 4) {
      AddFloatTile<4>(w, depth, x + t * x_stride, x_stride, acc + t * kChains * 16);
    }
  }
  for (; t < count; ++t) AddFloatRow(w, depth, x + t * x_stride, acc + t * kChains * 16);
}

// (chain 0 + chain 1) + (chain 2 + chain 3), into the place of chain 0.
inline void JoinChains(float* acc) {
  const F32x16 low = Add(LoadF(acc), LoadF(acc + 16));
  const F32x16 high = Add(LoadF(acc + 32), LoadF(acc + 48));
  StoreF(acc, Add(low, high));
}

// acc [T][4 chains][16] = the product of one panel of floats and T tokens.
template <Format F, int T>
__attribute__((noinline)) void FusedFloatRows(const uint8_t* w, int depth, const float* x,
                                              ptrdiff_t x_stride, Prefetch ahead, float* acc) {
  constexpr int kBytes = PanelLayoutOf(F).chunk_bytes;  // of one depth
  constexpr int kStep = 2 * kChains;
  F32x16 sums[T * kChains];
  NIBBLE_UNROLL for (int i = 0; i < T * kChains; ++i) sums[i] = ZeroF();
  int k = 0;
  for (; k + kStep <= depth; k += kStep) {
    FetchAhead<kStep * kBytes>(w + k * kBytes, ahead);
    NIBBLE_UNROLL for (int i = 0; i < kStep; ++i) {
      const F32x16 weights = LoadWeights16<F>(w + (k + i) * kBytes);
      NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
        F32x16& sum = sums[t * kChains + i % kChains];
        sum = Fma(weights, SplatF(x[t * x_stride + k + i]), sum);
      }
    }
  }
  for (int c = 0; k < depth; ++k, ++c) {
    const F32x16 weights = LoadWeights16<F>(w + k * kBytes);
    NIBBLE_UNROLL for (int i = 0; i < T * kChains; ++i) {
      if (i % kChains != c % kChains) continue;
      sums[i] = Fma(weights, SplatF(x[i / kChains * x_stride + k]), sums[i]);
    }
  }
  NIBBLE_UNROLL for (int i = 0; i < T * kChains; ++i) StoreF(acc + i * 16, sums[i]);
}

template <Format F>
void FusedFloatPanels(const MatmulJob& job, int begin, int end) {
  constexpr int kTokenFloats = kChains * 16;
  alignas(64) float acc[kTokenTile * kTokenFloats];
  for (int panel = begin; panel < end; ++panel) {
    const uint8_t* weights = job.weights + static_cast<size_t>(panel) * job.panel_bytes;
    Prefetch ahead = job.prefetch;
    for (int i = 0; i < job.run_count; ++i) {
      const TokenRun& run = job.runs[i];
      const float* x = job.x + (run.tile * kTokenTile + run.first) * job.x_stride;
      ForPieces<kFusedFloatTokens>(run.count, 0, [&]<int T>(int first) {
        FusedFloatRows<F, T>(weights, job.cols, x + first * job.x_stride, job.x_stride, ahead,
                             acc + first * kTokenFloats);
        ahead = Prefetch::kNone;  // the panel is in the cache now
      });
      for (int t = 0; t < run.count; ++t) JoinChains(acc + t * kTokenFloats);
      FinishPanel(job, panel, run, acc, kTokenFloats);
    }
  }
}

template <Format F>
void F32Panels(const MatmulJob& job, int begin, int end) {
  constexpr PanelLayout kLayout = PanelLayoutOf(F);
  constexpr int kBlockRuns = kF32BlockTokens / kTokenTile;
  constexpr int kTokenFloats = kChains * 16;
  if constexpr (kLayout.planes == CodePlanes::kFloat) {
    // FP8 is not worth decoding again for each token.
    constexpr bool kAgain = kFusedFloatTokens > 1 || kLayout.chunk_bytes > 16;
    int tokens = 0;
    for (int i = 0; i < job.run_count; ++i) tokens += job.runs[i].count;
    if (tokens <= (kAgain ? kFusedFloatLimit : 1) && job.block_scale == nullptr) {
      return FusedFloatPanels<F>(job, begin, end);
    }
  }
  alignas(64) float w[kF32SliceDepth * 16];
  alignas(64) float acc[kF32BlockTokens * kTokenFloats];
  for (int panel = begin; panel < end; ++panel) {
    const uint8_t* weights = job.weights + static_cast<size_t>(panel) * job.panel_bytes;
    for (int block = 0; block < job.run_count; block += kBlockRuns) {
      const int runs = job.run_count - block < kBlockRuns ? job.run_count - block : kBlockRuns;
      for (int i = 0; i < runs * kTokenTile * kTokenFloats; ++i) acc[i] = 0;
      for (int slice = 0; slice < job.cols; slice += kF32SliceDepth) {
        const int left = job.cols - slice;
        const int depth = left < kF32SliceDepth ? left : kF32SliceDepth;
        const uint8_t* chunk =
            weights + static_cast<size_t>(slice / kLayout.block) * kLayout.chunk_bytes;
        if constexpr (F == Format::kF8E4M3) {
          if (job.block_scale != nullptr) {
            DecodeScaledSlice<F>(job, panel, slice, depth, w);
          } else {
            DecodeSlice<F>(chunk, depth, w);
          }
        } else {
          DecodeSlice<F>(chunk, depth, w);
        }
        for (int i = 0; i < runs; ++i) {
          const TokenRun& run = job.runs[block + i];
          const float* x = job.x + (run.tile * kTokenTile + run.first) * job.x_stride + slice;
          AddFloatTokens<kFloatTileTokens>(w, depth, x, job.x_stride, run.count,
                                           acc + i * kTokenTile * kTokenFloats);
        }
      }
      for (int i = 0; i < runs; ++i) {
        float* sums = acc + i * kTokenTile * kTokenFloats;
        for (int t = 0; t < job.runs[block + i].count; ++t) JoinChains(sums + t * kTokenFloats);
        FinishPanel(job, panel, job.runs[block + i], sums, kTokenFloats);
      }
    }
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
