#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "kernels/matmul.h"
#include "kernels/pack_blocks.h"
#include "kernels/pack_floats.h"
#include "kernels/panel_row.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

size_t PanelBytes(const PanelLayout& layout, int cols) {
  return static_cast<size_t>(cols / layout.block) * static_cast<size_t>(layout.chunk_bytes);
}

struct PackJob {
  PanelLayout layout;
  PackChunkFn pack_chunk;  // null: floats
  size_t block_bytes;
  size_t row_bytes;
  int rows;
  int chunks;
  const std::byte* src;
  const std::byte* missing_block;
  uint8_t* dst;
};

void PackPanel(const PackJob& job, int panel) {
  const int first = panel * kPanelRows;
  const int rows = std::min(kPanelRows, job.rows - first);
  const std::byte* src = job.src + static_cast<size_t>(first) * job.row_bytes;
  uint8_t* chunk = job.dst + static_cast<size_t>(panel) * static_cast<size_t>(job.chunks) *
                                 static_cast<size_t>(job.layout.chunk_bytes);
  if (job.pack_chunk == nullptr) {
    return PackFloatPanel({.src = src,
                           .row_bytes = job.row_bytes,
                           .rows = rows,
                           .cols = job.chunks,
                           .element_bytes = static_cast<int>(job.block_bytes)},
                          chunk);
  }
  const std::byte* blocks[kPanelRows];
  for (int c = 0; c < job.chunks; ++c, chunk += job.layout.chunk_bytes) {
    for (int r = 0; r < kPanelRows; ++r) {
      blocks[r] = r < rows ? src + static_cast<size_t>(r) * job.row_bytes +
                                 static_cast<size_t>(c) * job.block_bytes
                           : job.missing_block;
    }
    job.pack_chunk(blocks, chunk);
  }
}

}  // namespace

size_t PackedMatrix::Bytes(Format format, int rows, int cols) {
  const size_t panels = static_cast<size_t>(CeilDiv(rows, kPanelRows));
  return RoundUp<size_t>(panels * PanelBytes(PanelLayoutOf(format), cols), 64);
}

PackedMatrix PackedMatrix::CopyTo(std::span<std::byte> dst) const {
  NIBBLE_CHECK(dst.size() >= bytes_.size());
  std::memcpy(dst.data(), bytes_.data(), bytes_.size());
  PackedMatrix copy = *this;
  copy.bytes_ = dst.first(bytes_.size());
  return copy;
}

PackedMatrix PackedMatrix::Pack(Format format, int rows, int cols,
                                std::span<const std::byte> file_rows, std::span<std::byte> dst,
                                ThreadPool& pool) {
  const FormatTraits& traits = TraitsOf(format);
  const PanelLayout layout = PanelLayoutOf(format);
  NIBBLE_CHECK(rows > 0 && cols > 0 && cols % layout.block == 0);
  const size_t row_bytes = traits.RowBytes(static_cast<size_t>(cols));
  NIBBLE_CHECK(file_rows.size() >= row_bytes * static_cast<size_t>(rows));
  NIBBLE_CHECK(dst.size() >= Bytes(format, rows, cols));

  std::array<std::byte, kLargestBlock> missing_block;
  FillMissingBlock(format, missing_block);
  const PackJob job = {.layout = layout,
                       .pack_chunk = ChunkPacker(format),
                       .block_bytes = static_cast<size_t>(traits.block_bytes),
                       .row_bytes = row_bytes,
                       .rows = rows,
                       .chunks = cols / layout.block,
                       .src = file_rows.data(),
                       .missing_block = missing_block.data(),
                       .dst = reinterpret_cast<uint8_t*>(dst.data())};
  pool.ParallelFor(CeilDiv(rows, kPanelRows), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) PackPanel(job, static_cast<int>(panel));
  });

  const size_t used = static_cast<size_t>(CeilDiv(rows, kPanelRows)) * PanelBytes(layout, cols);
  std::ranges::fill(dst.subspan(used, Bytes(format, rows, cols) - used), std::byte{0});

  PackedMatrix matrix;
  matrix.format_ = format;
  matrix.rows_ = rows;
  matrix.cols_ = cols;
  matrix.bytes_ = dst.first(Bytes(format, rows, cols));
  return matrix;
}

ActNeeds PackedMatrix::NeedsOf(Format format, Act act, const ActForm& form) {
  const bool floats = form.IsInt8() ? false : act == Act::kF32;
  const int group = floats ? 0 : PanelLayoutOf(format).act_group;
  return {
      .f32 = group == 0, .group32 = group == 32, .group256 = group == 256, .copy = form.Copies()};
}

size_t PackedMatrix::BlockScaleFloats(int rows, int cols, int depth) {
  return static_cast<size_t>(CeilDiv(cols, depth)) * static_cast<size_t>(RoundUp(rows, kPanelRows));
}

void PackedMatrix::SetBlockScales(const float* scales, int depth) {
  NIBBLE_CHECK(format_ == Format::kF8E4M3 && depth > 0);
  block_scales_ = scales;
  block_depth_ = depth;
}

void PackedMatrix::DecodeRow(int row, float* dst) const {
  const PanelLayout layout = PanelLayoutOf(format_);
  const auto* bytes = reinterpret_cast<const uint8_t*>(bytes_.data());
  const PanelRow panel_row = {
      format_, layout, bytes + static_cast<size_t>(row / kPanelRows) * PanelBytes(layout, cols_),
      row % kPanelRows};
  panel_row.Decode(cols_, dst);
  if (block_scales_ != nullptr) {
    const int padded = RoundUp(rows_, kPanelRows);
    for (int c = 0; c < cols_; ++c) {
      dst[c] *= block_scales_[ptrdiff_t{c / block_depth_} * padded + row];
    }
  }
  if (row_scales_ == nullptr) return;
  for (int c = 0; c < cols_; ++c) dst[c] *= row_scales_[row];
}

}  // namespace nibble
