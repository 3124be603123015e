#include "format/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

std::vector<float> Decode(const FormatTraits& traits, const std::string& codes, size_t count) {
  std::vector<float> values(count);
  traits.decode(reinterpret_cast<const std::byte*>(codes.data()), values.data(), count);
  return values;
}

std::string Encode(const FormatTraits& traits, const std::vector<float>& values) {
  std::string codes(traits.RowBytes(values.size()), '\0');
  traits.encode(values.data(), reinterpret_cast<std::byte*>(codes.data()), values.size());
  return codes;
}

double Rms(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double RmsDifference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return Rms(difference);
}

// N(0, 1) by Box and Muller from a fixed generator.
std::vector<float> NormalData(size_t count) {
  std::mt19937_64 generator(7);
  const auto uniform = [&] { return (static_cast<double>(generator() >> 11) + 0.5) * 0x1p-53; };
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(std::sqrt(-2.0 * std::log(uniform())) *
                               std::cos(2.0 * std::numbers::pi * uniform()));
  }
  return values;
}

struct GoldenSection {
  std::string codes;
  std::vector<float> floats;
};
struct Golden {
  GoldenSection decode;
  GoldenSection encode;
};

GoldenSection TakeSection(const std::string& file, size_t& at) {
  uint32_t sizes[2];
  std::memcpy(sizes, file.data() + at, sizeof(sizes));
  at += sizeof(sizes);
  GoldenSection section{.codes = file.substr(at, sizes[0]), .floats = std::vector<float>(sizes[1])};
  at += sizes[0];
  if (sizes[1] > 0) std::memcpy(section.floats.data(), file.data() + at, sizes[1] * sizeof(float));
  at += sizes[1] * sizeof(float);
  return section;
}

Golden ReadGolden(const FormatTraits& traits) {
  const std::string file = testing::ReadFile(
      testing::SourcePath("tests/golden/format/" + std::string(traits.name) + ".bin"));
  Golden golden;
  size_t at = 0;
  if (file.size() < 16) return golden;
  golden.decode = TakeSection(file, at);
  golden.encode = TakeSection(file, at);
  return golden;
}

class FormatTest : public ::testing::TestWithParam<Format> {
 protected:
  const FormatTraits& traits_ = TraitsOf(GetParam());
};

TEST_P(FormatTest, DecodesAsTheReferences) {
  const Golden golden = ReadGolden(traits_);
  ASSERT_GE(golden.decode.floats.size(), 240u);
  ASSERT_EQ(golden.decode.codes.size(), traits_.RowBytes(golden.decode.floats.size()));
  const auto values = Decode(traits_, golden.decode.codes, golden.decode.floats.size());
  for (size_t i = 0; i < values.size(); ++i) {  // bits, so that −0 is not 0
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(golden.decode.floats[i]))
        << "element " << i << ": " << values[i] << " for " << golden.decode.floats[i];
  }
}

TEST_P(FormatTest, EncodesAsTheReferences) {
  const Golden golden = ReadGolden(traits_);
  // The gguf package has no encoder of the searched formats; GgmlFixtureTest covers those.
  const bool searched = traits_.block_elements == 256 || GetParam() == Format::kIq4Nl;
  ASSERT_EQ(golden.encode.floats.empty(), searched);
  const std::string codes = Encode(traits_, golden.encode.floats);
  ASSERT_EQ(codes.size(), golden.encode.codes.size());
  const auto block = static_cast<size_t>(traits_.block_bytes);
  for (size_t i = 0; i < codes.size(); i += block) {
    EXPECT_EQ(codes.substr(i, block), golden.encode.codes.substr(i, block))
        << "block " << i / block;
  }
}

TEST_P(FormatTest, KeepsItsErrorBound) {
  const std::vector<float> data = NormalData(size_t{1} << 16);
  const auto decoded = Decode(traits_, Encode(traits_, data), data.size());
  const double error = RmsDifference(data, decoded) / Rms(data);
  EXPECT_LE(error, traits_.relative_error);
  EXPECT_GE(error, traits_.relative_error * 0.85) << "the bound is not tight";
}

TEST_P(FormatTest, ScalesWithItsInput) {
  // A power of two only shifts exponents, as long as nothing leaves the range of the scales.
  const std::vector<float> data = NormalData(2048);
  std::vector<float> scaled = data;
  for (float& value : scaled) value *= 0.25f;
  auto decoded = Decode(traits_, Encode(traits_, data), data.size());
  const auto decoded_scaled = Decode(traits_, Encode(traits_, scaled), data.size());
  for (float& value : decoded) value *= 0.25f;
  EXPECT_LE(RmsDifference(decoded, decoded_scaled), 0.05 * traits_.relative_error * Rms(scaled));
}

TEST_P(FormatTest, KeepsZeros) {
  const std::vector<float> zeros(512, 0.0f);
  EXPECT_EQ(Decode(traits_, Encode(traits_, zeros), zeros.size()), zeros);
}

