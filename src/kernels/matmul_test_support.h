#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "format/format.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul.h"
#include "kernels/matmul_kernels.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"

namespace nibble::testing {

inline std::vector<Format> AllFormatsParam() {
  std::vector<Format> formats;
  for (const FormatTraits& traits : AllFormats()) formats.push_back(traits.format);
  return formats;
}

inline std::string FormatName(const ::testing::TestParamInfo<Format>& info) {
  return std::string(TraitsOf(info.param).name);
}

// A table with the matmul kernels only.
inline KernelTable TableFor(Isa isa) { return {isa, &MatmulKernelsFor(isa), nullptr, nullptr}; }

// Normally distributed with some outliers.
inline std::vector<float> RandomInput(int rows, int cols, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < x.size(); ++i) x[i] = normal(engine) * (i % 97 == 13 ? 30.0f : 1.0f);
  return x;
}

// Offsets of the f16 fields of a block.
inline std::vector<size_t> F16Fields(Format format) {
  switch (format) {
    case Format::kQ4_0:
    case Format::kQ5_0:
    case Format::kQ8_0:
    case Format::kIq4Nl:
    case Format::kIq4Xs:
    case Format::kW4G32:
    case Format::kW4G64:
    case Format::kW4G128:
    case Format::kW8G32:
    case Format::kW8G64:
    case Format::kW8G128:
      return {0};
    case Format::kQ4_1:
    case Format::kQ5_1:
    case Format::kQ4K:
    case Format::kQ5K:
      return {0, 2};
    case Format::kQ2K:
      return {80, 82};
    case Format::kQ3K:
      return {108};
    case Format::kQ6K:
      return {208};
    default:
      return {};
  }
}

// File bytes of random codes with finite scales of both signs, and their packed form.
class MatmulCase {
 public:
  MatmulCase(Format format, int rows, int cols, unsigned seed, ThreadPool& pool)
      : MatmulCase(format, rows, cols, RandomFile(format, rows, cols, seed), pool) {}

  // Every byte of the codes the same; the scales are 1.
  static MatmulCase Filled(Format format, int rows, int cols, uint8_t fill, ThreadPool& pool) {
    std::vector<std::byte> file(RowBytes(format, cols) * static_cast<size_t>(rows),
                                std::byte{fill});
    SetScales(format, file, [] { return uint16_t{0x3c00}; });
    return {format, rows, cols, std::move(file), pool};
  }
  // Random codes; every f16 scale and minimum is the given one.
  static MatmulCase WithScale(Format format, int rows, int cols, uint16_t scale, ThreadPool& pool) {
    std::vector<std::byte> file = RandomFile(format, rows, cols, 5);
    SetScales(format, file, [&] { return scale; });
    return {format, rows, cols, std::move(file), pool};
  }

  const PackedMatrix& weights() const { return weights_; }
  const std::byte* file_row(int r) const { return file_.data() + static_cast<size_t>(r) * row_; }

 private:
  MatmulCase(Format format, int rows, int cols, std::vector<std::byte> file, ThreadPool& pool)
      : row_(RowBytes(format, cols)), file_(std::move(file)) {
    auto buffer = AlignedBuffer::Allocate(PackedMatrix::Bytes(format, rows, cols));
    NIBBLE_CHECK(buffer.has_value());
    packed_ = std::move(*buffer);
    weights_ = PackedMatrix::Pack(format, rows, cols, file_, packed_.as<std::byte>(), pool);
  }

  static size_t RowBytes(Format format, int cols) {
    return TraitsOf(format).RowBytes(static_cast<size_t>(cols));
  }

  template <class NextScale>
  static void SetScales(Format format, std::vector<std::byte>& file, NextScale next) {
    const auto block = static_cast<size_t>(TraitsOf(format).block_bytes);
    for (size_t begin = 0; begin < file.size(); begin += block) {
      for (const size_t field : F16Fields(format)) {
        const uint16_t bits = next();
        std::memcpy(file.data() + begin + field, &bits, sizeof bits);
      }
      if (format == Format::kMxfp4) file[begin] = static_cast<std::byte>(127 + (next() & 3));
    }
  }

  static std::vector<std::byte> RandomFile(Format format, int rows, int cols, unsigned seed) {
    std::mt19937 engine(seed);
    std::vector<std::byte> file(RowBytes(format, cols) * static_cast<size_t>(rows));
    const FormatTraits& traits = TraitsOf(format);
    if (traits.block_elements == 1) {  // random bits would hold infinities
      std::normal_distribution<float> normal;
      std::vector<float> values(static_cast<size_t>(rows * cols));
      for (float& value : values) value = normal(engine);
      traits.encode(values.data(), file.data(), values.size());
      return file;
    }
    for (std::byte& byte : file) byte = static_cast<std::byte>(engine() >> 24);
    // Between 2^-12 and 2^-8, either sign.
    SetScales(format, file, [&] {
      return static_cast<uint16_t>((engine() & 0x8000u) | (0x0c00u + engine() % 0x1000u));
    });
    return file;
  }

  size_t row_ = 0;
  std::vector<std::byte> file_;
  AlignedBuffer packed_;
  PackedMatrix weights_;
};

}  // namespace nibble::testing
