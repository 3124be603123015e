#pragma once

#include <cstdint>

#include "kernels/matmul_kernels.h"
#include "kernels/panel_layout.h"
#include "kernels/simd/finish.h"
#include "kernels/simd/int_dot.h"
#include "kernels/simd/panel_unpack.h"
#include "kernels/simd/pieces.h"
#include "kernels/simd/weight_ahead.h"

// Multiplies int8 activations by packed weights, one source for every instruction set. The order of
// float operations per output is the scalar twin's (kernels/ref/matmul_ref.cc); integer dots are
// exact, so nothing else can move a bit. Two paths with the same arithmetic:
//   fused    few tokens: codes go from the packed bytes through registers into the dot
//   scratch  many tokens: panels are unpacked to bytes and float scales once, then multiplied by
//            tiles of tokens

#define NIBBLE_INLINE_MEMBER inline __attribute__((always_inline))

namespace nibble::NIBBLE_ISA_NS {
namespace {

// kZero: no minimum; a zero per row in its place.
enum class MinForm { kNone, kFloat, kPairs, kZero };

// What the multiply needs to know of a format; formats with equal schemes share code.
struct Scheme {
  int max_code;
  int log2_zero;
  int group;
  int act_group;
  MinForm min;

  constexpr int subs() const { return 32 / group; }  // scale groups in 32 depths
};

constexpr Scheme SchemeOf(Format format) {
  const PanelLayout layout = PanelLayoutOf(format);
  int max_code = 15;
  if (layout.planes == CodePlanes::kNibbleBit || layout.table == CodeTable::kE2M1) max_code = 31;
  if (layout.planes == CodePlanes::kNibbleCrumb) max_code = 63;
  if (layout.planes == CodePlanes::kByte || layout.table == CodeTable::kIq4) max_code = 255;
  const MinForm min = layout.side == SideKind::kF16Min ? MinForm::kFloat
                      : layout.has_min()               ? MinForm::kPairs
                      : layout.has_zero()              ? MinForm::kZero
                                                       : MinForm::kNone;
  const int log2_zero = layout.has_zero() ? kRowZero : layout.log2_zero;
  return {max_code, log2_zero, layout.group, layout.act_group, min};
}

// Activations of consecutive tokens of one tile, from some depth on; entries are `width` apart.
struct Tokens {
  const int32_t* codes;
  const float* scale;
  const float* scaled_sum;
  const int32_t* neg_sum;   // per scale group
  const int32_t* sum_pair;  // per two scale groups
  int width;

  template <Scheme S>
  void Advance(int depth) {
    codes += depth / 4 * width;
    scale += depth / S.act_group * width;
    if (S.min == MinForm::kFloat) scaled_sum += depth / 32 * width;
    neg_sum += depth / S.group * width;
    if (S.min == MinForm::kPairs) sum_pair += depth / (2 * S.group) * width;
  }
};

template <Scheme S>
Tokens TokensOf(const QuantisedRows& q, const TokenRun& run, int first) {
  const int left = q.rows - run.tile * kTokenTile;
  const ptrdiff_t tile = static_cast<ptrdiff_t>(run.tile) * kTokenTile;
  const int i = run.first + first;
  const int32_t* neg_sum = S.group == 32 ? q.neg_sum32 : q.neg_sum16;
  const int32_t* sum_pair = S.group == 32 ? q.sum_pair32 : q.sum_pair16;
  Tokens out{};
  out.codes = reinterpret_cast<const int32_t*>(q.codes) + tile * (q.depth / 4) + i;
  out.scale = q.scale + tile * (q.depth / S.act_group) + i;
  if (S.min == MinForm::kFloat) out.scaled_sum = q.scaled_sum + tile * (q.depth / 32) + i;
  out.neg_sum = neg_sum + tile * (q.depth / S.group) + i;
  if (S.min == MinForm::kPairs) out.sum_pair = sum_pair + tile * (q.depth / (2 * S.group)) + i;
  out.width = left < kTokenTile ? left : kTokenTile;
  return out;
}

// Weights straight from the chunks of one panel.
template <Format F>
struct FusedWeights {
  static constexpr bool kUnpacked = false;
  static constexpr PanelLayout kLayout = PanelLayoutOf(F);
  const uint8_t* codes;
  Prefetch prefetch;
  Side<kLayout.side> side;

