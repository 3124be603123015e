#include "fetch/hugging_face.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

std::vector<RepoFile> Files(std::initializer_list<const char*> paths) {
  std::vector<RepoFile> out;
  for (const char* path : paths) out.push_back({path, 1, ""});
  return out;
}

std::vector<std::string> Chosen(const char* name, const std::vector<RepoFile>& available) {
  const auto chosen = ChooseFiles(*RepoName::Parse(name), available);
  if (!chosen) return {"error: " + chosen.error().message};
  std::vector<std::string> out;
  for (const RepoFile& file : *chosen) out.push_back(file.path);
  return out;
}

using Names = std::vector<std::string>;

TEST(HuggingFace, RepoNames) {
  const auto name = RepoName::Parse("TheBloke/Llama-2.7B_x:Q4_K_M");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->repo, "TheBloke/Llama-2.7B_x");
  EXPECT_EQ(name->quant, "Q4_K_M");
  for (const char* bad : {"model", "a/b/c", "/a", "a/", "../b", "a/..", "a b/c", "a/b:", "a/b:../x",
                          "dir/model.gguf", "a/x.safetensors", "http://a/b", ""}) {
    EXPECT_FALSE(RepoName::Parse(bad)) << bad;
  }
}

TEST(HuggingFace, QuantTags) {
  EXPECT_TRUE(HasQuantTag("model-Q4_K_M.gguf", "q4_k_m"));
  EXPECT_TRUE(HasQuantTag("model.q4_k_m-00001-of-00002.gguf", "Q4_K_M"));
  EXPECT_TRUE(HasQuantTag("Q4_K_M/model-00001-of-00002.gguf", "Q4_K_M"));
  EXPECT_FALSE(HasQuantTag("model-IQ4_K_M.gguf", "Q4_K_M"));
  EXPECT_FALSE(HasQuantTag("model-Q4_K_M_L.gguf", "Q4_K_M"));
  EXPECT_FALSE(HasQuantTag("model-Q4_K_M.gguf", "Q4_K"));
}

TEST(HuggingFace, ChoosesTheGgufOfTheQuantisation) {
  const auto files = Files({"README.md", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-Q8_0.gguf",
                            "big-Q5_0-00001-of-00003.gguf", "big-Q5_0-00002-of-00003.gguf",
                            "big-Q5_0-00003-of-00003.gguf"});
  EXPECT_EQ(Chosen("a/b:q8_0", files), Names{"m-Q8_0.gguf"});
  EXPECT_EQ(Chosen("a/b", files), Names{"m-Q4_K_M.gguf"});
  EXPECT_EQ(Chosen("a/b:Q5_0", files),
            (Names{"big-Q5_0-00001-of-00003.gguf", "big-Q5_0-00002-of-00003.gguf",
                   "big-Q5_0-00003-of-00003.gguf"}));
  const std::string message = Chosen("a/b:Q2_K", files)[0];
  EXPECT_NE(message.find("no GGUF with 'Q2_K'"), message.npos);
  EXPECT_NE(message.find("m-Q8_0.gguf"), message.npos);
  EXPECT_NE(Chosen("a/b:Q6_K", Files({"m-Q6_K-00001-of-00002.gguf"}))[0].find("lacks the part"),
            message.npos);
}

TEST(HuggingFace, ChoosesTheCheckpointWhereThereIsNoGguf) {
  const auto files =
      Files({"config.json", "tokenizer.json", "merges.txt", "README.md", "consolidated.safetensors",
             "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
             "model.safetensors.index.json", "onnx/model.onnx", "original/x.safetensors"});
  EXPECT_EQ(Chosen("a/b", files), (Names{"config.json", "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors", "tokenizer.json",
                                         "merges.txt", "model.safetensors.index.json"}));
  EXPECT_NE(Chosen("a/b:Q4_0", files)[0].find("holds no GGUF"), std::string::npos);
  EXPECT_NE(Chosen("a/b", Files({"README.md"}))[0].find("neither"), std::string::npos);
}

}  // namespace
}  // namespace nibble
