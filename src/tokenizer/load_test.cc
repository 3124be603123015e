#include "tokenizer/load.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

TEST(FindTokenizerFile, PrefersInTheDocumentedOrder) {
  const testing::TempDir dir;
  EXPECT_TRUE(FindTokenizerFile(dir.path()).empty());
  EXPECT_TRUE(FindTokenizerFile(dir.path() / "missing").empty());
  std::filesystem::create_directories(dir.path() / "tokenizer.json.d" / "x.model");
  // From the last choice to the first: each file wins over all that are there.
  for (const char* name :
       {"tokenizer.bin", "z.tiktoken", "b.model", "encoder.json", "vocab.json",
        "sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "tokenizer.json"}) {
    std::ofstream(dir.path() / name) << "x";
    EXPECT_EQ(FindTokenizerFile(dir.path()), dir.path() / name);
  }
}

TEST(FindTokenizerFile, AFolderOfThatNameIsNone) {
  const testing::TempDir dir;
  std::filesystem::create_directories(dir.path() / "tokenizer.json");
  EXPECT_TRUE(FindTokenizerFile(dir.path()).empty());
  EXPECT_FALSE(LoadTokenizer(dir.path()));
}

}  // namespace
}  // namespace nibble