  FusedWeights(const uint8_t* chunk, Prefetch ahead)
      : codes(chunk + kLayout.side_bytes()), prefetch(ahead), side(chunk) {}

  // Prefetches the share of the group32 number g, so that requests are spread evenly over the
  // multiplies: all at the start of a chunk cost up to a factor of two (Q6_K, 8 tokens).
  NIBBLE_INLINE_MEMBER void Ahead(int g) const {
    constexpr int kGroups = kLayout.block / 32;
    constexpr int kShare = kLayout.chunk_bytes / kGroups;
    FetchAhead<kShare>(codes + g * kShare, prefetch);
  }
  // Step s of the chunk's 32 depths number g.
  __attribute__((always_inline)) U8x64 Step(int g, int s, int) const {
    return DotOperand<SchemeOf(F).max_code>(
        UnpackStep<kLayout.planes, kLayout.table>(codes + g * kLayout.group32_bytes(), s));
  }
  F32x16 Scale(int g, int) const { return side.Scale(g); }
  F32x16 Min(int, int) const { return side.Min(); }
  I32x16 Zero(int, int) const { return side.Zero(); }
  I32x16 MinPairs(int, int j, int) const { return side.MinPairs(j); }
  F32x16 NegDmin(int, int) const { return side.neg_dmin; }
};

// Depths unpacked at once: codes of two panels are 64 KiB, within any second-level cache.
constexpr int kSliceDepth = 2048;

// Unpacked weights of kTilePanels panels. Inner index: panel, then 16 rows.
struct alignas(64) Scratch {
  uint8_t codes[kSliceDepth / 4 * kTilePanels * 64];
  float scales[kSliceDepth / 16 * kTilePanels * 16];
  float mins[kSliceDepth / 32 * kTilePanels * 16];         // m, or −dmin per super-block
  int32_t min_pairs[kSliceDepth / 32 * kTilePanels * 16];  // i16 pairs, or zeros
  int32_t excess[kSliceDepth / 32 * kTilePanels * 16];
};

template <Scheme S>
struct ScratchWeights {
  static constexpr bool kUnpacked = true;
  const Scratch* scratch;

  void Ahead(int) const {}

