#include "container/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "container/safetensors_writer.h"
#include "tests/support/test_data.h"
#include "tests/support/touch_containers.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string File(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header;
  file.resize(file.size() + data_bytes, '\1');
  return file;
}

Result<SafetensorsModel> Parse(std::string_view bytes) {
  return SafetensorsModel::Parse(std::as_bytes(std::span(bytes)));
}

std::string ErrorOf(std::string_view bytes) {
  const auto model = Parse(bytes);
  return model ? "no error" : model.error().message;
}

void ExpectError(std::string_view header, size_t data_bytes, std::string_view part) {
  const std::string error = ErrorOf(File(header, data_bytes));
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(Safetensors, ReadsAFile) {
  const std::string file = File(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("e":{"dtype":"I64","shape":[0,4],"data_offsets":[16,16]}}  )",
      16);
  const auto model = Parse(file);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->Metadata("format"), "pt");
  EXPECT_FALSE(model->Metadata("x").has_value());
  const SourceTensor* b = model->tensors().Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->format, Format::kBF16);
  EXPECT_EQ(b->rows(), 2u);
  EXPECT_EQ(b->cols(), 3u);
  EXPECT_EQ(b->bytes.size(), 12u);
  EXPECT_EQ(model->tensors().Find("a")->elements(), 1u);
  EXPECT_EQ(model->tensors().Find("a")->ShapeString(), "scalar");
  EXPECT_FALSE(model->tensors().Find("e")->format.has_value());
  EXPECT_EQ(model->tensors().Find("e")->type_name, "I64");
  EXPECT_EQ(model->tensors().Find("zz"), nullptr);
}

