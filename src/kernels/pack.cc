#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "kernels/matmul.h"
#include "kernels/pack_blocks.h"
#include "kernels/panel_codes.h"
#include "kernels/panel_row.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

size_t PanelBytes(const PanelLayout& layout, int cols) {
  return static_cast<size_t>(cols / layout.block) * static_cast<size_t>(layout.chunk_bytes);
}

struct PackJob {
  PanelLayout layout;
  ReadBlockFn read_block;
  size_t block_bytes;
  size_t row_bytes;
  int rows;
  int chunks;
  const std::byte* src;
  uint8_t* dst;
};

void PackPanel(const PackJob& job, int panel) {
  const PanelLayout& layout = job.layout;
  const int first = panel * kPanelRows;
  const int rows = std::min(kPanelRows, job.rows - first);
  uint8_t* chunk = job.dst + static_cast<size_t>(panel) * static_cast<size_t>(job.chunks) *
                                 static_cast<size_t>(layout.chunk_bytes);
  // Groups of 32 outside rows, as StoreCodes takes them.
  alignas(64) uint8_t codes[8][kPanelRows][32] = {};
  RowSide no_row;
  if (layout.side == SideKind::kE8M0) no_row.scales[0] = 127;  // 2^-128 would be a denormal
  for (int c = 0; c < job.chunks; ++c, chunk += layout.chunk_bytes) {
    uint8_t* all_codes = chunk + layout.side_bytes();
    for (int r = 0; r < kPanelRows; ++r) {
      RowSide row_side = no_row;
      if (r < rows) {
        uint8_t row_codes[256];
        job.read_block(job.src + static_cast<size_t>(first + r) * job.row_bytes +
                           static_cast<size_t>(c) * job.block_bytes,
                       row_codes, row_side);
        for (int g = 0; g < layout.block / 32; ++g) {
          std::memcpy(codes[g][r], row_codes + 32 * g, 32);
        }
      }
      StoreSide(layout.side, row_side, r, chunk);
    }
    for (int g = 0; g < layout.block / 32; ++g) {
      StoreCodes(layout.planes, codes[g], all_codes + g * layout.group32_bytes());
    }
  }
}

// [depth][16 rows] from rows of the file.
template <size_t kBytes>
void PackFloatPanel(const PackJob& job, int panel) {
  const int first = panel * kPanelRows;
  uint8_t* out =
      job.dst + static_cast<size_t>(panel) * static_cast<size_t>(job.chunks) * kBytes * kPanelRows;
  const int rows = std::min(kPanelRows, job.rows - first);
  const std::byte* panel_rows = job.src + static_cast<size_t>(first) * job.row_bytes;
  for (int k = 0; k < job.chunks; ++k, out += kBytes * kPanelRows) {
    const std::byte* column = panel_rows + static_cast<size_t>(k) * kBytes;
    for (int r = 0; r < rows; ++r) {
      std::memcpy(out + static_cast<size_t>(r) * kBytes,
                  column + static_cast<size_t>(r) * job.row_bytes, kBytes);
    }
    const auto used = static_cast<size_t>(rows) * kBytes;
    std::memset(out + used, 0, kBytes * kPanelRows - used);
  }
}

void PackOne(const PackJob& job, int panel) {
  if (job.layout.planes != CodePlanes::kFloat) return PackPanel(job, panel);
  if (job.block_bytes == 4) return PackFloatPanel<4>(job, panel);
  if (job.block_bytes == 2) return PackFloatPanel<2>(job, panel);
  PackFloatPanel<1>(job, panel);
}

}  // namespace

size_t PackedMatrix::Bytes(Format format, int rows, int cols) {
  const size_t panels = static_cast<size_t>(CeilDiv(rows, kPanelRows));
  return RoundUp<size_t>(panels * PanelBytes(PanelLayoutOf(format), cols), 64);
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

  const PackJob job = {.layout = layout,
                       .read_block = BlockReader(format),
                       .block_bytes = static_cast<size_t>(traits.block_bytes),
                       .row_bytes = row_bytes,
                       .rows = rows,
                       .chunks = cols / layout.block,
                       .src = file_rows.data(),
                       .dst = reinterpret_cast<uint8_t*>(dst.data())};
  pool.ParallelFor(CeilDiv(rows, kPanelRows), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) PackOne(job, static_cast<int>(panel));
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

ActNeeds PackedMatrix::NeedsOf(Format format, Act act) {
  const int group = act == Act::kF32 ? 0 : PanelLayoutOf(format).act_group;
  return {.f32 = group == 0, .group32 = group == 32, .group256 = group == 256};
}

void PackedMatrix::DecodeRow(int row, float* dst) const {
  const PanelLayout layout = PanelLayoutOf(format_);
  const auto* bytes = reinterpret_cast<const uint8_t*>(bytes_.data());
  const PanelRow panel_row = {
      format_, layout, bytes + static_cast<size_t>(row / kPanelRows) * PanelBytes(layout, cols_),
      row % kPanelRows};
  panel_row.Decode(cols_, dst);
}

}  // namespace nibble
