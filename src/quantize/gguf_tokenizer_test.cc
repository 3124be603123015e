#include "quantize/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "tests/support/test_data.h"
#include "tokenizer/load.h"

namespace nibble {
namespace {

struct Case {
  std::string name;
  std::string file;  // below the shared tokenizers
  std::string model;
};

class ToGguf : public ::testing::TestWithParam<Case> {};

// A tokenizer.json, written as GGUF's keys and read back, gives the same ids of other texts than
// the one that was looked at.
TEST_P(ToGguf, CutsTheSame) {
  NIBBLE_SHARED_OR_SKIP(file, "tokenizers/" + GetParam().file);
  NIBBLE_SHARED_OR_SKIP(corpus, "corpora/war-and-peace.txt");
  const testing::TempDir dir;
  std::filesystem::copy(file, dir.path() / "tokenizer.json");
  const std::filesystem::path config = file.parent_path() / "tokenizer_config.json";
  if (std::filesystem::exists(config)) {
    std::filesystem::copy(config, dir.path() / "tokenizer_config.json");
  }
  const Tokenizer tokenizer = LoadTokenizer(dir.path()).value();
  GgufWriter writer;
  const std::filesystem::path path = dir.path() / "x.gguf";
  const Status written = WriteGgufTokenizer(dir.path(), tokenizer, tokenizer.vocab_size() + 3,
                                            "a sample", path, writer);
  ASSERT_TRUE(written) << written.error().message;
  ASSERT_TRUE(writer.Begin(path)->Finish());
  const GgufFile read = GgufFile::Open(path).value();
  EXPECT_EQ(read.GetString("tokenizer.ggml.model").value(), GetParam().model);
  const Tokenizer found = LoadGgufTokenizer(read).value();
  EXPECT_EQ(found.vocab_size(), tokenizer.vocab_size() + 3);
  EXPECT_EQ(found.bos(), tokenizer.bos());
  EXPECT_EQ(found.eos(), tokenizer.eos());
  EXPECT_EQ(found.chat_template(), tokenizer.chat_template());
  std::ifstream stream(corpus, std::ios::binary);
  std::string text(200000, ' ');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  EXPECT_EQ(found.Encode(text).value(), tokenizer.Encode(text).value());
  for (int i = 0; i < tokenizer.vocab_size(); ++i) {
    ASSERT_EQ(found.Piece(TokenId{i}), tokenizer.Piece(TokenId{i}));
    ASSERT_EQ(found.IsControl(TokenId{i}), tokenizer.IsControl(TokenId{i})) << i;
    ASSERT_EQ(found.IsEnd(TokenId{i}), tokenizer.IsEnd(TokenId{i})) << found.Piece(TokenId{i});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, ToGguf,
    ::testing::Values(Case{"Cl100k", "neural-api/tiny_bpe_split_cl100k_tokenizer.json", "gpt2"},
                      Case{"Qwen2", "neural-api/tiny_bpe_split_qwen2_tokenizer.json", "gpt2"},
                      Case{"MiniMind", "minimind/tokenizer.json", "gpt2"},
                      Case{"Phi3", "phi-3-mini/tokenizer.json", "llama"}),
    [](const auto& info) { return info.param.name; });

TEST(ToGguf, RefusesWhatGgufCannotHold) {
  NIBBLE_SHARED_OR_SKIP(file, "tokenizers/neural-api/tiny_wordpiece_tokenizer.json");
  const testing::TempDir dir;
  std::filesystem::copy(file, dir.path() / "tokenizer.json");
  const Tokenizer tokenizer = LoadTokenizer(dir.path()).value();
  GgufWriter writer;
  const Status written =
      WriteGgufTokenizer(dir.path(), tokenizer, 1 << 20, "", dir.path() / "x.gguf", writer);
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("WordPiece"), std::string::npos);
  const Status small = WriteGgufTokenizer(dir.path(), tokenizer, 3, "", dir.path() / "x", writer);
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("at most the model's 3"), std::string::npos);
}

}  // namespace
}  // namespace nibble
