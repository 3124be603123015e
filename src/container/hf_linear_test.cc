#include "container/hf_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "container/hf_scheme.h"
#include "format/format.h"
#include "format/grouped_quants.h"
#include "format/small_float.h"
#include "tests/support/layout_goldens.h"

namespace nibble {
namespace {

using testing::LayoutGolden;

HfParts PartsOf(const TensorSource& source, const std::string& module) {
  const auto find = [&](std::initializer_list<const char*> names) -> const SourceTensor* {
    for (const char* name : names) {
      if (const SourceTensor* tensor = source.Find(module + "." + name)) return tensor;
    }
    return nullptr;
  };
  return {.codes = find({"qweight", "weight_packed", "weight"}),
          .scales = find({"scales", "weight_scale", "SCB"}),
          .zeros = find({"qzeros", "weight_zero_point"}),
          .groups = find({"g_idx", "weight_g_idx"}),
          .shape = find({"weight_shape"})};
}

// The floats of DecodeHfRows and their scales, inputs in their own order.
std::vector<float> Decoded(const HfLinear& linear) {
  const auto cols = static_cast<size_t>(linear.cols);
  const FormatTraits& traits = TraitsOf(linear.format);
  std::vector<std::byte> bytes(traits.RowBytes(cols) * static_cast<size_t>(linear.rows));
  // In two pieces: rows do not depend on where a piece begins.
  const int half = linear.rows / 2;
  DecodeHfRows(linear, 0, half, bytes.data());
  DecodeHfRows(linear, half, linear.rows - half,
               bytes.data() + traits.RowBytes(cols) * static_cast<size_t>(half));
  std::vector<float> row_scales(static_cast<size_t>(linear.rows));
  HfRowScales(linear, 0, linear.rows, row_scales.data());
  std::vector<float> out(cols * static_cast<size_t>(linear.rows));
  std::vector<float> row(cols);
  std::vector<float> blocks(linear.block_scales ? static_cast<size_t>(linear.rows * linear.groups)
                                                : 0);
  for (int b = 0; linear.block_scales && b < linear.groups; ++b) {
    HfBlockScales(linear, b, 0, linear.rows, blocks.data() + ptrdiff_t{b} * linear.rows);
  }
  for (size_t r = 0; r < static_cast<size_t>(linear.rows); ++r) {
    traits.decode(bytes.data() + r * traits.RowBytes(cols), row.data(), cols);
    for (size_t c = 0; c < cols; ++c) {
      const size_t to = linear.order.empty() ? c : static_cast<size_t>(linear.order[c]);
      out[r * cols + to] = row[c] * row_scales[r];
      if (linear.block_scales) {
        out[r * cols + to] =
            row[c] *
            blocks[c / static_cast<size_t>(linear.group) * static_cast<size_t>(linear.rows) + r];
      }
    }
  }
  return out;
}

std::vector<float> Dequantised(const HfLinear& linear) {
  std::vector<float> out(static_cast<size_t>(linear.rows) * static_cast<size_t>(linear.cols));
  DequantiseHfRows(linear, 0, linear.rows, out.data());
  return out;
}

class HfLinearTest : public ::testing::TestWithParam<std::string> {
 protected:
  const LayoutGolden golden_ = LayoutGolden::Read(GetParam());
};

TEST_P(HfLinearTest, ReadsWhatNumpyPacked) {
  const HfHints exact = {.bits = golden_.scheme.bits, .group = golden_.scheme.group};
  // Shapes alone tell the same, but for GPTQ's v1 and v2, which look alike.
  for (const HfHints& hints : {exact, HfHints{}}) {
    const auto linear =
        ReadHfLinear(golden_.scheme.layout, PartsOf(golden_.model.tensors(), "layer"), hints);
    ASSERT_TRUE(linear) << linear.error().message;
    EXPECT_EQ(linear->rows, golden_.matrix.rows);
    EXPECT_EQ(linear->cols, golden_.matrix.cols);
    EXPECT_EQ(linear->bits, golden_.scheme.bits);
    EXPECT_EQ(linear->group, golden_.matrix.group);
    EXPECT_TRUE(IsGrouped(linear->format)) << TraitsOf(linear->format).name;
    EXPECT_EQ(linear->order.empty(), !golden_.scheme.act_order);
    EXPECT_EQ(Dequantised(*linear), golden_.w);
    EXPECT_EQ(Decoded(*linear), golden_.w);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, HfLinearTest, ::testing::ValuesIn(LayoutGolden::Names()),
                         [](const auto& info) { return info.param; });

// Tensors of a linear in memory.
class MadeLinear {
 public:
  template <class T>
  const SourceTensor* Add(std::string_view type, std::vector<uint64_t> shape,
                          const std::vector<T>& values) {
    data_.emplace_back(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    SourceTensor tensor;
    tensor.name = "made";
    tensor.type_name = type;
    tensor.rank = static_cast<int>(shape.size());
    std::ranges::copy(shape, tensor.shape.begin());
    tensor.bytes = std::as_bytes(std::span(data_.back()));
    tensors_.push_back(tensor);
    return &tensors_.back();
  }

 private:
  std::deque<std::string> data_;
  std::deque<SourceTensor> tensors_;
};

TEST(HfLinear, ScalesOutsideF16AreExactOrDecoded) {
  for (const float last : {0.75F, 0.7F}) {
    MadeLinear made;
    const std::vector<int32_t> packed(size_t{2} * 8, 0x76543210);
    // 2^-30 · 1.5 is no f16, but a power of two away from one; so is 2^-29 · 0.75; 0.7 is not.
    const std::vector<float> scales = {0x1.8p-30F, last * 0x1p-29F, 3.0F, 1.25F};
    const auto linear = ReadHfLinear(HfLayout::kPackQuantized,
                                     {.codes = made.Add("I32", {2, 8}, packed),
                                      .scales = made.Add("F32", {2, 2}, scales),
                                      .shape = made.Add("I64", {2}, std::vector<int64_t>{2, 64})},
                                     {.bits = 4, .group = 32});
    ASSERT_TRUE(linear) << linear.error().message;
    EXPECT_EQ(linear->format, last == 0.75F ? Format::kW4G32 : Format::kF32);
    EXPECT_EQ(linear->row_scales, last == 0.75F);
    EXPECT_EQ(Decoded(*linear), Dequantised(*linear));
    EXPECT_EQ(Decoded(*linear)[1], (1 - 8) * scales[0]);
    EXPECT_EQ(Decoded(*linear)[63], (7 - 8) * scales[1]);
  }
}

TEST(HfLinear, OneScaleARowStaysAsItIs) {
  MadeLinear made;
  std::vector<int8_t> codes(size_t{3} * 96);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i * 37);
  const std::vector<float> scb = {0.1F, 3.3F, 0.0F};
  const auto linear = ReadHfLinear(
      HfLayout::kLlmInt8,
      {.codes = made.Add("I8", {3, 96}, codes), .scales = made.Add("F32", {3}, scb)}, {});
  ASSERT_TRUE(linear) << linear.error().message;
  EXPECT_EQ(linear->format, Format::kW8G32);  // 96 = 3 · 32
  EXPECT_TRUE(linear->row_scales);
  EXPECT_EQ(Decoded(*linear), Dequantised(*linear));
  EXPECT_EQ(Decoded(*linear)[100], static_cast<float>(codes[100]) * (scb[1] / 127.0F));
}

TEST(HfLinear, F8WithOneScaleARowOrABlock) {
  MadeLinear made;
  std::vector<uint8_t> codes(size_t{4} * 6);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 5 + 1);
  const SourceTensor* weight = made.Add("F8_E4M3", {4, 6}, codes);
  const std::vector<float> scales = {0.5F, 1.5F, 0.3F, 7.0F};
  const auto row = ReadHfLinear(HfLayout::kFloatQuantized,
                                {.codes = weight, .scales = made.Add("F32", {4, 1}, scales)}, {});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->format, Format::kF8E4M3);
  EXPECT_EQ(Decoded(*row), Dequantised(*row));
  EXPECT_EQ(Decoded(*row)[13], F8E4M3ToF32(codes[13]) * 0.3F);
  const auto one =
      ReadHfLinear(HfLayout::kFloatQuantized,
                   {.codes = weight, .scales = made.Add("F32", {1}, std::vector{0.25F})}, {});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->format, Format::kF8E4M3);
  EXPECT_EQ(Decoded(*one)[20], F8E4M3ToF32(codes[20]) * 0.25F);
  const auto blocks = ReadHfLinear(HfLayout::kFloatQuantized,
                                   {.codes = weight, .scales = made.Add("F32", {2, 2}, scales)},
                                   {.block_rows = 3, .block_cols = 4});
  ASSERT_TRUE(blocks) << blocks.error().message;
  EXPECT_EQ(blocks->format, Format::kF32);
  EXPECT_EQ(Decoded(*blocks)[5], F8E4M3ToF32(codes[5]) * 1.5F);
  EXPECT_EQ(Decoded(*blocks)[18], F8E4M3ToF32(codes[18]) * 0.3F);
  EXPECT_FALSE(ReadHfLinear(HfLayout::kFloatQuantized,
                            {.codes = weight, .scales = made.Add("F32", {2, 2}, scales)}, {}));
}