  __attribute__((always_inline)) U8x64 Step(int g, int s, int r) const {
    return LoadU8(scratch->codes + ((g * 8 + s) * kTilePanels + r) * 64);
  }
  I32x16 Excess(int g, int r) const { return LoadI(scratch->excess + (g * kTilePanels + r) * 16); }
  F32x16 Scale(int g, int r) const { return LoadF(scratch->scales + (g * kTilePanels + r) * 16); }
  F32x16 Min(int g, int r) const { return LoadF(scratch->mins + (g * kTilePanels + r) * 16); }
  I32x16 Zero(int g, int r) const { return LoadI(scratch->min_pairs + (g * kTilePanels + r) * 16); }
  I32x16 MinPairs(int super, int j, int r) const {
    constexpr int kPairs = S.act_group / S.group / 2;
    return LoadI(scratch->min_pairs + ((super * kPairs + j) * kTilePanels + r) * 16);
  }
  F32x16 NegDmin(int super, int r) const {
    return LoadF(scratch->mins + (super * kTilePanels + r) * 16);
  }
};

#if defined(NIBBLE_DOT_FLIPPED)
// What the sums of a group of 32 begin with (GroupDot::kFlipped).
template <class Weights>
NIBBLE_INLINE I32x16 ExcessOf(const Weights& w, int g) {
  I32x16 pairs = ZeroI();
  NIBBLE_UNROLL for (int s = 0; s < 8; ++s) pairs = Add16(pairs, NegativePairs(w.Step(g, s, 0)));
  return WidenPairs(pairs);
}
#endif

// Unpacks one chunk of panel r, whose depth is `depth` from the start of the slice.
template <Format F>
__attribute__((noinline)) void UnpackChunk(const uint8_t* chunk, int depth, int r, Scratch* out) {
  constexpr PanelLayout kLayout = PanelLayoutOf(F);
  constexpr Scheme kScheme = SchemeOf(F);
  const FusedWeights<F> w(chunk, Prefetch::kNone);
  for (int g = 0; g < kLayout.block / 32; ++g) {
    uint8_t* codes = out->codes + ((depth / 32 + g) * 8 * kTilePanels + r) * 64;
    NIBBLE_UNROLL for (int s = 0; s < 8; ++s) {
      StoreU8(codes + s * kTilePanels * 64, w.Step(g, s, 0));
    }
#if defined(NIBBLE_DOT_FLIPPED)
    if constexpr (GroupDot<kScheme.max_code, kScheme.log2_zero, true>::kFlipped) {
      static_assert(kScheme.group == 32);
      StoreI(out->excess + ((depth / 32 + g) * kTilePanels + r) * 16, ExcessOf(w, g));
    }
#endif
  }
  for (int g = 0; g < kLayout.block / kLayout.group; ++g) {
    StoreF(out->scales + ((depth / kLayout.group + g) * kTilePanels + r) * 16, w.Scale(g, 0));
  }
  if constexpr (kScheme.min == MinForm::kFloat) {
    StoreF(out->mins + (depth / 32 * kTilePanels + r) * 16, w.Min(0, 0));
  }
  if constexpr (kScheme.min == MinForm::kZero) {
    for (int g = 0; g < kLayout.block / 32; ++g) {
      StoreI(out->min_pairs + ((depth / 32 + g) * kTilePanels + r) * 16, w.Zero(g, 0));
    }
  }
  if constexpr (kScheme.min == MinForm::kPairs) {
    constexpr int kPairs = kScheme.act_group / kScheme.group / 2;
    const int super = depth / kScheme.act_group;
    for (int j = 0; j < kPairs; ++j) {
      StoreI(out->min_pairs + ((super * kPairs + j) * kTilePanels + r) * 16, w.MinPairs(0, j, 0));
    }
    StoreF(out->mins + (super * kTilePanels + r) * 16, w.NegDmin(0, 0));
  }
}

// Codes of one scale group, four depths per word: word i of token t is codes[i * width + t].
struct GroupCodes {
  const int32_t* codes;
  const int32_t* neg_sum;  // [tokens] minus the sum of the group's codes
  int width;
};

// Integer dots of R panels × T tokens over the scale group `sub` of the 32 depths number g.
template <Scheme S, int R, int T, class Weights>
NIBBLE_INLINE void DotGroup(const Weights& w, int g, int sub, const GroupCodes& a,
                            F32x16 (&out)[R * T]) {
  const int32_t* codes = a.codes;
  constexpr int kSteps = S.group / 4;
  using Dot = GroupDot<S.max_code, S.log2_zero, Weights::kUnpacked>;
  Dot dots[R * T];
  if constexpr (S.log2_zero == kRowZero) {
    NIBBLE_UNROLL for (int r = 0; r < R; ++r) {
      const I32x16 zero = w.Zero(g, r);
      NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
        dots[t * R + r] = Dot::StartRows(zero, a.neg_sum[t]);
      }
    }
  } else {
    NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
      NIBBLE_UNROLL for (int r = 0; r < R; ++r) {
        dots[t * R + r] = Dot::Start(Dot::kCorrect ? a.neg_sum[t] : 0);
      }
    }
  }
  if constexpr (Dot::kFlipped) {
    NIBBLE_UNROLL for (int r = 0; r < R; ++r) {
      const I32x16 excess = w.Excess(g, r);
      NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
        dots[t * R + r].sum = AddI(dots[t * R + r].sum, excess);
      }
    }
  }
  NIBBLE_UNROLL for (int i = 0; i < kSteps; ++i) {
    U8x64 step[R];
    NIBBLE_UNROLL for (int r = 0; r < R; ++r) step[r] = w.Step(g, sub * kSteps + i, r);
    NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
      const int32_t code = codes[t];
      NIBBLE_UNROLL for (int r = 0; r < R; ++r) dots[t * R + r].Step(i, kSteps, step[r], code);
    }
    codes += a.width;
  }
  NIBBLE_UNROLL for (int i = 0; i < R * T; ++i) out[i] = ToFloat(dots[i].sum);
}

