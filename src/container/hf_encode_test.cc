#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "container/hf_folder_writer.h"
#include "container/hf_scheme.h"
#include "container/json.h"
#include "container/safetensors.h"
#include "tests/support/layout_goldens.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using testing::LayoutGolden;

class HfEncodeTest : public ::testing::TestWithParam<std::string> {
 protected:
  const LayoutGolden golden_ = LayoutGolden::Read(GetParam());
};

TEST_P(HfEncodeTest, WritesTheBytesOfTheNumpyPackers) {
  const LayoutGolden& g = golden_;
  const auto tensors = HfLinearTensors(g.scheme, "layer", g.matrix.rows, g.matrix.cols);
  const auto bytes = EncodeHfLinear(g.scheme, g.matrix);
  ASSERT_TRUE(bytes) << bytes.error().message;
  ASSERT_EQ(bytes->size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SourceTensor* expected = g.model.tensors().Find(tensors[i].name);
    ASSERT_NE(expected, nullptr) << tensors[i].name;
    EXPECT_EQ(expected->type_name, tensors[i].dtype) << tensors[i].name;
    ASSERT_EQ(static_cast<size_t>(expected->rank), tensors[i].shape.size()) << tensors[i].name;
    EXPECT_TRUE(std::ranges::equal(tensors[i].shape,
                                   std::span(expected->shape).first(tensors[i].shape.size())))
        << tensors[i].name << " " << expected->ShapeString();
    EXPECT_TRUE(std::ranges::equal((*bytes)[i], expected->bytes)) << tensors[i].name;
  }
  size_t stored = 0;
  for (const SourceTensor& tensor : g.model.tensors().tensors()) {
    stored += tensor.name.starts_with("layer.") ? 1 : 0;
  }
  EXPECT_EQ(stored, tensors.size());
}

TEST_P(HfEncodeTest, RefusesAnotherMatrix) {
  HfScheme other = golden_.scheme;
  other.bits = other.bits == 4 ? 8 : 4;
  EXPECT_FALSE(EncodeHfLinear(other, golden_.matrix));
  GroupedMatrix large = golden_.matrix;
  large.codes.pop_back();
  EXPECT_FALSE(EncodeHfLinear(golden_.scheme, large));
  GroupedMatrix inexact = golden_.matrix;
  inexact.scales[1] = 0.1F;
  const auto status = EncodeHfLinear(golden_.scheme, inexact);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("not exact in f16"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Layouts, HfEncodeTest, ::testing::ValuesIn(LayoutGolden::Names()),
                         [](const auto& info) { return info.param; });

TEST(HfScheme, SaysWhatDoesNotDivide) {
  const HfScheme gptq;
  EXPECT_TRUE(CheckHfLinear(gptq, 64, 256));
  EXPECT_FALSE(CheckHfLinear(gptq, 64, 192));  // groups of 128
  EXPECT_FALSE(CheckHfLinear(gptq, 60, 256));  // zeros of 60 rows
  HfScheme packed{.layout = HfLayout::kPackQuantized};
  EXPECT_TRUE(CheckHfLinear(packed, 61, 256));  // symmetric: no zeros stored
  packed.symmetric = false;
  EXPECT_FALSE(CheckHfLinear(packed, 61, 256));
  EXPECT_FALSE(CheckHfLinear({.layout = HfLayout::kAwq, .bits = 8}, 64, 256));
  EXPECT_FALSE(CheckHfLinear({.layout = HfLayout::kIntQuantized}, 64, 256));
}

TEST(HfScheme, ConfigIsJsonAndReplacesAnOlderOne) {
  const std::vector<std::string> kept = {"lm_head", "model.layers.0.mlp.down_proj"};
  for (const HfLayout layout :
       {HfLayout::kGptq, HfLayout::kGptqV2, HfLayout::kAwq, HfLayout::kPackQuantized,
        HfLayout::kIntQuantized, HfLayout::kFloatQuantized, HfLayout::kLlmInt8}) {
    const HfScheme scheme{.layout = layout};
    const auto config = HfConfigWithQuantization(
        R"({"model_type":"llama","quantization_config":{"quant_method":"previous"},"x":[1,2.5,"é"]})",
        scheme, kept);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->find("previous"), std::string::npos);
    const auto document = JsonDocument::Parse(*config);
    ASSERT_TRUE(document) << document.error().message;
    EXPECT_EQ(document->root().Find("x")->ToString(), R"([1, 2.5, "é"])");
    const auto own = document->root().Get("quantization_config");
    ASSERT_TRUE(own);
    const auto method = own->GetString("quant_method");
    ASSERT_TRUE(method);
    EXPECT_TRUE(*method == "gptq" || *method == "awq" || *method == "compressed-tensors" ||
                *method == "bitsandbytes");
    EXPECT_NE(own->ToString().find("down_proj"), std::string::npos);
  }
}

