#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/math.h"
#include "format/fp4.h"
#include "format/grouped_quants.h"
#include "format/iq4.h"
#include "format/kquants.h"
#include "format/legacy_quants.h"
#include "kernels/matmul.h"
#include "kernels/matmul_test_support.h"
#include "kernels/panel_layout.h"
#include "kernels/panel_side.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// The panels of kernels/panel_layout.h written again, bit by bit from each format's own functions:
// what packing must give, byte for byte.

struct FileBlock {
  uint8_t codes[256] = {};  // element order, as panels hold them
  RowSide side;
};

template <class Block>
Block Load(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

template <class Block>
FileBlock Legacy(const std::byte* bytes) {
  const auto block = Load<Block>(bytes);
  FileBlock out;
  if constexpr (requires { block.qh; }) {
    CodesOfNibblesAndHigh(block.qs, block.qh, out.codes);
  } else if constexpr (sizeof block.qs == 32) {
    for (int i = 0; i < 32; ++i) out.codes[i] = static_cast<uint8_t>(block.qs[i] + 128);
  } else {
    CodesOfNibbles(block.qs, out.codes);
  }
  if constexpr (requires { block.d; }) out.side.d = block.d;
  if constexpr (requires { block.m; }) out.side.m = block.m;
  if constexpr (requires { block.e; }) out.side.scales[0] = block.e;
  return out;
}

template <class Block>
FileBlock KQuant(const std::byte* bytes) {
  const auto block = Load<Block>(bytes);
  FileBlock out;
  CodesOf(block, out.codes);
  out.side.d = block.d;
  if constexpr (requires { block.dmin; }) out.side.m = block.dmin;
  for (int g = 0; g < 16; ++g) {
    uint8_t& scale = out.side.scales[g];
    if constexpr (std::is_same_v<Block, BlockQ2K>) {
      scale = block.scales[g] & 15;
      out.side.mins[g] = block.scales[g] >> 4;
    } else if constexpr (std::is_same_v<Block, BlockQ3K>) {
      scale = static_cast<uint8_t>(Q3KScale(block.scales, g) + 32);
    } else if constexpr (std::is_same_v<Block, BlockQ6K>) {
      scale = static_cast<uint8_t>(block.scales[g]);
    } else if (g < 8) {
      scale = ScaleMinOf(block.scales, g).scale;
      out.side.mins[g] = ScaleMinOf(block.scales, g).min;
    }
  }
  return out;
}

FileBlock Iq4Xs(const std::byte* bytes) {
  const auto block = Load<BlockIq4Xs>(bytes);
  FileBlock out;
  out.side.d = block.d;
  for (int g = 0; g < 8; ++g) {
    CodesOfNibbles(block.qs + 16 * g, out.codes + 32 * g);
    out.side.scales[g] = static_cast<uint8_t>(Iq4XsScale(block, g) + 32);
  }
  return out;
}

FileBlock Nvfp4(const std::byte* bytes) {
  const auto block = Load<BlockNvfp4>(bytes);
  FileBlock out;
  for (int i = 0; i < 64; ++i) {
    const uint8_t pair = block.qs[i / 16 * 8 + i % 8];
    out.codes[i] = i % 16 < 8 ? pair & 15 : pair >> 4;
  }
  std::memcpy(out.side.scales, block.d, sizeof block.d);
  return out;
}

template <class Block>
FileBlock Grouped(const std::byte* bytes) {
  const auto block = Load<Block>(bytes);
  FileBlock out;
  constexpr size_t kGroup =
      std::is_same_v<Block, BlockW8<sizeof block.qs>> ? sizeof block.qs : 2 * sizeof block.qs;
  for (size_t i = 0; i < kGroup; ++i) {
    const uint8_t pair = block.qs[i / 32 * 16 + i % 16];
    out.codes[i] = sizeof block.qs == kGroup ? block.qs[i] : i % 32 < 16 ? pair & 15 : pair >> 4;
  }
  std::memcpy(&out.side.d, block.d, sizeof block.d);
  out.side.zero = block.z;
  return out;
}

FileBlock Read(Format format, const std::byte* bytes) {
  switch (format) {
    case Format::kQ4_0:
      return Legacy<BlockQ4_0>(bytes);
    case Format::kQ4_1:
      return Legacy<BlockQ4_1>(bytes);
    case Format::kQ5_0:
      return Legacy<BlockQ5_0>(bytes);
    case Format::kQ5_1:
      return Legacy<BlockQ5_1>(bytes);
    case Format::kQ8_0:
      return Legacy<BlockQ8_0>(bytes);
    case Format::kIq4Nl:
      return Legacy<BlockIq4Nl>(bytes);
    case Format::kMxfp4:
      return Legacy<BlockMxfp4>(bytes);
    case Format::kQ2K:
      return KQuant<BlockQ2K>(bytes);
    case Format::kQ3K:
      return KQuant<BlockQ3K>(bytes);
    case Format::kQ4K:
      return KQuant<BlockQ4K>(bytes);
    case Format::kQ5K:
      return KQuant<BlockQ5K>(bytes);
    case Format::kQ6K:
      return KQuant<BlockQ6K>(bytes);
    case Format::kIq4Xs:
      return Iq4Xs(bytes);
    case Format::kNvfp4:
      return Nvfp4(bytes);
    case Format::kW4G32:
      return Grouped<BlockW4<32>>(bytes);
    case Format::kW4G64:
      return Grouped<BlockW4<64>>(bytes);
    case Format::kW4G128:
      return Grouped<BlockW4<128>>(bytes);
    case Format::kW8G32:
      return Grouped<BlockW8<32>>(bytes);
    case Format::kW8G64:
      return Grouped<BlockW8<64>>(bytes);
    case Format::kW8G128:
      return Grouped<BlockW8<128>>(bytes);
    default:
      ADD_FAILURE() << "no blocks";
      return {};
  }
}

void Or(uint8_t& byte, int value, int shift) { byte = static_cast<uint8_t>(byte | value << shift); }

// Code of depth k (of 32) of a row; dst is zero before.
void PutCode(CodePlanes planes, int row, int k, int code, uint8_t* dst) {
  const int step = k / 4;
  uint8_t* at = dst + row * 4 + k % 4;
  const auto nibble = [&] { Or(at[step % 4 * 64], code & 15, step / 4 * 4); };
  const auto crumb = [&](int first, int value) {
    Or(at[(first + step / 4) * 64], value & 3, step % 4 * 2);
  };
  const auto bit = [&](int first, int value) { Or(at[first * 64], value & 1, step); };
  switch (planes) {
    case CodePlanes::kNibble:
      return nibble();
    case CodePlanes::kNibbleBit:
      return nibble(), bit(4, code >> 4);
    case CodePlanes::kNibbleCrumb:
      return nibble(), crumb(4, code >> 4);
    case CodePlanes::kCrumb:
      return crumb(0, code);
    case CodePlanes::kCrumbBit:
      return crumb(0, code), bit(2, code >> 2);
    case CodePlanes::kByte:
      return Or(at[step * 64], code, 0);
    case CodePlanes::kFloat:
      ADD_FAILURE() << "no codes";
  }
}

void PutHalf(int row, uint16_t bits, uint8_t* dst) { std::memcpy(dst + 2 * row, &bits, 2); }

// Scales of a row; side is zero before.
void PutSide(SideKind kind, int row, const RowSide& from, uint8_t* side) {
  uint8_t* at = side + row + 32;  // row's byte in arrays after d[16]
  const auto array = [&](int i) -> uint8_t& { return at[i * 16]; };
  if (kind != SideKind::kE8M0 && kind != SideKind::kUe4m3) PutHalf(row, from.d, side);
  switch (kind) {
    case SideKind::kNone:
    case SideKind::kF16:
      return;
    case SideKind::kF16Min:
      return PutHalf(row, from.m, side + 32);
    case SideKind::kF16Zero:
      array(0) = from.zero;
      return;
    case SideKind::kE8M0:
      side[row] = from.scales[0];
      return;
    case SideKind::kUe4m3:
      for (int g = 0; g < 4; ++g) side[g * 16 + row] = from.scales[g];
      return;
    case SideKind::kK6Min:
      PutHalf(row, from.m, side + 32);
      for (int g = 0; g < 8; ++g) {
        Or(array(2 + g), (from.scales[g] & 15) | (from.mins[g] & 15) << 4, 0);
        Or(array(10 + g % 4), from.scales[g] >> 4 | (from.mins[g] >> 4) << 4, g / 4 * 2);
      }
      return;
    case SideKind::kK4Min:
      PutHalf(row, from.m, side + 32);
      for (int g = 0; g < 16; ++g) Or(array(2 + g), from.scales[g] | from.mins[g] << 4, 0);
      return;
    case SideKind::kI8:
      for (int g = 0; g < 16; ++g) array(g) = from.scales[g];
      return;
    case SideKind::kK6Signed:
      for (int g = 0; g < 16; ++g) {
        Or(array(g % 8), from.scales[g] & 15, g / 8 * 4);
        Or(array(8 + g % 4), from.scales[g] >> 4, g / 4 * 2);
      }
      return;
    case SideKind::kIq4Xs:
      for (int g = 0; g < 8; ++g) {
        Or(array(g % 4), from.scales[g] & 15, g / 4 * 4);
        Or(array(4 + g % 2), from.scales[g] >> 4, g / 2 * 2);
      }
      return;
  }
}

std::vector<std::byte> Expected(Format format, int rows, int cols,
                                const std::vector<std::byte>& file) {
  const PanelLayout layout = PanelLayoutOf(format);
  std::vector<std::byte> packed(PackedMatrix::Bytes(format, rows, cols));
  auto* out = reinterpret_cast<uint8_t*>(packed.data());
  const auto block_bytes = static_cast<size_t>(TraitsOf(format).block_bytes);
  const int chunks = cols / layout.block;
  for (int r = 0; r < static_cast<int>(RoundUp(rows, kPanelRows)); ++r) {
    for (int c = 0; c < chunks; ++c) {
      uint8_t* chunk =
          out + static_cast<ptrdiff_t>(r / kPanelRows * chunks + c) * layout.chunk_bytes;
      const int row = r % kPanelRows;
      if (r >= rows) {  // zero codes and scales, but for an exponent whose float would be denormal
        if (layout.side == SideKind::kE8M0) chunk[row] = 127;
        continue;
      }
      const std::byte* bytes = file.data() + static_cast<size_t>(r * chunks + c) * block_bytes;
      if (layout.planes == CodePlanes::kFloat) {
        std::memcpy(chunk + static_cast<size_t>(row) * block_bytes, bytes, block_bytes);
        continue;
      }
      const FileBlock block = Read(format, bytes);
      PutSide(layout.side, row, block.side, chunk);
      for (int k = 0; k < layout.block; ++k) {
        PutCode(layout.planes, row, k % 32, block.codes[k],
                chunk + layout.side_bytes() + k / 32 * layout.group32_bytes());
      }
    }
  }
  return packed;
}

class PackTest : public ::testing::TestWithParam<Format> {};

TEST_P(PackTest, RandomBytesLandWhereTheLayoutSays) {
  const Format format = GetParam();
  const int block = TraitsOf(format).block_elements;
  std::mt19937 engine(17);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    for (const int rows : {1, 15, 16, 17, 40}) {
      for (const int blocks : {1, 2, 3, 16, 37, 64}) {
        const int cols = blocks * block;
        const size_t bytes =
            TraitsOf(format).RowBytes(static_cast<size_t>(cols)) * static_cast<size_t>(rows);
        // Misaligned as rows of a file may be; and not a byte longer, for the sanitizers.
        const size_t offset = engine() % 3;
        std::vector<std::byte> file(bytes);
        for (std::byte& byte : file) byte = static_cast<std::byte>(engine() >> 24);
        std::vector<std::byte> misaligned(offset + bytes);
        std::ranges::copy(file, misaligned.begin() + static_cast<ptrdiff_t>(offset));
        std::vector<std::byte> packed(PackedMatrix::Bytes(format, rows, cols), std::byte{0xa5});
        PackedMatrix::Pack(format, rows, cols, std::span(misaligned).subspan(offset), packed, pool);
        const std::vector<std::byte> expected = Expected(format, rows, cols, file);
        const auto [got, wanted] = std::ranges::mismatch(packed, expected);
        ASSERT_EQ(got, packed.end())
            << "rows " << rows << " cols " << cols << " byte " << got - packed.begin() << ": "
            << std::to_integer<int>(*got) << " instead of " << std::to_integer<int>(*wanted);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackTest, ::testing::ValuesIn(testing::AllFormatsParam()),
                         testing::FormatName);

}  // namespace
}  // namespace nibble
