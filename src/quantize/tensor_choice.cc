#include "quantize/tensor_choice.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "model/config/model_file.h"
#include "quantize/imatrix.h"

namespace nibble {
namespace {

using Places = std::map<const SourceTensor*, TensorPlace>;

TensorRole RoleOf(Linear linear) {
  switch (linear) {
    case Linear::kQuery:
      return TensorRole::kAttnQuery;
    case Linear::kKey:
      return TensorRole::kAttnKey;
    case Linear::kValue:
      return TensorRole::kAttnValue;
    case Linear::kOutput:
      return TensorRole::kAttnOutput;
    case Linear::kGate:
      return TensorRole::kFfnGate;
    case Linear::kUp:
      return TensorRole::kFfnUp;
    case Linear::kDown:
      return TensorRole::kFfnDown;
  }
  return TensorRole::kFfnUp;
}

// Where the model's matrices stand. Of a fused tensor the last linear counts: q, k, v is a value
// matrix, as in llama.cpp.
Places PlacesOf(const ModelFile& file) {
  const ModelConfig& config = file.config();
  const ModelTensors& tensors = file.tensors();
  TensorPlace place = {.layers = static_cast<int>(config.layers.size()),
                       .query_groups = config.heads / config.kv_heads};
  Places places;
  const auto put = [&](const MatrixRef& matrix, TensorRole role, int layer) {
    if (!matrix) return;
    place.role = role;
    place.layer = layer;
    place.cols = matrix.cols;
    places[matrix.tensor] = place;
  };
  put(tensors.embedding, tensors.output.weight ? TensorRole::kEmbedding : TensorRole::kOutput, 0);
  put(tensors.output.weight, TensorRole::kOutput, 0);
  for (int layer = 0; layer < place.layers; ++layer) {
    for (size_t i = 0; i < kLinears; ++i) {
      const auto linear = static_cast<Linear>(i);
      put(tensors.layers[static_cast<size_t>(layer)][linear].weight, RoleOf(linear), layer);
    }
  }
  return places;
}

Result<std::optional<Format>> RuleFor(const std::vector<TypeRule>& rules, std::string_view name,
                                      std::vector<bool>& used) {
  for (size_t i = 0; i < rules.size(); ++i) {
    NIBBLE_TRY(const bool matches, rules[i].Matches(name));
    if (!matches) continue;
    used[i] = true;
    return rules[i].format();
  }
  return std::nullopt;
}

// A matrix's choice: the rule's format or the mix's, and what is said about it.
Result<TensorChoice> Choose(TensorView view, const TensorPlace& place, std::optional<Format> ruled,
                            const ChoiceOptions& options) {
  const Format stored = *view.tensor->format;
  TensorChoice choice = {
      .view = std::move(view), .from = stored, .to = options.mix.For(place), .matrix = true};
  const FormatTraits& from = TraitsOf(stored);
  if (ruled) {
    const FormatTraits& to = TraitsOf(*ruled);
    if (place.cols % to.block_elements != 0) {
      return BadInput("--tensor-type: '{}' has {} columns, which {} (blocks of {}) does not divide",
                      choice.name(), place.cols, to.name, to.block_elements);
    }
    choice.to = *ruled;
    choice.ruled = true;
    choice.note = "--tensor-type";
  } else if (const Format wanted = options.mix.Wanted(place); wanted != choice.to) {
    choice.note = fmt::format("{} does not divide {} columns", TraitsOf(wanted).name, place.cols);
  }
  choice.copied = choice.to == stored && choice.view.AsStored();
  if (choice.to != stored && from.BitsPerWeight() < 8 && !options.requantize) {
    return BadInput(
        "'{}' is {} ({:.4g} bits a weight): quantising it again loses more than it says; start "
        "from a float or 8-bit file, or say --requantize",
        choice.name(), from.name, from.BitsPerWeight());
  }
  return choice;
}

// A tensor that is no matrix of the model.
TensorChoice Keep(TensorView view, bool gguf) {
  TensorChoice choice = {.view = std::move(view)};
  if (choice.view.tensor == nullptr) return choice;
  choice.from = *choice.view.tensor->format;
  const bool vector = choice.view.tensor->rank < 2;
  const bool known = TraitsOf(choice.from).gguf_type.has_value();
  choice.to = gguf || (!vector && known) ? choice.from : Format::kF32;
  choice.copied = choice.to == choice.from && choice.view.AsStored();
  return choice;
}

}  // namespace

Result<TypeRule> TypeRule::Parse(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return BadInput("--tensor-type: expected REGEX=TYPE, found '{}'", text);
  }
  const std::string type = text.substr(equals + 1);
  const auto format = FormatFromName(type);
  if (!format || !TraitsOf(*format).gguf_type) {
    std::string known;
    for (const FormatTraits& traits : AllFormats()) {
      if (traits.gguf_type) known += fmt::format(" {}", traits.name);
    }
    return BadInput("--tensor-type: unknown type '{}'; known:{}", type, known);
  }
  auto pattern = Regex::Compile(text.substr(0, equals), RegexDialect::kRust);
  if (!pattern) return Within("--tensor-type '" + text + "'", pattern.error());
  return TypeRule(text, std::make_shared<const Regex>(*std::move(pattern)), *format);
}

Result<bool> TypeRule::Matches(std::string_view name) const {
  RegexMatcher matcher(*pattern_, name.size());
  std::vector<MatchRange> found;
  const Status status = matcher.FindAll(name, found);
  if (!status) return Within("--tensor-type '" + text_ + "'", status.error());
  return !found.empty();
}

Result<std::vector<TensorChoice>> ChooseFormats(const ModelFile& file,
                                                const ChoiceOptions& options) {
  const Places places = PlacesOf(file);
  NIBBLE_TRY(std::vector<TensorView> views, GgufTensors(file));
  std::vector<bool> used(options.rules.size());
  std::vector<TensorChoice> choices;
  for (TensorView& view : views) {
    const auto place = places.find(view.tensor);
    if (place == places.end()) {
      choices.push_back(Keep(std::move(view), file.is_gguf()));
      continue;
    }
    NIBBLE_TRY(const auto ruled, RuleFor(options.rules, view.name, used));
    NIBBLE_TRY(TensorChoice choice, Choose(std::move(view), place->second, ruled, options));
    choices.push_back(std::move(choice));
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) {
      return BadInput("--tensor-type: '{}' matches no matrix of the model",
                      options.rules[i].text());
    }
  }
  return choices;
}

Result<std::vector<std::string>> CheckImportance(const Imatrix& imatrix,
                                                 const std::vector<TensorChoice>& choices) {
  std::vector<std::string> unknown;
  bool any = false;
  for (const TensorChoice& choice : choices) {
    if (choice.copied || TraitsOf(choice.to).encode_weighted == nullptr) continue;
    NIBBLE_TRY(const auto importance, imatrix.ImportanceOf(choice.name(), choice.view.cols()));
    any = any || !importance.empty();
    if (importance.empty()) unknown.push_back(choice.name());
  }
  if (!any && !unknown.empty()) {
    return BadInput("importance matrix: of another model: nothing about '{}', but about '{}'",
                    unknown.front(),
                    imatrix.entries().empty() ? "" : imatrix.entries().front().name);
  }
  return unknown;
}

}  // namespace nibble