TEST_P(FormatTest, WorksAtAnyAlignment) {
  const auto count = static_cast<size_t>(traits_.block_elements) * 3;
  const std::vector<float> data = NormalData(count);
  const std::string codes = Encode(traits_, data);
  std::vector<std::byte> shifted(codes.size() + 1);
  traits_.encode(data.data(), shifted.data() + 1, count);
  EXPECT_EQ(std::memcmp(shifted.data() + 1, codes.data(), codes.size()), 0);
  std::vector<float> values(count);
  traits_.decode(shifted.data() + 1, values.data(), count);
  EXPECT_EQ(values, Decode(traits_, codes, count));
}

// Input that no encoder can keep must still give bytes, without undefined conversions.
TEST_P(FormatTest, SurvivesAnyInput) {
  const float specials[] = {
      std::numeric_limits<float>::infinity(),  -std::numeric_limits<float>::infinity(),
      std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max(),
      std::numeric_limits<float>::lowest(),    std::numeric_limits<float>::denorm_min(),
      std::numeric_limits<float>::min(),       1e-15f};
  for (const float special : specials) {
    std::vector<float> data = NormalData(512);
    for (size_t i = 0; i < data.size(); i += 17) data[i] = special;
    const std::string codes = Encode(traits_, data);
    EXPECT_EQ(Decode(traits_, codes, data.size()).size(), data.size());
    const std::vector<float> same(512, special);
    EXPECT_EQ(Encode(traits_, same).size(), codes.size());
  }
}

