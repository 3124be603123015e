#include "container/gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "container/gguf_writer.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

TEST(Gguf, ReadsVersion1) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->version(), 1u);
  EXPECT_EQ(file->GetString("general.architecture").value(), "llama");
  EXPECT_EQ(file->GetInt("llama.block_count").value(), 5);
  EXPECT_EQ(file->GetStrings("tokenizer.ggml.tokens").value().size(), 512u);
  EXPECT_EQ(file->GetFloats("tokenizer.ggml.scores").value().size(), 512u);
  EXPECT_EQ(file->tensors().tensors().size(), 48u);
  const SourceTensor* tensor = file->tensors().Find("blk.0.ffn_gate.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->ShapeString(), "172 x 64");
  EXPECT_EQ(tensor->rows(), 172u);
  EXPECT_EQ(tensor->format, Format::kF32);
  EXPECT_TRUE(file->CheckIsModel().has_value());
}

TEST(Gguf, ReadsEveryVocabularyFile) {
  NIBBLE_SHARED_OR_SKIP(folder, "tokenizers/gguf-vocab");
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::Open(entry.path());
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_GT(file->GetStrings("tokenizer.ggml.tokens").value().size(), 1000u) << entry.path();
    const auto refused = file->CheckIsModel();
    ASSERT_FALSE(refused.has_value()) << entry.path();
    EXPECT_NE(refused.error().message.find("without weights"), std::string::npos);
    ++count;
  }
  EXPECT_EQ(count, 4);
}

TEST(Gguf, ReadsTinyModels) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-tiny");
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::Open(entry.path());
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_FALSE(file->tensors().tensors().empty());
    EXPECT_EQ(file->file_bytes(), fs::file_size(entry.path()));
    ++count;
  }
  EXPECT_EQ(count, 4);
}

TEST(Gguf, ReadsRealModels) {
  NIBBLE_PULLED_OR_SKIP(smollm2, "SmolLM2-135M-Instruct.Q4_1.gguf");
  NIBBLE_PULLED_OR_SKIP(gemma3, "gemma-3-270m-q4_k_m.gguf");
  const auto a = GgufFile::Open(smollm2);
  ASSERT_TRUE(a.has_value()) << a.error().message;
  EXPECT_TRUE(a->CheckIsModel().has_value());
  EXPECT_EQ(a->tensors().Find("blk.0.attn_q.weight")->format, Format::kQ4_1);
  EXPECT_EQ(a->tensors().Find("token_embd.weight")->ShapeString(), "49152 x 576");
  const auto b = GgufFile::Open(gemma3);
  ASSERT_TRUE(b.has_value()) << b.error().message;
  EXPECT_EQ(b->GetString("general.architecture").value(), "gemma3");
  EXPECT_EQ(b->GetStrings("tokenizer.ggml.tokens").value().size(), 262144u);
  EXPECT_EQ(b->tensors().Find("token_embd.weight")->cols(), 640u);
}

// The files of a split model, with one tensor each, of the value of their number.
struct Shard {
  int number;  // from 1
  int count;
  int tensors;  // claimed of the whole
};
void WriteShard(const fs::path& folder, const Shard& shard) {
  GgufWriter writer;
  if (shard.number == 1) writer.SetString("general.architecture", "llama");
  writer.SetInt32("split.no", shard.number - 1);
  writer.SetInt32("split.count", shard.count);
  writer.SetInt32("split.tensors.count", shard.tensors);
  const std::vector<uint64_t> shape = {1};
  ASSERT_TRUE(
      writer.AddTensor("t" + std::to_string(shard.number), Format::kF32, shape).has_value());
  char name[64];
  snprintf(name, sizeof(name), "m-%05d-of-%05d.gguf", shard.number, shard.count);
  auto stream = writer.Begin(folder / name);
  const auto value = static_cast<float>(shard.number);
  ASSERT_TRUE(stream->Append(std::as_bytes(std::span(&value, 1))).has_value());
  ASSERT_TRUE(stream->Finish().has_value());
}

TEST(Gguf, AnyShardOpensTheSplitModel) {
  const testing::TempDir folder;
  for (int i = 1; i <= 3; ++i) WriteShard(folder.path(), {.number = i, .count = 3, .tensors = 3});
  for (const char* name : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = GgufFile::Open(folder.path() / name);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->files().size(), 3u);
    EXPECT_EQ(file->GetString("general.architecture").value(), "llama");
    for (int i = 1; i <= 3; ++i) {
      const SourceTensor* tensor = file->tensors().Find("t" + std::to_string(i));
      ASSERT_NE(tensor, nullptr);
      float value = 0.0f;
      std::memcpy(&value, tensor->bytes.data(), sizeof(value));
      EXPECT_EQ(value, static_cast<float>(i));
      EXPECT_EQ(tensor->file, i - 1);
    }
  }
}

TEST(Gguf, NamesWhatASplitModelLacks) {
  const testing::TempDir folder;
  const auto error_of = [&](const fs::path& name) {
    const auto file = GgufFile::Open(folder.path() / name);
    return file ? std::string("no error") : file.error().message;
  };
  WriteShard(folder.path(), {.number = 1, .count = 2, .tensors = 2});
  EXPECT_NE(error_of("m-00001-of-00002.gguf").find("m-00002-of-00002.gguf: file 2 of 2"),
            std::string::npos);
  WriteShard(folder.path(), {.number = 2, .count = 2, .tensors = 2});
  EXPECT_EQ(error_of("m-00001-of-00002.gguf"), "no error");
  fs::copy_file(folder.path() / "m-00001-of-00002.gguf", folder.path() / "m-00002-of-00002.gguf",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(error_of("m-00001-of-00002.gguf").find("expected split.no 1"), std::string::npos);
  WriteShard(folder.path(), {.number = 1, .count = 2, .tensors = 5});
  WriteShard(folder.path(), {.number = 2, .count = 2, .tensors = 5});
  EXPECT_NE(error_of("m-00002-of-00002.gguf").find("has 2 tensors, split.tensors.count says 5"),
            std::string::npos);
  fs::rename(folder.path() / "m-00001-of-00002.gguf", folder.path() / "renamed.gguf");
  EXPECT_NE(error_of("renamed.gguf").find("expected a name like"), std::string::npos);
}

}  // namespace
}  // namespace nibble
