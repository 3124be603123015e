#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format.h"
#include "platform/cpu.h"

namespace nibble {

inline constexpr int kTokenTile = 8;  // rows of activations that are stored interleaved

// Activation rows as int8 groups of G depths (G = 32 or 256), in tiles of 8 rows; the last tile of
// w < 8 rows is stored with w in the place of 8. Tile t of an array with n entries per row begins
// at entry 8 t n; entry (i, row in tile) is at i w + row.
struct QuantisedRows {
  const int8_t* codes;        // [depth / 4][w][4]
  const float* scale;         // [depth / G][w]: da
  const float* scaled_sum;    // [depth / 32][w]: da · Σa; G = 32 only
  const int32_t* neg_sum32;   // [depth / 32][w]: −Σa, the offset correction before its shift
  const int32_t* neg_sum16;   // [depth / 16][w]
  const int32_t* sum_pair32;  // [depth / 64][w]: two i16, Σa of two neighbouring 32s; G = 256 only
  const int32_t* sum_pair16;  // [depth / 32][w]: of two neighbouring 16s; G = 256 only
  int rows;
  int depth;  // padded to whole groups
};

// Consecutive rows of one tile: rows [first, first + count) of tile `tile`, whose results go to
// rows y_row … of y.
struct TokenRun {
  int tile;
  int first;
  int count;
  int y_row;
};

// How the kernels for few tokens ask for weights in advance.
enum class Prefetch : uint8_t {
  kNone,    // they are in a cache
  kTwice,   // every line at two distances
  kSparse,  // about one line in four: the processor's own prefetcher does the rest
};

// One matrix times one activation block; weights in the order of kernels/panel_layout.h.
struct MatmulJob {
  const uint8_t* weights;
  Format format;
  int rows;
  int cols;
  size_t panel_bytes;
  float* y;
  ptrdiff_t y_stride;
  const float* row_scale;    // [rows] or null
  const float* block_scale;  // kF8E4M3: [ceil(cols / block_depth)][rows rounded up to 16], or null
  int block_depth;
  const float* bias;  // or null
  bool accumulate;
  QuantisedRows q;  // act=int8
  const float* x;   // act=f32: row i at x + i * x_stride
  ptrdiff_t x_stride;
  const TokenRun* runs;
  int run_count;
  Prefetch prefetch;
};

// Computes all runs for the panels [begin, end).
using PanelFn = void (*)(const MatmulJob& job, int begin, int end);

// Where one row of activations goes: pointers at its first entry, entries `width` apart.
struct QuantisedRowOut {
  int8_t* codes;
  float* scale;
  float* scaled_sum;
  int32_t* neg_sum32;
  int32_t* neg_sum16;
  int32_t* sum_pair32;
  int32_t* sum_pair16;
  int width;
};
// How a row is cut into scales: each group has its own (32 or 256 depths), or, with groups of 32,
// the whole row has one, of its own largest magnitude or a given one.
struct QuantiseRule {
  int group = 32;
  bool whole_row = false;
  float row_scale = 0;  // whole_row: this one; 0: the row's own
};
// Quantises one row of `cols` floats by the definition in kernels/activations.h. With a given scale
// no |x| may be above 127 scales.
using QuantiseFn = void (*)(const float* x, int cols, const QuantiseRule& rule,
                            const QuantisedRowOut& out);

struct MatmulKernels {
  PanelFn int8[kFormatCount];  // null where the format computes as act=f32 only
  PanelFn f32[kFormatCount];
  QuantiseFn quantise;
};

const MatmulKernels& MatmulKernelsFor(Isa isa);

}  // namespace nibble