TEST(HfLinear, F8InBlocksStaysPacked) {
  MadeLinear made;
  std::vector<uint8_t> codes(size_t{5} * 40);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7 % 126);
  const std::vector<float> scales = {0.5F, 1.5F, 0.3F, 7.0F, -2.0F, 0.0F};
  // 3 rows and 2, 16 columns, 16 and 8.
  const auto blocks = ReadHfLinear(
      HfLayout::kFloatQuantized,
      {.codes = made.Add("F8_E4M3", {5, 40}, codes), .scales = made.Add("F32", {2, 3}, scales)},
      {.block_rows = 3, .block_cols = 16});
  ASSERT_TRUE(blocks) << blocks.error().message;
  EXPECT_EQ(blocks->format, Format::kF8E4M3);
  EXPECT_TRUE(blocks->block_scales);
  EXPECT_FALSE(blocks->row_scales);
  EXPECT_EQ(Decoded(*blocks), Dequantised(*blocks));
  EXPECT_EQ(Decoded(*blocks)[39], F8E4M3ToF32(codes[39]) * 0.3F);
  EXPECT_EQ(Decoded(*blocks)[4 * 40 + 16], F8E4M3ToF32(codes[176]) * -2.0F);
}

TEST(HfLinear, NamesWhatDoesNotFit) {
  const LayoutGolden golden = LayoutGolden::Read("gptq_w4g32_order");
  HfParts parts = PartsOf(golden.model.tensors(), "layer");
  MadeLinear made;
  const HfHints hints = {.bits = 4, .group = 32};
  parts.groups = made.Add("I32", {128}, std::vector<int32_t>(128, 4));  // groups are 0 … 3
  auto bad = ReadHfLinear(HfLayout::kGptq, parts, hints);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("group 4 of 4"), std::string::npos) << bad.error().message;
  // All inputs in one group: no group of its own size is left, so the matrix is decoded.
  parts.groups = made.Add("I32", {128}, std::vector<int32_t>(128, 3));
  const auto decoded = ReadHfLinear(HfLayout::kGptq, parts, hints);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->format, Format::kF32);
  EXPECT_EQ(Decoded(*decoded), Dequantised(*decoded));
  parts.zeros = nullptr;
  EXPECT_FALSE(ReadHfLinear(HfLayout::kGptq, parts, hints));
  parts = PartsOf(golden.model.tensors(), "layer");
  parts.scales = made.Add("F16", {4, 15}, std::vector<uint16_t>(60));
  bad = ReadHfLinear(HfLayout::kGptq, parts, hints);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("4 x 15"), std::string::npos) << bad.error().message;
  parts.scales = nullptr;
  EXPECT_FALSE(ReadHfLinear(HfLayout::kGptq, parts, hints));
}

}  // namespace
}  // namespace nibble
