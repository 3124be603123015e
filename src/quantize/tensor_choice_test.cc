#include "quantize/tensor_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "model/config/model_file.h"
#include "quantize/imatrix.h"

namespace nibble {
namespace {

struct Shape {
  int layers = 16;
  int kv_heads = 2;  // of 8
  int width = 256;
  bool tied = true;
  const char* format = "f16";
};

// A llama of random weights; nothing but its shape and formats counts here.
Result<ModelFile> Model(const Shape& shape) {
  const std::string config = fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": {},
          "intermediate_size": 512, "num_hidden_layers": {}, "num_attention_heads": 8,
          "num_key_value_heads": {}, "vocab_size": 64, "max_position_embeddings": 128,
          "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": {}}})",
      shape.width, shape.layers, shape.kv_heads, shape.tied);
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(config));
  NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(shape.format));
  return ModelFile::Random(document.root(), mix);
}

std::map<std::string, TensorChoice, std::less<>> ByName(const std::vector<TensorChoice>& choices) {
  std::map<std::string, TensorChoice, std::less<>> result;
  for (const TensorChoice& choice : choices) result.emplace(choice.name(), choice);
  return result;
}

ChoiceOptions Options(std::string_view mix, bool importance = false) {
  ChoiceOptions options = {.mix = *FormatMix::FromName(mix)};
  if (importance) options.mix.UseImportance();
  return options;
}

// The formats of the matrices that a mix treats apart, in every layer.
struct LayerFormats {
  Format value;
  Format output;
  Format down;
  Format others;
};
using Expect = std::function<LayerFormats(int layer, int layers)>;

void ExpectMix(std::string_view mix, const Shape& shape, bool importance, const Expect& expected) {
  const auto model = Model(shape);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto choices = ChooseFormats(*model, Options(mix, importance));
  ASSERT_TRUE(choices.has_value()) << choices.error().message;
  auto by_name = ByName(*choices);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const auto of = [&](std::string_view name) {
      const auto found = by_name.find(fmt::format("blk.{}.{}.weight", layer, name));
      EXPECT_NE(found, by_name.end()) << name;
      return found == by_name.end() ? Format::kF32 : found->second.to;
    };
    const LayerFormats e = expected(layer, shape.layers);
    EXPECT_EQ(of("attn_v"), e.value) << mix << " v " << layer;
    EXPECT_EQ(of("attn_output"), e.output) << mix << " o " << layer;
    EXPECT_EQ(of("ffn_down"), e.down) << mix << " down " << layer;
    for (const char* name : {"attn_q", "attn_k", "ffn_gate", "ffn_up"}) {
      EXPECT_EQ(of(name), e.others) << mix << " " << name << layer;
    }
    for (const char* name : {"attn_norm", "ffn_norm"}) {
      const auto& norm = by_name.at(fmt::format("blk.{}.{}.weight", layer, name));
      EXPECT_FALSE(norm.matrix) << name;
      EXPECT_EQ(norm.to, Format::kF32) << name;
    }
  }
}

