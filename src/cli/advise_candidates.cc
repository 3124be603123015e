#include "cli/advise_candidates.h"

#include <algorithm>

#include "cli/plan_sources.h"
#include "cli/quantize_floats.h"
#include "cli/quantize_job.h"
#include "platform/clock.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

std::vector<std::string> SplitNames(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    if (comma > begin) names.push_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return names;
}

// What vLLM runs, and the format that has as many bits and computes alike.
struct VllmLayout {
  std::string_view to;
  std::string_view priced;
  bool weight_only;
};
constexpr VllmLayout kVllmLayouts[] = {{"fp8-dynamic", "fp8", false},
                                       {"w8a8", "int8", false},
                                       {"w8a16-g128", "w8g128", true},
                                       {"w4a16-g128", "w4g128", true}};
constexpr const char* kUsualMixes = "q8_0,q6_k,q5_k_m,q4_k_m,q4_0,q3_k_m,q2_k";
constexpr const char* kUsualLayouts = "fp8-dynamic,w8a8,w4a16-g128";

Result<WeightsCandidate> LayoutCandidate(const std::string& name) {
  const auto* const layout = std::ranges::find(kVllmLayouts, name, &VllmLayout::to);
  if (layout == std::end(kVllmLayouts)) {
    std::string known;
    for (const VllmLayout& one : kVllmLayouts) {
      known += (known.empty() ? "" : ", ") + std::string(one.to);
    }
    return BadInput("--weights: of --emit vllm expected {}, found '{}'", known, name);
  }
  NIBBLE_TRY(WeightFormat priced, ParseWeightFormat(layout->priced));
  const std::optional<FormatMix> mix = priced.mix;
  return WeightsCandidate{
      .to = name, .priced = std::move(priced), .weight_only = layout->weight_only, .mix = mix};
}

Result<WeightsCandidate> MixCandidate(const std::string& name) {
  auto priced = ParseWeightFormat(name);
  if (!priced) return Within("--weights", priced.error());
  const std::optional<FormatMix> mix = priced->mix;
  if (mix && mix->NeedsImportance()) {
    return BadInput("--weights: {} needs an importance matrix, which advise does not make", name);
  }
  return WeightsCandidate{
      .to = mix ? std::string(mix->name()) : name, .priced = *std::move(priced), .mix = mix};
}

// Quantising it again would lose more than it says (quantize asks for --requantize).
bool BelowEightBits(const ModelFile& model) {
  return std::ranges::any_of(model.source().tensors(), [](const SourceTensor& tensor) {
    return tensor.linear != nullptr ||
           (tensor.format && TraitsOf(*tensor.format).BitsPerWeight() < 8);
  });
}

}  // namespace

Result<std::vector<WeightsCandidate>> WeightsCandidates(const AdviseFlags& own, AdviseEmit emit,
                                                        const ModelFile& model,
                                                        const ModelShape& shape) {
  std::vector<WeightsCandidate> candidates = {{.to = "own", .priced = {.name = "own", .mix = {}}}};
  const bool vllm = emit == AdviseEmit::kVllm;
  const bool chosen = !own.weights.empty();
  if (BelowEightBits(model)) {
    if (chosen && own.weights != "own") {
      return BadInput(
          "--weights: {} has less than 8 bits a weight already: start from a float or 8-bit model",
          own.model);
    }
    return candidates;
  }
  const double own_bytes = WeightBytes(shape, candidates[0].priced);
  for (const std::string& name : SplitNames(chosen ? own.weights
                                            : vllm ? kUsualLayouts
                                                   : kUsualMixes)) {
    if (name == "own") continue;
    NIBBLE_TRY(WeightsCandidate one, vllm ? LayoutCandidate(name) : MixCandidate(name));
    const bool smaller = WeightBytes(shape, one.priced) < 0.98 * own_bytes;
    const bool there =
        std::ranges::find(candidates, one.to, &WeightsCandidate::to) != candidates.end();
    if ((smaller || chosen) && !there) candidates.push_back(std::move(one));
  }
  return candidates;
}

Result<std::vector<KvChoice>> KvCandidates(const GlobalFlags& flags, const AdviseFlags& own,
                                           AdviseEmit emit, const ModelConfig& config) {
  const bool one_side = !flags.kv_k.empty() || !flags.kv_v.empty();
  const bool chosen = own.kv_given || one_side;
  std::string list = emit == AdviseEmit::kVllm ? "fp8" : "fp8,int8,int4,kivi4,kivi2";
  if (chosen) list = PlanKvList(flags);
  NIBBLE_TRY(const KvChoice plain, ParseKvChoice("f16"));
  std::vector<KvChoice> choices = {plain};
  for (const std::string& name : SplitNames(list)) {
    auto choice = ParseKvChoice(name);
    if (!choice) return Within("--kv", choice.error());
    choice->name = choice->formats.Name();
    choice->formats.skip_layers = flags.kv_skip_layers;
    if (!flags.kv_rotate.empty()) choice->formats.rotate = flags.kv_rotate == "on";
    if (std::ranges::find(choices, choice->name, &KvChoice::name) != choices.end()) continue;
    if (const auto groups = MakeKvGroups(config, choice->formats); !groups) {
      if (chosen) return Within("--kv", groups.error());
      continue;
    }
    choices.push_back(*std::move(choice));
  }
  return choices;
}

WeightsCandidate MadeAs(const ModelFile& model, const WeightsCandidate& weights, AdviseEmit emit) {
  WeightsCandidate made = weights;
  if (weights.to == "own" && emit == AdviseEmit::kVllm && model.is_gguf()) made.to = "f16";
  return made;
}

Result<std::filesystem::path> CandidateMaker::Make(
    const WeightsCandidate& weights, const std::filesystem::path& out,
    const std::optional<CardQuality>& quality) const {
  QuantizeFlags quantize;
  quantize.in = own.model;
  quantize.out = out.string();
  quantize.to = weights.to;
  quantize.no_quality = true;
  quantize.force = true;
  GlobalFlags quiet = flags;
  quiet.quiet = true;
  const double started = MonotonicSeconds();
  NIBBLE_TRY(const Recipe recipe, RecipeOf(quantize, !ToGguf(quantize)));
  NIBBLE_TRY(const FloatFolderSource floats,
             FloatFolderSource::Make(quiet, quantize, model, tokenizer, pool));
  const QuantizeJob job = {.flags = quiet,
                           .own = quantize,
                           .in = floats.PathOr(in),
                           .model = floats.ModelOr(model),
                           .tokenizer = tokenizer,
                           .recipe = recipe,
                           .pool = pool};
  NIBBLE_TRY(const MadeModel made, MakeModel(job));
  NIBBLE_TRY(Card card, MakeCard(job, made));
  card.source_name = in.filename().string();
  card.source_bytes = model.file_bytes();
  card.source_sha256 = source_hash;
  card.seconds = MonotonicSeconds() - started;
  card.quality = quality;
  NIBBLE_RETURN_IF_ERROR(made.commit(CardJson(card)));
  return out;
}

std::string CandidateName(const std::filesystem::path& model, const std::string& to,
                          AdviseEmit emit) {
  const std::string stem = model.has_extension() && model.extension() != ".json"
                               ? model.stem().string()
                               : model.filename().string();
  return stem + "-" + to + (emit == AdviseEmit::kVllm ? "" : ".gguf");
}

}  // namespace nibble::cli
