#include "container/gguf.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace nibble
