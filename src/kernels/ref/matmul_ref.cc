#include "kernels/ref/matmul_ref.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/panel_row.h"

#define NIBBLE_ISA_NS isa_scalar
#include "kernels/quantise_row.h"

namespace nibble {
namespace {

int32_t LargestBits(const float* x, int n) {
  int32_t max_bits = 0;
  for (int i = 0; i < n; ++i) {
    max_bits = std::max(max_bits, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  }
  return max_bits;
}

void GroupCodesOf(const float* x, int n, isa_scalar::GroupScale group, ptrdiff_t stride,
                  int8_t* codes, int32_t* sums) {
  std::fill_n(sums, n / 16, 0);
  for (int i = 0; i < n; ++i) {
    const float value = std::isnan(group.scale) ? 0.0F : x[i];
    const float rounded = value * group.inverse + isa_scalar::kRoundMagic;
    const int32_t code = std::bit_cast<int32_t>(rounded) - isa_scalar::kRoundMagicBits;
    codes[i / 4 * stride + i % 4] = static_cast<int8_t>(code);
    sums[i / 16] += code;
  }
}

// One weight row, decoded once for all tokens.
struct WeightRow {
  std::vector<int16_t> values;     // [cols], without offset
  std::vector<float> scales;       // [cols / group]
  std::vector<float> mins;         // [cols / group] (kF16Min) or [cols / 256], −dmin
  std::vector<uint8_t> min_codes;  // [cols / group] of k-quants
};

WeightRow LoadWeightRow(const PanelRow& row, int cols) {
  const PanelLayout& layout = row.layout;
  WeightRow out;
  out.values.resize(static_cast<size_t>(cols));
  for (int c = 0; c < cols / layout.block; ++c) {
    const RowSide side = row.Side(c);
    for (int g = 0; g < layout.block / 32; ++g) {
      row.Values(c, g, out.values.data() + c * layout.block + 32 * g);
    }
    for (int g = 0; g < layout.block / layout.group; ++g) {
      out.scales.push_back(ScaleOf(layout.side, side, g));
      out.min_codes.push_back(side.mins[g]);
    }
    RowSide one = side;
    one.mins[0] = 1;
    if (layout.has_min()) out.mins.push_back(MinOf(layout.side, one, 0));
  }
  return out;
}

// One row of int8 activations, taken out of its tile.
struct TokenCodes {
  const QuantisedRows* q;
  int tile;
  int index;
  std::vector<int8_t> codes;  // [depth]

  TokenCodes(const QuantisedRows& rows, int tile_index, int row_in_tile)
      : q(&rows), tile(tile_index), index(row_in_tile), codes(static_cast<size_t>(rows.depth)) {
    for (int k = 0; k < q->depth; ++k) {
      codes[static_cast<size_t>(k)] = q->codes[At(q->depth / 4, k / 4) * 4 + k % 4];
    }
  }

  int width() const { return std::min(kTokenTile, q->rows - tile * kTokenTile); }
  ptrdiff_t At(int entries_per_row, int entry) const {
    return static_cast<ptrdiff_t>(tile) * kTokenTile * entries_per_row +
           static_cast<ptrdiff_t>(entry) * width() + index;
  }
  int Sum(int begin, int count) const {
    return std::accumulate(codes.begin() + begin, codes.begin() + begin + count, 0);
  }
};

int Dot(const WeightRow& w, const TokenCodes& a, int begin, int count) {
  return std::inner_product(w.values.begin() + begin, w.values.begin() + begin + count,
                            a.codes.begin() + begin, 0);
}

// Order of the formats with one weight scale per activation group (32 depths):
//   acc = fma(dot, dw · da, acc); with minimum m: acc = fma(m, da · Σa, acc).
float DotGroups32(const PanelLayout& layout, const WeightRow& w, const TokenCodes& a, int cols) {
  float acc = 0;
  for (int g = 0; g < cols / 32; ++g) {
    const auto i = static_cast<size_t>(g);
    const float da = a.q->scale[a.At(a.q->depth / 32, g)];
    acc = std::fma(static_cast<float>(Dot(w, a, 32 * g, 32)), w.scales[i] * da, acc);
    if (layout.has_min()) {
      acc = std::fma(w.mins[i], da * static_cast<float>(a.Sum(32 * g, 32)), acc);
    }
  }
  return acc;
}

// Order of the formats with several weight scales per activation group of A = 256 depths (k-quants,
// IQ4_XS) or 32 (NVFP4), scales s_g = d · sc_g:
//   u = 0;  u = fma(dot_g, s_g, u) for g = 0, 1 …;
//   with minima: u = fma(Σ_g mn_g · Σa_g, −dmin, u), the inner sum exact;
//   acc = fma(u, da, acc).
float DotSuperBlocks(const PanelLayout& layout, const WeightRow& w, const TokenCodes& a, int cols) {
  const int act = layout.act_group;
  const int groups = act / layout.group;
  float acc = 0;
  for (int s = 0; s < cols / act; ++s) {
    float u = 0;
    int min_sum = 0;
    for (int g = 0; g < groups; ++g) {
      const auto i = static_cast<size_t>(s * groups + g);
      const int begin = s * act + g * layout.group;
      const auto dot = static_cast<float>(Dot(w, a, begin, layout.group));
      u = std::fma(dot, w.scales[i], u);
      if (layout.has_min()) min_sum += w.min_codes[i] * a.Sum(begin, layout.group);
    }
    if (layout.has_min()) {
      u = std::fma(static_cast<float>(min_sum), w.mins[static_cast<size_t>(s)], u);
    }
    acc = std::fma(u, a.q->scale[a.At(a.q->depth / act, s)], acc);
  }
  return acc;
}

// y = acc (· row scale) (+ bias) (+ y).
void Finish(const MatmulJob& job, int y_row, int row, float acc) {
  float* y = job.y + y_row * job.y_stride + row;
  if (job.row_scale != nullptr) acc *= job.row_scale[row];
  if (job.bias != nullptr) acc += job.bias[row];
  *y = job.accumulate ? *y + acc : acc;
}

template <class EachRow>
void ForRows(const MatmulJob& job, int begin, int end, EachRow each_row) {
  const PanelLayout layout = PanelLayoutOf(job.format);
  for (int row = begin * kPanelRows; row < std::min(end * kPanelRows, job.rows); ++row) {
    const uint8_t* panel = job.weights + static_cast<size_t>(row / kPanelRows) * job.panel_bytes;
    each_row(row, PanelRow{job.format, layout, panel, row % kPanelRows});
  }
}

void Int8Panels(const MatmulJob& job, int begin, int end) {
  std::vector<TokenCodes> tokens;
  std::vector<int> y_rows;
  for (int i = 0; i < job.run_count; ++i) {
    const TokenRun& run = job.runs[i];
    for (int t = 0; t < run.count; ++t) {
      tokens.emplace_back(job.q, run.tile, run.first + t);
      y_rows.push_back(run.y_row + t);
    }
  }
  ForRows(job, begin, end, [&](int row, const PanelRow& panel_row) {
    const PanelLayout& layout = panel_row.layout;
    const WeightRow w = LoadWeightRow(panel_row, job.cols);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float acc = layout.group == layout.act_group
                            ? DotGroups32(layout, w, tokens[i], job.cols)
                            : DotSuperBlocks(layout, w, tokens[i], job.cols);
      Finish(job, y_rows[i], row, acc);
    }
  });
}

void ScaleBlocks(const MatmulJob& job, int row, std::vector<float>& w) {
  const ptrdiff_t padded = ptrdiff_t{(job.rows + kPanelRows - 1) / kPanelRows} * kPanelRows;
  for (int k = 0; k < job.cols; ++k) {
    w[static_cast<size_t>(k)] *= job.block_scale[k / job.block_depth * padded + row];
  }
}

// act=f32: w decoded exactly, four chains over k modulo 4:
//   chain_c = fma(w_k, x_k, chain_c) for k = c, c + 4, …;  (chain_0 + chain_1) + (chain_2 +
//   chain_3)
void F32Panels(const MatmulJob& job, int begin, int end) {
  std::vector<float> w(static_cast<size_t>(job.cols));
  ForRows(job, begin, end, [&](int row, const PanelRow& panel_row) {
    panel_row.Decode(job.cols, w.data());
    if (job.block_scale != nullptr) ScaleBlocks(job, row, w);
    for (int i = 0; i < job.run_count; ++i) {
      const TokenRun& run = job.runs[i];
      for (int t = 0; t < run.count; ++t) {
        const float* x = job.x + (run.tile * kTokenTile + run.first + t) * job.x_stride;
        float chain[4] = {};
        for (int k = 0; k < job.cols; ++k) {
          chain[k % 4] = std::fma(w[static_cast<size_t>(k)], x[k], chain[k % 4]);
        }
        Finish(job, run.y_row + t, row, (chain[0] + chain[1]) + (chain[2] + chain[3]));
      }
    }
  });
}

}  // namespace

const MatmulKernels& ScalarMatmulKernels() {
  static constexpr MatmulKernels kKernels = [] {
    MatmulKernels kernels{};
    for (int i = 0; i < kFormatCount; ++i) {
      const bool integer = PanelLayoutOf(static_cast<Format>(i)).act_group != 0;
      kernels.int8[i] = integer ? Int8Panels : nullptr;
      kernels.f32[i] = F32Panels;
    }
    kernels.quantise = isa_scalar::QuantiseRow<LargestBits, GroupCodesOf>;
    return kernels;
  }();
  return kKernels;
}

}  // namespace nibble