// u [T][R] += dot · scale of one scale group.
template <Scheme S, int R, int T, class Weights>
NIBBLE_INLINE void AddGroup(const Weights& w, int g, int sub, const GroupCodes& a,
                            F32x16 (&u)[R * T]) {
  F32x16 dots[R * T];
  DotGroup<S, R, T>(w, g, sub, a, dots);
  NIBBLE_UNROLL for (int r = 0; r < R; ++r) {
    const F32x16 scale = w.Scale(g * S.subs() + sub, r);
    NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
      u[t * R + r] = Fma(dots[t * R + r], scale, u[t * R + r]);
    }
  }
}

// acc [T][R][16] += one activation group (32 or 256 depths), number `super` of the weights.
template <Scheme S, int R, int T, class Weights>
NIBBLE_INLINE void AddSuper(const Weights& w, int super, const Tokens& a, F32x16 (&acc)[R * T]) {
  constexpr int kGroups32 = S.act_group / 32;
  if constexpr (S.group == S.act_group) {
    F32x16 dots[R * T];
    w.Ahead(super);
    DotGroup<S, R, T>(w, super, 0, {a.codes, a.neg_sum, a.width}, dots);
    F32x16 dw[R];
    NIBBLE_UNROLL for (int r = 0; r < R; ++r) dw[r] = w.Scale(super, r);
    NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
      const F32x16 da = SplatF(a.scale[t]);
      NIBBLE_UNROLL for (int r = 0; r < R; ++r) {
        F32x16& sum = acc[t * R + r];
        sum = Fma(dots[t * R + r], Mul(dw[r], da), sum);
        if constexpr (S.min == MinForm::kFloat) {
          sum = Fma(w.Min(super, r), SplatF(a.scaled_sum[t]), sum);
        }
      }
    }
  } else {
    F32x16 u[R * T];
    NIBBLE_UNROLL for (int i = 0; i < R * T; ++i) u[i] = ZeroF();
    const int32_t* codes = a.codes;
    const int32_t* neg_sum = a.neg_sum;
    for (int g = super * kGroups32; g < (super + 1) * kGroups32; ++g) {
      w.Ahead(g);
      AddGroup<S, R, T>(w, g, 0, {codes, neg_sum, a.width}, u);
      codes += S.group / 4 * a.width;
      neg_sum += a.width;
      if constexpr (S.subs() == 2) {
        AddGroup<S, R, T>(w, g, 1, {codes, neg_sum, a.width}, u);
        codes += S.group / 4 * a.width;
        neg_sum += a.width;
      }
    }
    NIBBLE_UNROLL for (int t = 0; t < T; ++t) {
      const F32x16 da = SplatF(a.scale[t]);
      NIBBLE_UNROLL for (int r = 0; r < R; ++r) {
        if constexpr (S.min == MinForm::kPairs) {
          I32x16 sum = ZeroI();
          NIBBLE_UNROLL for (int j = 0; j < S.act_group / S.group / 2; ++j) {
            sum = MaddPairs(sum, w.MinPairs(super, j, r), SplatI(a.sum_pair[j * a.width + t]));
          }
          u[t * R + r] = Fma(ToFloat(sum), w.NegDmin(super, r), u[t * R + r]);
        }
        acc[t * R + r] = Fma(u[t * R + r], da, acc[t * R + r]);
      }
    }
  }
}

// acc [T][R][16] += `depth` depths of scratch.
template <Scheme S, int T>
__attribute__((noinline)) void AddTile(const Scratch* scratch, int depth, Tokens a, float* acc) {
  constexpr int kCount = kTilePanels * T;
  const ScratchWeights<S> w = {scratch};
  F32x16 sums[kCount];
  NIBBLE_UNROLL for (int i = 0; i < kCount; ++i) sums[i] = LoadF(acc + i * 16);
  for (int super = 0; super < depth / S.act_group; ++super) {
    AddSuper<S, kTilePanels, T>(w, super, a, sums);
    a.Advance<S>(S.act_group);
  }
  NIBBLE_UNROLL for (int i = 0; i < kCount; ++i) StoreF(acc + i * 16, sums[i]);
}