// llama.cpp's use_more_bits, with its integer divisions.
bool More(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

TEST(TensorChoice, MixesAreThoseOfLlamaCpp) {
  constexpr auto kQ2K = Format::kQ2K, kQ3K = Format::kQ3K, kQ4K = Format::kQ4K, kQ5K = Format::kQ5K,
                 kQ6K = Format::kQ6K;
  for (const int layers : {7, 16, 30}) {
    const Shape grouped = {.layers = layers};
    const Shape plain = {.layers = layers, .kv_heads = 8};
    ExpectMix("q2_k", grouped, false,
              [&](int, int) { return LayerFormats{kQ4K, kQ3K, kQ3K, kQ2K}; });
    ExpectMix("q2_k", plain, false, [&](int, int) { return LayerFormats{kQ3K, kQ3K, kQ3K, kQ2K}; });
    ExpectMix("q3_k_s", grouped, false,
              [&](int, int) { return LayerFormats{kQ3K, kQ3K, kQ3K, kQ3K}; });
    ExpectMix("q3_k_m", grouped, false, [&](int i, int n) {
      return LayerFormats{i < 2 ? kQ5K : kQ4K, kQ4K, i < n / 16 ? kQ5K : kQ4K, kQ3K};
    });
    ExpectMix("q3_k_l", grouped, false,
              [&](int, int) { return LayerFormats{kQ5K, kQ5K, kQ5K, kQ3K}; });
    ExpectMix("q4_k_s", grouped, false, [&](int i, int n) {
      return LayerFormats{i < 4 ? kQ5K : kQ4K, kQ4K, i < n / 8 ? kQ5K : kQ4K, kQ4K};
    });
    ExpectMix("Q4_K_M", grouped, false, [&](int i, int n) {
      return LayerFormats{More(i, n) ? kQ6K : kQ4K, kQ4K, More(i, n) ? kQ6K : kQ4K, kQ4K};
    });
    ExpectMix("q5_k_s", grouped, false,
              [&](int, int) { return LayerFormats{kQ5K, kQ5K, kQ5K, kQ5K}; });
    ExpectMix("q5_k_m", plain, false, [&](int i, int n) {
      return LayerFormats{More(i, n) ? kQ6K : kQ5K, kQ5K, More(i, n) ? kQ6K : kQ5K, kQ5K};
    });
    for (const bool importance : {false, true}) {
      const auto kXs = Format::kIq4Xs;
      ExpectMix("iq4_xs", grouped, importance, [&](int i, int n) {
        return LayerFormats{kQ5K, kXs, i < n / 8 && !importance ? kQ5K : kXs, kXs};
      });
      ExpectMix("iq4_xs", plain, importance, [&](int i, int n) {
        return LayerFormats{kXs, kXs, i < n / 8 && !importance ? kQ5K : kXs, kXs};
      });
      ExpectMix("q4_0", grouped, importance, [&](int i, int n) {
        const auto down = i < n / 8 && importance ? Format::kQ4_1 : Format::kQ4_0;
        return LayerFormats{Format::kQ4_0, Format::kQ4_0, down, Format::kQ4_0};
      });
      ExpectMix("q5_0", grouped, importance, [&](int i, int n) {
        const auto down = i < n / 8 && importance ? Format::kQ5_1 : Format::kQ5_0;
        return LayerFormats{Format::kQ5_0, Format::kQ5_0, down, Format::kQ5_0};
      });
    }
  }
}

TEST(TensorChoice, OutputAndEmbedding) {
  const auto formats = [](std::string_view mix, bool tied, int width) {
    const auto model = Model({.layers = 2, .width = width, .tied = tied});
    EXPECT_TRUE(model.has_value());
    auto by_name = ByName(*ChooseFormats(*model, Options(mix)));
    const Format embedding = by_name.at("token_embd.weight").to;
    return std::pair{embedding, tied ? embedding : by_name.at("output.weight").to};
  };
  using Both = std::pair<Format, Format>;
  EXPECT_EQ(formats("q4_k_m", true, 256), Both(Format::kQ6K, Format::kQ6K));
  EXPECT_EQ(formats("q4_k_m", false, 256), Both(Format::kQ4K, Format::kQ6K));
  EXPECT_EQ(formats("q2_k", false, 256), Both(Format::kQ2K, Format::kQ6K));
  EXPECT_EQ(formats("q8_0", true, 256), Both(Format::kQ8_0, Format::kQ8_0));
  EXPECT_EQ(formats("q4_0", false, 256), Both(Format::kQ4_0, Format::kQ6K));
  // Blocks of 256 that do not divide the columns: Q8_0, and a fallback that a note names.
  EXPECT_EQ(formats("q4_k_m", false, 192), Both(Format::kQ5_0, Format::kQ8_0));
}

TEST(TensorChoice, FallbacksAreNamed) {
  const auto model = Model({.layers = 2, .width = 192});
  const std::pair<std::string_view, Format> expected[] = {
      {"q2_k", Format::kIq4Nl},  {"q3_k_s", Format::kIq4Nl}, {"q4_k_s", Format::kQ5_0},
      {"q5_k_s", Format::kQ5_1}, {"q6_k", Format::kQ8_0},    {"iq4_xs", Format::kIq4Nl}};
  for (const auto& [mix, format] : expected) {
    auto by_name = ByName(*ChooseFormats(*model, Options(mix)));
    const TensorChoice& query = by_name.at("blk.1.attn_q.weight");
    EXPECT_EQ(query.to, format) << mix;
    EXPECT_NE(query.note.find("does not divide 192 columns"), std::string::npos) << query.note;
    const TensorChoice& down = by_name.at("blk.1.ffn_down.weight");  // 512
    EXPECT_TRUE(down.note.empty()) << down.note;
  }
}

TEST(TensorChoice, RulesComeBeforeTheMix) {
  const auto model = Model({.layers = 3});
  ChoiceOptions options = Options("q4_k_m");
  options.rules.push_back(*TypeRule::Parse("blk\\.1\\..*down=q8_0"));
  options.rules.push_back(*TypeRule::Parse("ffn_down=Q5_K"));
  const auto choices = ChooseFormats(*model, options);
  ASSERT_TRUE(choices.has_value()) << choices.error().message;
  auto by_name = ByName(*choices);
  EXPECT_EQ(by_name.at("blk.0.ffn_down.weight").to, Format::kQ5K);
  EXPECT_EQ(by_name.at("blk.1.ffn_down.weight").to, Format::kQ8_0);
  EXPECT_EQ(by_name.at("blk.1.ffn_down.weight").note, "--tensor-type");

  options.rules.push_back(*TypeRule::Parse("no_such=q8_0"));
  const auto unused = ChooseFormats(*model, options);
  ASSERT_FALSE(unused.has_value());
  EXPECT_NE(unused.error().message.find("no_such"), std::string::npos);
  for (const char* wrong : {"q8_0", "=q8_0", "a=q9", "a=f8_e4m3", "(=q8_0"}) {
    EXPECT_FALSE(TypeRule::Parse(wrong).has_value()) << wrong;
  }
  const auto narrow = Model({.layers = 1, .width = 192});
  options.rules = {*TypeRule::Parse("attn_q=q4_k")};
  const auto refused = ChooseFormats(*narrow, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("192 columns"), std::string::npos);
}

TEST(TensorChoice, SourcesOfFewBitsNeedAWord) {
  const auto eight = Model({.layers = 1, .format = "q8_0"});
  EXPECT_TRUE(ChooseFormats(*eight, Options("q4_k_m")).has_value());
  const auto four = Model({.layers = 1, .format = "q4_0"});
  ChoiceOptions options = Options("q4_k_m");
  const auto refused = ChooseFormats(*four, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("--requantize"), std::string::npos);
  options.requantize = true;
  EXPECT_TRUE(ChooseFormats(*four, options).has_value());
  // What has its format already keeps it, whatever its bits.
  const auto same = ChooseFormats(*four, Options("q4_0"));
  ASSERT_TRUE(same.has_value()) << same.error().message;
  for (const TensorChoice& choice : *same) {
    EXPECT_EQ(choice.to, choice.matrix ? choice.from : Format::kF32) << choice.name();
  }
}

TEST(TensorChoice, AnImportanceMatrixMustBeOfTheModel) {
  const auto model = Model({.layers = 1});
  const auto choices = ChooseFormats(*model, Options("q4_k_m"));
  Imatrix other;
  ASSERT_TRUE(other.Add({.name = "blk.7.x", .sums = {1}, .count = 1}).has_value());
  EXPECT_FALSE(CheckImportance(other, *choices).has_value());
  Imatrix wrong;
  ASSERT_TRUE(wrong.Add({.name = "blk.0.attn_q.weight", .sums = {1, 2}, .count = 1}).has_value());
  EXPECT_FALSE(CheckImportance(wrong, *choices).has_value());
  Imatrix partial;
  ASSERT_TRUE(
      partial
          .Add({.name = "blk.0.attn_q.weight", .sums = std::vector<float>(256, 1.0f), .count = 1})
          .has_value());
  const auto unknown = CheckImportance(partial, *choices);
  ASSERT_TRUE(unknown.has_value()) << unknown.error().message;
  EXPECT_EQ(unknown->size(), 7u);  // six linears and the embedding
}

}  // namespace
}  // namespace nibble
