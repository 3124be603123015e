#include "container/gguf_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> AsBytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TEST(GgufWriter, WritesWhatTheReaderReads) {
  const testing::TempDir folder;
  const fs::path path = folder.path() / "out.gguf";
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  writer.SetBool("b", true);
  writer.SetUint32("u", 4'000'000'000u);
  writer.SetInt32("i", -5);
  writer.SetUint64("l", uint64_t{1} << 40);
  writer.SetFloat32("f", 0.5f);
  writer.SetStrings("strings", std::vector<std::string_view>{"", "a", "ü"});
  writer.SetInt32s("ints", std::vector<int32_t>{1, -2});
  writer.SetFloat32s("floats", std::vector<float>{1.5f});
  writer.SetBools("bools", {true, false});
  const std::vector<uint64_t> matrix = {3, 5};
  const std::vector<uint64_t> vector = {7};
  ASSERT_TRUE(writer.AddTensor("m", Format::kF32, matrix).has_value());
  ASSERT_TRUE(writer.AddTensor("v", Format::kF32, vector).has_value());
  std::vector<float> data(22);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  {
    auto stream = writer.Begin(path);
    ASSERT_TRUE(stream.has_value()) << stream.error().message;
    // In pieces that do not end where the tensors do.
    ASSERT_TRUE(stream->Append(AsBytes(data).first(10)).has_value());
    EXPECT_FALSE(fs::exists(path));
    ASSERT_TRUE(stream->Append(AsBytes(data).subspan(10)).has_value());
    ASSERT_TRUE(stream->Finish().has_value());
  }
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->GetString("general.architecture").value(), "llama");
  EXPECT_TRUE(file->GetBool("b").value());
  EXPECT_EQ(file->GetInt("u").value(), 4'000'000'000);
  EXPECT_EQ(file->GetInt("i").value(), -5);
  EXPECT_EQ(file->GetInt("l").value(), int64_t{1} << 40);
  EXPECT_EQ(file->GetDouble("f").value(), 0.5);
  EXPECT_EQ(file->GetStrings("strings").value(), (std::vector<std::string_view>{"", "a", "ü"}));
  EXPECT_EQ(file->GetInts("ints").value(), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(file->GetFloats("floats").value(), (std::vector<float>{1.5f}));
  EXPECT_EQ(file->GetBools("bools").value(), (std::vector<bool>{true, false}));
  const SourceTensor* m = file->tensors().Find("m");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->ShapeString(), "3 x 5");
  EXPECT_EQ(std::memcmp(m->bytes.data(), data.data(), 60), 0);
  const SourceTensor* v = file->tensors().Find("v");
  EXPECT_EQ(std::memcmp(v->bytes.data(), data.data() + 15, 28), 0);
  EXPECT_EQ(v->rows(), 1u);
}

TEST(GgufWriter, LeavesNothingUnfinished) {
  const testing::TempDir folder;
  GgufWriter writer;
  const std::vector<uint64_t> shape = {4};
  ASSERT_TRUE(writer.AddTensor("t", Format::kF32, shape).has_value());
  const std::vector<float> data(5);
  {
    auto stream = writer.Begin(folder.path() / "short.gguf");
    ASSERT_TRUE(stream->Append(AsBytes(data).first(8)).has_value());
    EXPECT_NE(stream->Finish().error().message.find("has 8 of 16 bytes"), std::string::npos);
    auto other = writer.Begin(folder.path() / "long.gguf");
    EXPECT_NE(other->Append(AsBytes(data)).error().message.find("4 bytes more"), std::string::npos);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_FALSE(writer.Begin(folder.path() / "none" / "x.gguf").has_value());
}

TEST(GgufWriter, RefusesWhatGgufCannotHold) {
  GgufWriter writer;
  const std::vector<uint64_t> row = {33};
  const std::vector<uint64_t> good = {32};
  EXPECT_FALSE(writer.AddTensor("t", Format::kQ8_0, row).has_value());
  EXPECT_FALSE(writer.AddTensor("t", Format::kF8E4M3, good).has_value());
  EXPECT_TRUE(writer.AddTensor("t", Format::kQ8_0, good).has_value());
  EXPECT_FALSE(writer.AddTensor("t", Format::kQ8_0, good).has_value());
  EXPECT_FALSE(writer.AddTensor("u", Format::kF32, std::vector<uint64_t>{}).has_value());
  writer.SetBool("k", true);
  writer.SetBool("k", false);
  const testing::TempDir folder;
  EXPECT_NE(writer.Begin(folder.path() / "x").error().message.find("'k' set twice"),
            std::string::npos);
}

TEST(GgufWriter, CopiesAVersion1File) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  const auto source = GgufFile::Open(path);
  ASSERT_TRUE(source.has_value());
  const testing::TempDir folder;
  GgufWriter writer;
  for (const GgufEntry& entry : source->metadata()) ASSERT_TRUE(writer.Copy(entry).has_value());
  for (const SourceTensor& tensor : source->tensors().tensors()) {
    const std::span<const uint64_t> shape(tensor.shape.data(), static_cast<size_t>(tensor.rank));
    ASSERT_TRUE(writer.AddTensor(tensor.name, *tensor.format, shape).has_value());
  }
  auto stream = writer.Begin(folder.path() / "v3.gguf");
  for (const SourceTensor& tensor : source->tensors().tensors()) {
    ASSERT_TRUE(stream->Append(tensor.bytes).has_value());
  }
  ASSERT_TRUE(stream->Finish().has_value());
  const auto copy = GgufFile::Open(folder.path() / "v3.gguf");
  ASSERT_TRUE(copy.has_value()) << copy.error().message;
  EXPECT_EQ(copy->version(), 3u);
  ASSERT_EQ(copy->metadata().size(), source->metadata().size());
  for (const GgufEntry& entry : source->metadata()) {
    EXPECT_EQ(copy->Find(entry.key)->ToString(1000), entry.ToString(1000));
  }
  for (const SourceTensor& tensor : source->tensors().tensors()) {
    const SourceTensor* other = copy->tensors().Find(tensor.name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other->ShapeString(), tensor.ShapeString());
    EXPECT_TRUE(std::ranges::equal(other->bytes, tensor.bytes));
  }
}

}  // namespace
}  // namespace nibble