TEST(Safetensors, RefusesLies) {
  ExpectError(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
              "tensor 't': F32 of shape 2 needs 8 bytes, data_offsets give 4");
  ExpectError(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
              "bytes 0 to 8 do not lie in the file's 4 bytes");
  ExpectError(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "do not lie");
  ExpectError(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8, "do not lie");
  ExpectError(R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "dimension 0 is -1");
  ExpectError(R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
              "no tensor has that size");
  ExpectError(R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
              "9 dimensions");
  ExpectError(R"({"t":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}})", 4,
              "dtype 'Q4' is unknown (known: F32, F16, BF16");
  ExpectError(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "expected 2 numbers");
  ExpectError(R"({"t":{"dtype":"F32","shape":[1]}})", 4, "'data_offsets' is missing");
  ExpectError(R"({"t":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "expected an array");
  ExpectError(R"({"t":7})", 0, "tensor 't': expected an object, found an integer");
  ExpectError(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "needs 2 bytes");
  ExpectError(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
              R"("u":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
              6, "an overlap");
  ExpectError(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "a hole");
  ExpectError(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 9,
              "5 bytes after the last tensor");
  ExpectError(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
              R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
              8, "two tensors named 't'");
  ExpectError("[1]", 0, "does not begin with '{'");
  ExpectError("{\"t\":", 0, "the header: line 1, column 6");
  ExpectError("", 0, "does not begin with '{'");
}

TEST(Safetensors, RefusesOtherFiles) {
  EXPECT_NE(ErrorOf("").find("too short"), std::string::npos);
  EXPECT_NE(ErrorOf("GGUF\3\0\0\0more than that").find("a GGUF file"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(8, '\xFF') + "{}").find("claimed"), std::string::npos);
}

TEST(Safetensors, CutAndChangedFilesAreSafe) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-tiny/tiny_llama-00001-of-00002.safetensors");
  const std::string good = testing::ReadFile(path);
  for (size_t length = 0; length < good.size(); length += 3) {
    EXPECT_NE(ErrorOf(good.substr(0, length)), "no error") << length;
  }
  uint64_t header = 0;
  std::memcpy(&header, good.data(), sizeof(header));
  int refused = 0;
  for (size_t at = 0; at < header + 8; ++at) {
    for (const int change : {0x01, 0x02, 0x04, 0x80}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      const auto model = Parse(bytes);
      EXPECT_GT(model ? testing::TouchSafetensors(*model) : model.error().message.size(), 0u);
      refused += model ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, ReadsEverySharedModel) {
  NIBBLE_SHARED_OR_SKIP(tiny, "models/hf-tiny");
  int count = 0;
  for (const auto& entry : fs::directory_iterator(tiny)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto model = SafetensorsModel::Open(entry.path());
    ASSERT_TRUE(model.has_value()) << model.error().message;
    EXPECT_GT(model->tensors().total_bytes(), 1000u);
    ++count;
  }
  EXPECT_GT(count, 15);
  NIBBLE_SHARED_OR_SKIP(folders, "models/hf-320");
  for (const auto& entry : fs::directory_iterator(folders)) {
    if (!entry.is_directory()) continue;
    const auto model = SafetensorsModel::Open(entry.path());
    ASSERT_TRUE(model.has_value()) << model.error().message;
  }
}

TEST(Safetensors, ShardsEqualTheSingleFile) {
  NIBBLE_SHARED_OR_SKIP(whole_path, "models/hf-tiny/tiny_llama.safetensors");
  const auto whole = SafetensorsModel::Open(whole_path);
  ASSERT_TRUE(whole.has_value());
  for (const char* name :
       {"tiny_llama.safetensors.index.json", "tiny_llama-00002-of-00002.safetensors"}) {
    const auto shards = SafetensorsModel::Open(whole_path.parent_path() / name);
    ASSERT_TRUE(shards.has_value()) << shards.error().message;
    EXPECT_EQ(shards->files().size(), 2u);
    ASSERT_EQ(shards->tensors().tensors().size(), whole->tensors().tensors().size());
    for (const SourceTensor& tensor : whole->tensors().tensors()) {
      const SourceTensor* other = shards->tensors().Find(tensor.name);
      ASSERT_NE(other, nullptr);
      EXPECT_TRUE(std::ranges::equal(other->bytes, tensor.bytes)) << tensor.name;
    }
  }
}

// Writes one F32 tensor of one element.
void WriteOne(const fs::path& path, std::string_view name, float value) {
  SafetensorsWriter writer;
  ASSERT_TRUE(writer.AddTensor(name, "F32", std::vector<uint64_t>{1}).has_value());
  auto stream = writer.Begin(path);
  ASSERT_TRUE(stream->Append(std::as_bytes(std::span(&value, 1))).has_value());
  ASSERT_TRUE(stream->Finish().has_value());
}

TEST(Safetensors, IndexErrorsNameFileAndTensor) {
  const testing::TempDir folder;
  const auto error_with = [&](std::string_view index) {
    std::ofstream(folder.path() / "model.safetensors.index.json") << index;
    const auto model = SafetensorsModel::Open(folder.path());
    return model ? std::string("no error") : model.error().message;
  };
  const auto contains = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto empty = SafetensorsModel::Open(folder.path());
  contains(empty.error().message, "expected model.safetensors.index.json or model.safetensors");
  WriteOne(folder.path() / "one.safetensors", "a", 1.0f);
  WriteOne(folder.path() / "two.safetensors", "b", 2.0f);
  EXPECT_EQ(error_with(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
            "no error");
  contains(error_with(R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors"}})"),
           "'three.safetensors' that the index names is missing");
  contains(error_with(R"({"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})"),
           "tensor 'c' is not in 'two.safetensors'");
  contains(error_with(R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors"}})"),
           "tensor 'a' is not in 'two.safetensors'");
  contains(error_with(R"({"weight_map":{"a":"../one.safetensors"}})"), "of the same folder");
  contains(error_with(R"({"weight_map":{"a":1}})"), "'a': expected a string");
  contains(error_with(R"({"weights":{}})"), "'weight_map' is missing");
  contains(error_with("{"), "index.json: line 1");
}

TEST(Safetensors, RefusesAnAdapterByName) {
  const testing::TempDir folder;
  EXPECT_TRUE(RefuseAdapterFolder(folder.path()).has_value());
  std::ofstream(folder.path() / "adapter_config.json")
      << R"({"base_model_name_or_path": "org/base", "peft_type": "LORA"})";
  WriteOne(folder.path() / "adapter_model.safetensors", "x.lora_A.weight", 1.0f);
  const auto model = SafetensorsModel::Open(folder.path());
  ASSERT_FALSE(model.has_value());
  EXPECT_NE(model.error().message.find("a LoRA adapter, not a model"), std::string::npos);
  EXPECT_NE(model.error().message.find("(org/base)"), std::string::npos);
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const testing::TempDir folder;
  const fs::path path = folder.path() / "out.safetensors";
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  writer.SetMetadata("a\"b", "ü");
  ASSERT_TRUE(writer.AddTensor("x\n", "BF16", std::vector<uint64_t>{2, 3}).has_value());
  ASSERT_TRUE(writer.AddTensor("empty", "F32", std::vector<uint64_t>{0}).has_value());
  ASSERT_TRUE(writer.AddTensor("y", "U8", std::vector<uint64_t>{5}).has_value());
  EXPECT_FALSE(writer.AddTensor("y", "U8", std::vector<uint64_t>{5}).has_value());
  EXPECT_FALSE(writer.AddTensor("z", "Q8", std::vector<uint64_t>{5}).has_value());
  EXPECT_FALSE(writer.AddTensor("z", "F4", std::vector<uint64_t>{5}).has_value());
  std::string data = "0123456789abcdefg";
  auto stream = writer.Begin(path);
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE(stream->Append(std::as_bytes(std::span(data))).has_value());
  ASSERT_TRUE(stream->Finish().has_value());
  const auto model = SafetensorsModel::Open(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->Metadata("a\"b"), "ü");
  const SourceTensor* y = model->tensors().Find("y");
  ASSERT_NE(y, nullptr);
  EXPECT_EQ(std::memcmp(y->bytes.data(), "cdefg", 5), 0);
  EXPECT_EQ(model->tensors().Find("x\n")->ShapeString(), "2 x 3");
}

}  // namespace
}  // namespace nibble
