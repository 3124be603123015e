#include "quantize/encode_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "format/small_float.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// An f32 tensor in memory.
struct Tensor {
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  Tensor(uint64_t rows, uint64_t cols) : values(rows * cols) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 0.05f);
    for (float& value : values) value = normal(random);
    view.name = "blk.0.w";
    view.tensor = &source;
    source.format = Format::kF32;
    source.rank = 2;
    source.shape = {rows, cols};
    source.bytes = std::as_bytes(std::span(values));
  }
  std::vector<float> values;
  SourceTensor source;
  TensorView view;
};

struct Encoded {
  Result<EncodeLoss> loss = EncodeLoss{};
  std::vector<std::byte> bytes;
  uint64_t progress = 0;
};
Encoded Encode(const Tensor& tensor, const EncodeTarget& to, int threads) {
  ThreadPool pool(threads);
  Encoded encoded;
  encoded.loss = EncodeTensor(
      tensor.view, to, pool,
      [&](std::span<const std::byte> bytes) -> Status {
        encoded.bytes.insert(encoded.bytes.end(), bytes.begin(), bytes.end());
        return {};
      },
      [&](uint64_t weights) { encoded.progress += weights; });
  return encoded;
}

TEST(EncodeTensor, RowsAreWhatTheFormatMakesOfThem) {
  const Tensor tensor(37, 512);
  const std::vector<float> importance(512, 0.5f);
  for (const FormatTraits& traits : AllFormats()) {
    for (const bool weighted : {false, true}) {
      EncodeTarget to = {.format = traits.format};
      if (weighted) to.importance = importance;
      const Encoded found = Encode(tensor, to, 3);
      ASSERT_TRUE(found.loss.has_value());
      ASSERT_EQ(found.bytes.size(), 37 * traits.RowBytes(512)) << traits.name;
      EXPECT_EQ(found.progress, uint64_t{37} * 512);
      std::vector<std::byte> row(traits.RowBytes(512));
      double squared_error = 0;
      for (size_t r = 0; r < 37; ++r) {
        const float* values = tensor.values.data() + r * 512;
        if (weighted && traits.encode_weighted != nullptr) {
          traits.encode_weighted(values, importance.data(), row.data(), 512);
        } else {
          traits.encode(values, row.data(), 512);
        }
        ASSERT_TRUE(
            std::ranges::equal(row, std::span(found.bytes).subspan(r * row.size(), row.size())))
            << traits.name << " row " << r;
        std::vector<float> decoded(512);
        traits.decode(row.data(), decoded.data(), 512);
        for (size_t c = 0; c < 512; ++c) {
          squared_error += std::pow(double{decoded[c]} - double{values[c]}, 2);
        }
      }
      EXPECT_NEAR(found.loss->squared_error, squared_error, 1e-9 * squared_error);
      EXPECT_EQ(found.loss->weights, uint64_t{37} * 512);
      EXPECT_LT(found.loss->RelativeError(), 1.5 * traits.relative_error + 1e-12) << traits.name;
    }
  }
}

// More rows than the few MB that are encoded at once, and any number of threads.
TEST(EncodeTensor, ChunksAndThreadsChangeNothing) {
  const Tensor tensor(5000, 1024);
  const Encoded one = Encode(tensor, {.format = Format::kQ8_0}, 1);
  const Encoded three = Encode(tensor, {.format = Format::kQ8_0}, 3);
  EXPECT_EQ(one.bytes, three.bytes);
  EXPECT_EQ(one.loss->squared_error, three.loss->squared_error);
  EXPECT_EQ(one.progress, uint64_t{5000} * 1024);
}

TEST(EncodeTensor, SaysWhatStandsOut) {
  Tensor tensor(4, 256);
  std::ranges::fill(tensor.values, 1.0f);
  tensor.values[300] = -100.0f;
  const Encoded found = Encode(tensor, {.format = Format::kF32}, 1);
  EXPECT_EQ(found.loss->RelativeError(), 0);
  EXPECT_EQ(found.loss->largest, 100.0f);
  EXPECT_NEAR(found.loss->OutlierRatio(), 100 / std::sqrt((1023 + 1e4) / 1024), 1e-6);
  std::ranges::fill(tensor.values, 0.0f);
  const Encoded none = Encode(tensor, {.format = Format::kQ4K}, 1);
  EXPECT_EQ(none.loss->RelativeError(), 0);
  EXPECT_EQ(none.loss->OutlierRatio(), 0);
}

TEST(EncodeTensor, NamesTheFirstWeightThatIsNoNumber) {
  Tensor tensor(64, 256);
  tensor.values[40 * 256 + 7] = std::numeric_limits<float>::quiet_NaN();
  tensor.values[21 * 256 + 255] = std::numeric_limits<float>::infinity();
  for (const int threads : {1, 3}) {
    const Encoded found = Encode(tensor, {.format = Format::kQ4_0}, threads);
    ASSERT_FALSE(found.loss.has_value());
    EXPECT_EQ(found.loss.error().message,
              "'blk.0.w' row 21 column 255: expected a finite weight, found inf");
  }
}

TEST(EncodeTensor, PassesOnTheErrorOfItsReader) {
  const Tensor tensor(4, 256);
  ThreadPool pool(1);
  const auto found = EncodeTensor(
      tensor.view, {.format = Format::kQ8_0}, pool,
      [](std::span<const std::byte>) -> Status { return IoError("disk full"); }, [](uint64_t) {});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message, "disk full");
}

}  // namespace
}  // namespace nibble