// One panel, all depths, T tokens; out [T][16].
template <Format F, int T>
__attribute__((noinline)) void FusedPanel(const uint8_t* panel, int cols, Tokens a, Prefetch ahead,
                                          float* out) {
  constexpr PanelLayout kLayout = PanelLayoutOf(F);
  constexpr Scheme kScheme = SchemeOf(F);
  F32x16 acc[T];
  NIBBLE_UNROLL for (int t = 0; t < T; ++t) acc[t] = ZeroF();
  for (int depth = 0; depth < cols; depth += kLayout.block, panel += kLayout.chunk_bytes) {
    const FusedWeights<F> w(panel, ahead);
    for (int super = 0; super < kLayout.block / kScheme.act_group; ++super) {
      AddSuper<kScheme, 1, T>(w, super, a, acc);
      a.Advance<kScheme>(kScheme.act_group);
    }
  }
  NIBBLE_UNROLL for (int t = 0; t < T; ++t) StoreF(out + t * 16, acc[t]);
}

template <Format F>
void FusedPanels(const MatmulJob& job, int begin, int end) {
  constexpr Scheme kScheme = SchemeOf(F);
  alignas(64) float acc[kTokenTile * 16];
  for (int panel = begin; panel < end; ++panel) {
    const uint8_t* weights = job.weights + static_cast<size_t>(panel) * job.panel_bytes;
    Prefetch ahead = job.prefetch;
    for (int i = 0; i < job.run_count; ++i) {
      const TokenRun& run = job.runs[i];
      ForPieces<kFusedTokens>(run.count, 0, [&]<int T>(int first) {
        FusedPanel<F, T>(weights, job.cols, TokensOf<kScheme>(job.q, run, first), ahead,
                         acc + first * 16);
        ahead = Prefetch::kNone;  // the panel is in the cache now
      });
      FinishPanel(job, panel, run, acc, 16);
    }
  }
}

constexpr int kBlockRuns = 8;

// kTilePanels panels from `panel` on; where they pass the end, the last one is computed twice.
template <Format F>
void ScratchPanels(const MatmulJob& job, int panel, int end) {
  constexpr PanelLayout kLayout = PanelLayoutOf(F);
  constexpr Scheme kScheme = SchemeOf(F);
  constexpr int kTokenFloats = kTilePanels * 16;
  Scratch scratch;
  alignas(64) float acc[kBlockRuns * kTokenTile * kTokenFloats];
  bool unpacked = false;
  for (int block = 0; block < job.run_count; block += kBlockRuns) {
    const int runs = job.run_count - block < kBlockRuns ? job.run_count - block : kBlockRuns;
    for (int i = 0; i < runs * kTokenTile * kTokenFloats; ++i) acc[i] = 0;
    for (int slice = 0; slice < job.cols; slice += kSliceDepth) {
      const int depth = job.cols - slice < kSliceDepth ? job.cols - slice : kSliceDepth;
      for (int d = 0; d < depth && !unpacked; d += kLayout.block) {
        for (int r = 0; r < kTilePanels; ++r) {
          const int p = panel + r < end ? panel + r : end - 1;
          UnpackChunk<F>(job.weights + static_cast<size_t>(p) * job.panel_bytes +
                             static_cast<size_t>((slice + d) / kLayout.block) * kLayout.chunk_bytes,
                         d, r, &scratch);
        }
      }
      unpacked = depth == job.cols;
      for (int i = 0; i < runs; ++i) {
        const TokenRun& run = job.runs[block + i];
        ForPieces<kTileTokens>(run.count, 0, [&]<int T>(int first) {
          Tokens tokens = TokensOf<kScheme>(job.q, run, first);
          tokens.Advance<kScheme>(slice);
          AddTile<kScheme, T>(&scratch, depth, tokens,
                              acc + (i * kTokenTile + first) * kTokenFloats);
        });
      }
    }
    for (int i = 0; i < runs; ++i) {
      for (int r = 0; r < kTilePanels && panel + r < end; ++r) {
        FinishPanel(job, panel + r, job.runs[block + i],
                    acc + i * kTokenTile * kTokenFloats + r * 16, kTokenFloats);
      }
    }
  }
}

template <Format F>
void Int8Panels(const MatmulJob& job, int begin, int end) {
  int tokens = 0;
  for (int i = 0; i < job.run_count; ++i) tokens += job.runs[i].count;
  if (tokens <= kFusedLimit) return FusedPanels<F>(job, begin, end);
  for (int panel = begin; panel < end; panel += kTilePanels) {
    ScratchPanels<F>(job, panel, end);
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