TEST_P(FormatTest, HasAConsistentRow) {
  EXPECT_EQ(traits_.format, GetParam());
  EXPECT_EQ(FormatFromName(traits_.name), GetParam());
  std::string upper(traits_.name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(FormatFromName(upper), GetParam());
  if (traits_.gguf_type) {
    EXPECT_EQ(FormatFromGguf(*traits_.gguf_type), GetParam());
    EXPECT_TRUE(UnsupportedGgufTypeName(*traits_.gguf_type).empty());
  }
  EXPECT_EQ(traits_.RowBytes(static_cast<size_t>(traits_.block_elements) * 5),
            static_cast<size_t>(traits_.block_bytes) * 5);
}

std::vector<Format> Formats() {
  std::vector<Format> formats;
  for (const FormatTraits& traits : AllFormats()) formats.push_back(traits.format);
  return formats;
}
INSTANTIATE_TEST_SUITE_P(All, FormatTest, ::testing::ValuesIn(Formats()),
                         [](const auto& info) { return std::string(TraitsOf(info.param).name); });

TEST(Format, NamesWhatItDoesNotRead) {
  EXPECT_EQ(UnsupportedGgufTypeName(16), "IQ2_XXS");
  EXPECT_EQ(UnsupportedGgufTypeName(34), "TQ1_0");
  EXPECT_EQ(UnsupportedGgufTypeName(999), "");
  EXPECT_FALSE(FormatFromGguf(16).has_value());
  EXPECT_FALSE(FormatFromName("q4").has_value());
}

// Blocks of ggml's own search, made on ARM: uniform data, two rows.
struct GgmlFixture {
  Format format;
  const char* name;
};
class GgmlFixtureTest : public ::testing::TestWithParam<GgmlFixture> {};

TEST_P(GgmlFixtureTest, EncodesTheSameBytes) {
  const GgmlFixture& fixture = GetParam();
  const std::string stem = std::string("models/ggml-quants/") + fixture.name + "_noim_";
  NIBBLE_SHARED_OR_SKIP(input_path, stem + "input.bin");
  NIBBLE_SHARED_OR_SKIP(expected_path, stem + "expected.bin");
  const std::string input = testing::ReadFile(input_path);
  std::vector<float> data(input.size() / sizeof(float));
  std::memcpy(data.data(), input.data(), input.size());
  EXPECT_EQ(Encode(TraitsOf(fixture.format), data), testing::ReadFile(expected_path));
}

INSTANTIATE_TEST_SUITE_P(Blocks, GgmlFixtureTest,
                         ::testing::Values(GgmlFixture{Format::kQ4_0, "q4_0_64"},
                                           GgmlFixture{Format::kQ5_1, "q5_1_64"},
                                           GgmlFixture{Format::kQ8_0, "q8_0_64"},
                                           GgmlFixture{Format::kIq4Nl, "iq4_nl_64"},
                                           GgmlFixture{Format::kQ4K, "q4_k_512"},
                                           GgmlFixture{Format::kQ6K, "q6_k_512"}),
                         [](const auto& info) { return std::string(info.param.name); });

// What ggml made of the same rows on x86-64 (tools/make_importance_goldens.py).
struct ImportanceGolden {
  size_t rows = 0;
  size_t columns = 0;
  std::vector<float> importance;
  std::vector<float> values;
  std::string weighted;
  std::string plain;
};

std::vector<float> TakeFloats(const std::string& file, size_t& at, size_t count) {
  std::vector<float> floats(count);
  std::memcpy(floats.data(), file.data() + at, count * sizeof(float));
  at += count * sizeof(float);
  return floats;
}

ImportanceGolden ReadImportanceGolden(const FormatTraits& traits) {
  const std::string file = testing::ReadFile(
      testing::SourcePath("tests/golden/format/importance/" + std::string(traits.name) + ".bin"));
  ImportanceGolden golden;
  if (file.size() < 8) return golden;
  uint32_t shape[2];
  std::memcpy(shape, file.data(), sizeof shape);
  golden.rows = shape[0];
  golden.columns = shape[1];
  const size_t codes = golden.rows * traits.RowBytes(golden.columns);
  if (file.size() != 8 + 4 * golden.columns * (1 + golden.rows) + 2 * codes) return {};
  size_t at = sizeof shape;
  golden.importance = TakeFloats(file, at, golden.columns);
  golden.values = TakeFloats(file, at, golden.rows * golden.columns);
  golden.weighted = file.substr(at, codes);
  golden.plain = file.substr(at + codes, codes);
  return golden;
}

std::string EncodeWeighted(const FormatTraits& traits, const std::vector<float>& values,
                           const std::vector<float>& importance) {
  const size_t row_bytes = traits.RowBytes(importance.size());
  std::string codes(traits.RowBytes(values.size()), '\0');
  for (size_t row = 0; row * importance.size() < values.size(); ++row) {
    traits.encode_weighted(values.data() + row * importance.size(), importance.data(),
                           reinterpret_cast<std::byte*>(codes.data()) + row * row_bytes,
                           importance.size());
  }
  return codes;
}

class ImportanceTest : public ::testing::TestWithParam<Format> {
 protected:
  void ExpectSameBlocks(const std::string& found, const std::string& expected) const {
    ASSERT_EQ(found.size(), expected.size());
    const auto block = static_cast<size_t>(traits_.block_bytes);
    for (size_t i = 0; i < found.size(); i += block) {
      EXPECT_EQ(found.substr(i, block), expected.substr(i, block)) << "block " << i / block;
    }
  }

  const FormatTraits& traits_ = TraitsOf(GetParam());
};

TEST_P(ImportanceTest, EncodesAsGgml) {
  const ImportanceGolden golden = ReadImportanceGolden(traits_);
  ASSERT_EQ(golden.rows, 8u);
  ExpectSameBlocks(EncodeWeighted(traits_, golden.values, golden.importance), golden.weighted);
}

TEST_P(ImportanceTest, EncodesAsGgmlWithoutToo) {
  const ImportanceGolden golden = ReadImportanceGolden(traits_);
  ASSERT_EQ(golden.rows, 8u);
  ExpectSameBlocks(Encode(traits_, golden.values), golden.plain);
}

TEST_P(ImportanceTest, LowersTheErrorThatCounts) {
  const std::vector<float> values = NormalData(size_t{64} * 512);
  std::vector<float> importance(512);
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 16 == 3 ? 100.0f : 1.0f;
  const auto error_of = [&](const std::string& codes) {
    const auto decoded = Decode(traits_, codes, values.size());
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = double{decoded[i]} - values[i];
      sum += importance[i % 512] * difference * difference;
    }
    return sum;
  };
  EXPECT_LT(error_of(EncodeWeighted(traits_, values, importance)),
            0.97 * error_of(Encode(traits_, values)));
}

TEST_P(ImportanceTest, SurvivesAnyInput) {
  const float largest = std::numeric_limits<float>::max();
  const float specials[] = {0.0f,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            largest,
                            -largest,
                            1e-15f};
  for (const float special : specials) {
    for (const float importance : {0.0f, 1.0f, std::numeric_limits<float>::max()}) {
      std::vector<float> values = NormalData(512);
      for (size_t i = 0; i < values.size(); i += 17) values[i] = special;
      const std::vector<float> weights(512, importance);
      EXPECT_EQ(EncodeWeighted(traits_, values, weights).size(), traits_.RowBytes(512));
    }
  }
}

std::vector<Format> SearchedFormats() {
  std::vector<Format> formats;
  for (const FormatTraits& traits : AllFormats()) {
    if (traits.encode_weighted != nullptr) formats.push_back(traits.format);
  }
  return formats;
}
INSTANTIATE_TEST_SUITE_P(All, ImportanceTest, ::testing::ValuesIn(SearchedFormats()),
                         [](const auto& info) { return std::string(TraitsOf(info.param).name); });

TEST(Importance, CountsForElevenFormats) { EXPECT_EQ(SearchedFormats().size(), 11u); }

}  // namespace
}  // namespace nibble
