// HQQ and LLM.int8().
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "format/format.h"
#include "platform/thread_pool.h"
#include "quantize/hqq.h"
#include "quantize/llm_int8.h"
#include "quantize/method_golden_test.h"

namespace nibble {
namespace {

using testing::MethodGolden;
using testing::RelativeDifference;

TEST(Hqq, IsThePublishedSolver) {
  const MethodGolden golden("hqq");
  ThreadPool pool(2);
  for (const auto& [bits, group] : {std::pair{4, 64}, std::pair{2, 32}, std::pair{5, 32}}) {
    const std::string name = std::to_string(bits) + "." + std::to_string(group);
    const auto found = QuantizeHqq(golden.Matrix("w"), {.bits = bits, .group = group}, pool);
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ(found->rounds, static_cast<int>(golden[name + ".rounds"][0])) << name;
    EXPECT_LT(RelativeDifference(found->scales, golden[name + ".scales"]), 1e-6) << name;
    EXPECT_LT(RelativeDifference(found->zeros, golden[name + ".zeros"]), 1e-5) << name;
    EXPECT_EQ(RelativeDifference(found->codes, golden[name + ".codes"]), 0) << name;
    const auto alone = [&] {
      ThreadPool one(1);
      return QuantizeHqq(golden.Matrix("w"), {.bits = bits, .group = group}, one);
    }();
    EXPECT_EQ(alone->zeros, found->zeros);
  }
}

TEST(Hqq, BlocksHoldTheSameWeights) {
  const MethodGolden golden("hqq");
  ThreadPool pool(1);
  const auto w = golden.Matrix("w");
  const auto count = golden["w"].size();
  for (const auto& [bits, format] : {std::pair{4, Format::kQ4_1}, std::pair{5, Format::kQ5_1}}) {
    const auto matrix = QuantizeHqq(w, {.bits = bits, .group = 32}, pool);
    std::vector<float> values(count);
    Dequantize(*matrix, DenseView(values.data(), w.rows, w.cols));
    const auto bytes = HqqBlocks(w, *matrix);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    std::vector<float> decoded(count);
    ASSERT_EQ(bytes->size(), TraitsOf(format).RowBytes(count));
    TraitsOf(format).decode(bytes->data(), decoded.data(), count);
    double ours = 0;
    double theirs = 0;
    for (size_t i = 0; i < count; ++i) {
      ours += std::fabs(double{decoded[i]} - double{golden["w"][i]});
      theirs += std::fabs(double{values[i]} - double{golden["w"][i]});
    }
    EXPECT_NEAR(ours, theirs, 0.01 * theirs);  // scales and minima as f16
  }
  const auto two = QuantizeHqq(w, {.bits = 2, .group = 32}, pool);
  EXPECT_FALSE(HqqBlocks(w, *two).has_value());
  const auto narrow = QuantizeHqq(w, {.bits = 4, .group = 48}, pool);
  EXPECT_FALSE(HqqBlocks(w, *narrow).has_value());
}

TEST(Hqq, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  std::vector<float> w(64, 1.0f);
  EXPECT_FALSE(QuantizeHqq(DenseView<const float>(w.data(), 2, 32), {.bits = 1}, pool).has_value());
  EXPECT_FALSE(
      QuantizeHqq(DenseView<const float>(w.data(), 2, 32), {.group = 0}, pool).has_value());
  w[40] = std::numeric_limits<float>::infinity();
  const auto found = QuantizeHqq(DenseView<const float>(w.data(), 2, 32), {}, pool);
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("row 1 column 8"), std::string::npos);
}

TEST(LlmInt8, IsThePublishedProduct) {
  const MethodGolden golden("llm_int8");
  ThreadPool pool(2);
  const auto matrix = QuantizeLlmInt8(golden.Matrix("w"), pool);
  ASSERT_TRUE(matrix.has_value());
  EXPECT_EQ(RelativeDifference(matrix->codes, golden["codes"]), 0);
  EXPECT_EQ(matrix->absmax, golden["absmax"]);
  const auto x = golden.Matrix("x");
  const std::vector<int> fixed = {10, 33};
  for (const auto& [name, rule] :
       {std::pair{"y.token", OutlierRule{.threshold = 6}}, std::pair{"y.none", OutlierRule{}},
        std::pair{"y.fixed", OutlierRule{.threshold = 6, .fixed = fixed}}}) {
    std::vector<float> y(static_cast<size_t>(x.rows) * 24);
    for (int t = 0; t < x.rows; ++t) {
      MultiplyLlmInt8(*matrix, x.row_span(t), golden["bias"], rule,
                      std::span(y).subspan(static_cast<size_t>(t) * 24, 24));
    }
    EXPECT_LT(RelativeDifference(y, golden[name]), 1e-6) << name;
  }
}

TEST(LlmInt8, ChoosesTheColumnsThatReachTheThreshold) {
  const std::vector<float> largest = {5.9f, 6.0f, 0.0f, 100.0f};
  EXPECT_EQ(OutlierColumns(largest, 6.0f), (std::vector<int>{1, 3}));
  EXPECT_TRUE(OutlierColumns(largest, 101.0f).empty());
}

TEST(LlmInt8, NamesTheWeightThatIsNoNumber) {
  ThreadPool pool(1);
  std::vector<float> w(64, 1.0f);
  w[63] = std::numeric_limits<float>::quiet_NaN();
  const auto found = QuantizeLlmInt8(DenseView<const float>(w.data(), 2, 32), pool);
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("row 1 column 31"), std::string::npos);
}

}  // namespace
}  // namespace nibble