TEST(HfScheme, FindsTheScbOfAScale) {
  GroupedMatrix m;
  m.rows = 64;
  m.cols = 1;
  m.bits = 8;
  m.group = 1;
  std::vector<float> scb(64);
  for (size_t i = 0; i < scb.size(); ++i) {
    scb[i] = 0.0137F * static_cast<float>(i * i + 1);
    m.scales.push_back(scb[i] / 127.0F);
  }
  m.codes.assign(64, 7);
  m.zeros.assign(64, 128);
  const auto bytes = EncodeHfLinear({.layout = HfLayout::kLlmInt8, .bits = 8, .group = 0}, m);
  ASSERT_TRUE(bytes) << bytes.error().message;
  for (size_t i = 0; i < scb.size(); ++i) {
    float stored = 0;
    std::memcpy(&stored, (*bytes)[1].data() + 4 * i, sizeof stored);
    EXPECT_EQ(stored / 127.0F, m.scales[i]);
  }
}

class HfFolderWriterTest : public ::testing::Test {
 protected:
  // Three tensors of 8, 16 and 4 bytes.
  static Status Write(const fs::path& folder, const HfFolderOptions& options, bool commit = true) {
    NIBBLE_TRY(HfFolderWriter writer, HfFolderWriter::Create(folder, options));
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor({"a", "F32", {2}}));
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor({"b", "I32", {2, 2}}));
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor({"c", "I8", {4}}));
    NIBBLE_RETURN_IF_ERROR(writer.Begin());
    NIBBLE_RETURN_IF_ERROR(writer.WriteText("config.json", "{}"));
    std::vector<std::byte> bytes(28);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    NIBBLE_RETURN_IF_ERROR(writer.Append(std::span(bytes).first(5)));
    NIBBLE_RETURN_IF_ERROR(writer.Append(std::span(bytes).subspan(5)));
    NIBBLE_RETURN_IF_ERROR(writer.Finish());
    EXPECT_TRUE(SafetensorsModel::Open(writer.temporary_path()));
    return commit ? writer.Commit() : Status{};
  }
  static size_t Entries(const fs::path& folder) {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  testing::TempDir dir_;
};

TEST_F(HfFolderWriterTest, OneFileOrShardsWithAnIndex) {
  for (const uint64_t limit : {uint64_t{100}, uint64_t{24}, uint64_t{10}, uint64_t{1}}) {
    const fs::path folder = dir_.path() / ("out" + std::to_string(limit) + "/");
    const Status status = Write(folder, {.shard_bytes = limit});
    ASSERT_TRUE(status) << status.error().message;
    const size_t files = limit == 100 ? 1 : limit == 24 ? 2 : 3;
    EXPECT_EQ(Entries(folder), files + 1 + (files > 1 ? 1 : 0)) << limit;
    const auto model = SafetensorsModel::Open(folder);
    ASSERT_TRUE(model) << model.error().message;
    const SourceTensor* c = model->tensors().Find("c");
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->bytes[3], std::byte{27});
    EXPECT_EQ(model->Metadata("format"), "pt");
  }
  EXPECT_EQ(Entries(dir_.path()), 4U);
}

TEST_F(HfFolderWriterTest, LeavesNothingBehindUnlessCommitted) {
  ASSERT_TRUE(Write(dir_.path() / "out", {}, false));
  EXPECT_EQ(Entries(dir_.path()), 0U);
}

TEST_F(HfFolderWriterTest, ReplacesOnlyModelFoldersAndOnlyWhenAsked) {
  const fs::path folder = dir_.path() / "out";
  fs::create_directory(folder);
  ASSERT_TRUE(Write(folder, {}));  // an empty folder is nothing
  EXPECT_FALSE(Write(folder, {}));
  std::ofstream(folder / "old.txt") << "old";
  ASSERT_TRUE(Write(folder, {.replace = true}));
  EXPECT_FALSE(fs::exists(folder / "old.txt"));
  EXPECT_EQ(Entries(dir_.path()), 1U);
  fs::create_directory(folder / "inside");
  EXPECT_FALSE(Write(folder, {.replace = true}));
  fs::remove(folder / "inside");
  fs::remove(folder / "config.json");
  EXPECT_FALSE(Write(folder, {.replace = true}));
  std::ofstream(dir_.path() / "file") << "x";
  EXPECT_FALSE(Write(dir_.path() / "file", {.replace = true}));
}

TEST_F(HfFolderWriterTest, CountsBytes) {
  auto writer = HfFolderWriter::Create(dir_.path() / "out");
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->AddTensor({"a", "F32", {2}}));
  EXPECT_FALSE(writer->AddTensor({"a", "F32", {2}}));
  ASSERT_TRUE(writer->Begin());
  const std::vector<std::byte> bytes(9);
  ASSERT_TRUE(writer->Append(std::span(bytes).first(4)));
  EXPECT_FALSE(writer->Finish());
  EXPECT_FALSE(writer->Append(bytes));
}

}  // namespace
}  // namespace nibble
