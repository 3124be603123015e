#include <map>
#include <string>

#include "container/gguf_writer.h"
#include "container/safetensors.h"
#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

// A llama GGUF of two layers that loads, with one thing changed by each test.
struct TinyModel {
  std::string architecture = "llama";
  std::map<std::string, int64_t> ints = {
      {"block_count", 2},          {"context_length", 64},      {"embedding_length", 32},
      {"feed_forward_length", 48}, {"attention.head_count", 4}, {"attention.head_count_kv", 2},
      {"vocab_size", 10}};
  std::map<std::string, std::vector<uint64_t>> tensors = {{"token_embd.weight", {10, 32}},
                                                          {"output_norm.weight", {32}}};
  int tokens = 10;

  TinyModel() {
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      tensors[layer + "attn_norm.weight"] = {32};
      tensors[layer + "ffn_norm.weight"] = {32};
      tensors[layer + "attn_q.weight"] = {32, 32};
      tensors[layer + "attn_k.weight"] = {16, 32};
      tensors[layer + "attn_v.weight"] = {16, 32};
      tensors[layer + "attn_output.weight"] = {32, 32};
      tensors[layer + "ffn_gate.weight"] = {48, 32};
      tensors[layer + "ffn_up.weight"] = {48, 32};
      tensors[layer + "ffn_down.weight"] = {32, 48};
    }
  }

  void Write(const std::filesystem::path& path) const {
    GgufWriter writer;
    writer.SetString("general.architecture", architecture);
    for (const auto& [key, value] : ints) {
      if (value < 0) {
        writer.SetInt32(architecture + "." + key, static_cast<int32_t>(value));
      } else {
        writer.SetUint64(architecture + "." + key, static_cast<uint64_t>(value));
      }
    }
    writer.SetFloat32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
    const std::vector<std::string_view> texts(static_cast<size_t>(tokens), "t");
    writer.SetStrings("tokenizer.ggml.tokens", texts);
    for (const auto& [name, shape] : tensors) {
      ASSERT_TRUE(writer.AddTensor(name, Format::kF32, shape));
    }
    auto stream = writer.Begin(path);
    ASSERT_TRUE(stream);
    for (const auto& [name, shape] : tensors) {
      size_t count = 1;
      for (const uint64_t size : shape) count *= size;
      const std::vector<float> values(count, 0.125F);
      ASSERT_TRUE(stream->Append(std::as_bytes(std::span(values))));
    }
    ASSERT_TRUE(stream->Finish());
  }
};

std::string LoadError(const std::filesystem::path& path) {
  ThreadPool pool(1);
  const auto decoder = Decoder::Load(path, {}, KernelsFor(Isa::kScalar), pool);
  return decoder ? "no error" : decoder.error().message;
}

class BadGguf : public ::testing::Test {
 protected:
  void ExpectError(const std::vector<std::string>& parts) {
    model_.Write(dir_.path() / "bad.gguf");
    const std::string error = LoadError(dir_.path() / "bad.gguf");
    for (const std::string& part : parts) {
      EXPECT_NE(error.find(part), std::string::npos) << "no \"" << part << "\" in: " << error;
    }
    EXPECT_NE(error.find("bad.gguf"), std::string::npos) << error;
  }

  TempDir dir_;
  TinyModel model_;
};

TEST_F(BadGguf, UnchangedItLoads) {
  model_.Write(dir_.path() / "good.gguf");
  EXPECT_EQ(LoadError(dir_.path() / "good.gguf"), "no error");
}

TEST_F(BadGguf, MissingTensor) {
  model_.tensors.erase("blk.1.attn_k.weight");
  ExpectError({"'blk.1.attn_k.weight' is missing", "16 x 32"});
}

TEST_F(BadGguf, WrongShape) {
  model_.tensors["blk.0.ffn_down.weight"] = {32, 40};
  ExpectError({"'blk.0.ffn_down.weight'", "expected shape 32 x 48", "found 32 x 40"});
}

TEST_F(BadGguf, WrongRank) {
  model_.tensors["blk.0.attn_norm.weight"] = {1, 32};
  ExpectError({"'blk.0.attn_norm.weight'", "expected shape 32", "found 1 x 32"});
}

TEST_F(BadGguf, ShapeOfTheSameSize) {
  model_.tensors["blk.0.attn_q.weight"] = {16, 64};
  ExpectError({"'blk.0.attn_q.weight'", "expected shape 32 x 32", "found 16 x 64"});
}

TEST_F(BadGguf, EmbeddingOfAnotherVocabulary) {
  model_.tensors["token_embd.weight"] = {12, 32};
  ExpectError({"'token_embd.weight'", "expected shape 10 x 32", "found 12 x 32"});
}

TEST_F(BadGguf, TokensOfAnotherVocabulary) {
  model_.tokens = 9;
  ExpectError({"'llama.vocab_size' is 10", "9 tokens"});
}

TEST_F(BadGguf, LeftOverTensor) {
  model_.tensors["blk.2.attn_q.weight"] = {32, 32};
  ExpectError({"'blk.2.attn_q.weight'", "not part of a llama model with 2 layers"});
}

TEST_F(BadGguf, UnknownArchitecture) {
  model_.architecture = "flamingo9";
  ExpectError({"unknown architecture 'flamingo9'", "llama", "gpt2"});
}

TEST_F(BadGguf, MixtureOfExperts) {
  model_.architecture = "qwen3moe";
  ExpectError({"'qwen3moe'", "mixture of experts", "supported: llama"});
}

TEST_F(BadGguf, ExpertsInLlama) {
  model_.ints["expert_count"] = 8;
  ExpectError({"'llama.expert_count' is 8"});
}

TEST_F(BadGguf, AbsurdNumbers) {
  const std::vector<std::pair<std::string, int64_t>> cases = {
      {"block_count", int64_t{1} << 31},
      {"block_count", 0},
      {"block_count", -1},
      {"embedding_length", 0},
      {"embedding_length", int64_t{1} << 40},
      {"attention.head_count", 0},
      {"attention.head_count", -4},
      {"attention.head_count_kv", 3},
      {"attention.head_count_kv", 0},
      {"feed_forward_length", 0},
      {"feed_forward_length", int64_t{1} << 62},
      {"context_length", 0},
      {"context_length", int64_t{1} << 60},
      {"attention.key_length", 100000},
      {"rope.dimension_count", 7},
      {"rope.dimension_count", 64}};
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(key + " = " + std::to_string(value));
    TinyModel model;
    model.ints[key] = value;
    model.Write(dir_.path() / "bad.gguf");
    EXPECT_NE(LoadError(dir_.path() / "bad.gguf"), "no error");
  }
}

TEST_F(BadGguf, MissingKey) {
  model_.ints.erase("attention.head_count");
  ExpectError({"head_count"});
}

TEST_F(BadGguf, ManyLayersThatAreNotThere) {
  model_.ints["block_count"] = 4000;
  ExpectError({"'blk.2.attn_norm.weight' is missing"});
}

TEST(BadFolder, IsRefusedByName) {
  const TempDir dir;
  EXPECT_NE(LoadError(dir.path()).find("config.json"), std::string::npos);
  EXPECT_NE(LoadError(dir.path() / "none.gguf").find("none.gguf"), std::string::npos);
}

// What a config says against what the file holds.
struct HfChange {
  std::string name;
  std::string config;
  std::string error;
};

class BadHf : public ::testing::TestWithParam<HfChange> {};

TEST_P(BadHf, IsRefusedByName) {
  NIBBLE_SHARED_OR_SKIP(data, "models/hf-tiny");
  LinkedFolder folder;
  folder.Link(data / "tiny_llama.safetensors", "model.safetensors");
  folder.Write("config.json", GetParam().config);
  const std::string error = LoadError(folder.path());
  EXPECT_NE(error.find(GetParam().error), std::string::npos) << error;
}

std::string LlamaConfig(const std::string& change) {
  return R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
             "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
             "vocab_size": 11, "max_position_embeddings": 16)" +
         change + "}";
}

INSTANTIATE_TEST_SUITE_P(
    Changes, BadHf,
    ::testing::Values(
        HfChange{"Vocabulary", LlamaConfig(R"(, "vocab_size": 13)"), "expected shape 13 x 8"},
        HfChange{"Width", LlamaConfig(R"(, "hidden_size": 16)"), "found 11 x 8"},
        HfChange{"Heads", LlamaConfig(R"(, "num_key_value_heads": 2)"), "expected shape 8 x 8"},
        HfChange{"MoreLayers", LlamaConfig(R"(, "num_hidden_layers": 3)"),
                 "'model.layers.2.input_layernorm.weight' is missing"},
        HfChange{"FewerLayers", LlamaConfig(R"(, "num_hidden_layers": 1)"), "model.layers.1."},
        HfChange{"ManyLayers", LlamaConfig(R"(, "num_hidden_layers": 2147483648)"),
                 "'num_hidden_layers'"},
        HfChange{"OtherModel",
                 R"({"model_type": "gpt2", "vocab_size": 11, "n_embd": 8, "n_head": 2})",
                 "'transformer.wte.weight' is missing"},
        HfChange{"NoJson", "{", "config.json"}),
    [](const auto& info) { return info.param.name; });

TEST(LoadOptions, AreChecked) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-tiny/tiny_llama_f32.gguf");
  ThreadPool pool(1);
  const KernelTable& kernels = KernelsFor(Isa::kScalar);
  const auto context = Decoder::Load(path, {.max_context = 17}, kernels, pool);
  ASSERT_FALSE(context);
  EXPECT_NE(context.error().message.find("16 positions, found 17"), std::string::npos)
      << context.error().message;
  EXPECT_FALSE(Decoder::Load(path, {.max_rows = 0}, kernels, pool));
  EXPECT_FALSE(Decoder::Load(path, {.max_rows = 1 << 30}, kernels, pool));
}

}  // namespace
}  // namespace nibble::testing
