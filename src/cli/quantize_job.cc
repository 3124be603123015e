#include "cli/quantize_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/sha256.h"
#include "cli/output.h"
#include "cli/quantize_floats.h"
#include "kernels/kernel_table.h"
#include "platform/cpu.h"
#include "quantize/hf_target.h"

namespace nibble::cli {
namespace {

Status CheckMethodFlags(const QuantizeFlags& own, const Recipe& recipe) {
  const auto only = [](bool given, bool fits, const char* flag, const char* with) -> Status {
    if (!given || fits) return {};
    return BadInput("{}: only with --method {}", flag, with);
  };
  const bool gptq = recipe.rounding == Rounding::kGptq;
  NIBBLE_RETURN_IF_ERROR(only(own.act_order, gptq, "--act-order", "gptq"));
  NIBBLE_RETURN_IF_ERROR(only(own.static_groups, gptq, "--static-groups", "gptq"));
  NIBBLE_RETURN_IF_ERROR(only(own.damp != 0.01, gptq, "--damp", "gptq"));
  NIBBLE_RETURN_IF_ERROR(
      only(own.alpha != 0.5, recipe.scaling == Scaling::kSmoothQuant, "--alpha", "smoothquant"));
  NIBBLE_RETURN_IF_ERROR(only(own.clip, recipe.scaling == Scaling::kAwq, "--clip", "awq"));
  NIBBLE_RETURN_IF_ERROR(
      only(own.mse, gptq || recipe.rounding == Rounding::kRtn, "--mse", "rtn or gptq"));
  return only(own.threshold != 6, recipe.rounding == Rounding::kLlmInt8, "--threshold", "llm-int8");
}

// What the output has no place for is refused: else the card would tell of it.
Status CheckOutputFlags(const QuantizeFlags& own) {
  const bool gguf = ToGguf(own);
  const std::pair<bool, const char*> of_folders[] = {{own.group > 0, "--group"},
                                                     {!own.granularity.empty(), "--granularity"},
                                                     {own.sym, "--sym"},
                                                     {own.asym, "--asym"},
                                                     {own.mse, "--mse"}};
  for (const auto& [given, flag] : of_folders) {
    if (gguf && given) return BadInput("{}: GGUF's types have grids of their own", flag);
    if (FloatsOfFolder(own) && given) return BadInput("{}: {} has no grid", flag, own.to);
  }
  const std::pair<bool, const char*> of_gguf[] = {{!own.rules.empty(), "--tensor-type"},
                                                  {!own.importance.imatrix.empty(), "--imatrix"},
                                                  {!own.importance.save.empty(), "--save-imatrix"}};
  for (const auto& [given, flag] : of_gguf) {
    if (!gguf && given) return BadInput("{}: only for an OUT that ends in .gguf", flag);
  }
  return {};
}

// A text or matrix that the method would not look at.
Status CheckImportanceFlags(const QuantizeFlags& own, const Recipe& recipe) {
  const bool searches = ToGguf(own) && recipe.rounding == Rounding::kKquant;
  if (!own.importance.imatrix.empty() && !searches) {
    return BadInput("--imatrix: only with --method kquant");
  }
  const bool takes_text = recipe.NeedsCalibration() || !own.budget.empty();
  const bool reads = searches || takes_text;
  const bool reads_now = takes_text || (searches && !own.importance.calib.empty());
  const std::pair<bool, const char*> of_texts[] = {
      {own.importance.sequences != ImportanceFlags{}.sequences, "--calib-sequences"},
      {own.importance.length != ImportanceFlags{}.length, "--calib-length"}};
  if (!own.importance.calib.empty() && !reads && !FloatsOfFolder(own)) {
    return BadInput("--calib: {} looks at no text", recipe.Describe());
  }
  for (const auto& [given, flag] : of_texts) {
    if (!given || reads_now) continue;
    if (searches) return BadInput("{}: no text is looked at without --calib", flag);
    return BadInput("{}: {} looks at no text", flag, recipe.Describe());
  }
  return {};
}

}  // namespace

bool ToGguf(const QuantizeFlags& own) { return own.out.ends_with(".gguf"); }

Result<Recipe> RecipeOf(const QuantizeFlags& own, bool folder) {
  Rounding plain = folder ? Rounding::kRtn : Rounding::kKquant;
  if (own.to == "llm-int8") plain = Rounding::kLlmInt8;
  Recipe recipe;
  recipe.rounding = plain;
  if (!own.method.empty()) {
    NIBBLE_TRY(recipe, Recipe::FromMethod(own.method, plain));
  }
  recipe.act_order = own.act_order;
  recipe.static_groups = own.static_groups;
  recipe.mse = own.mse;
  recipe.clip = own.clip;
  recipe.rotate = own.rotate;
  recipe.damping = own.damp;
  recipe.alpha = own.alpha;
  recipe.threshold = own.threshold;
  NIBBLE_RETURN_IF_ERROR(CheckMethodFlags(own, recipe));
  NIBBLE_RETURN_IF_ERROR(CheckOutputFlags(own));
  NIBBLE_RETURN_IF_ERROR(CheckImportanceFlags(own, recipe));
  if (folder && recipe.rounding == Rounding::kLlmInt8 && own.to != "llm-int8") {
    return BadInput("--method llm-int8: only with --to llm-int8, found --to {}", own.to);
  }
  return recipe;
}

Status CheckSourceBits(const QuantizeFlags& own, const ModelFile& model) {
  for (const SourceTensor& tensor : model.source().tensors()) {
    if (own.requantize || !tensor.format) continue;
    const double bits = TraitsOf(*tensor.format).BitsPerWeight();
    if (bits >= 8) continue;
    return BadInput(
        "'{}' is {} ({:.4g} bits a weight): quantising it again loses more than it says; start "
        "from a float or 8-bit file, or say --requantize",
        tensor.name, tensor.type_name, bits);
  }
  return {};
}

void PrintSourceIsQuantised() {
  fmt::print(stderr, "note: the source is quantised itself; its errors stay in the result\n");
}

Status CheckLayoutName(const QuantizeFlags& own) {
  NIBBLE_TRY([[maybe_unused]] const HfScheme scheme, HfSchemeFromName(own.to, false));
  return {};
}

std::string StoreKey(const QuantizeJob& job, std::string_view more) {
  std::string key = std::string(NIBBLE_VERSION);
  for (const MappedFile& file : job.model.files()) {
    std::error_code ignored;
    const auto time = std::filesystem::last_write_time(file.path(), ignored);
    key += fmt::format("|{} {} {}", std::filesystem::absolute(file.path(), ignored).string(),
                       file.bytes().size(), time.time_since_epoch().count());
  }
  key += fmt::format("|{} {}|{}|{}|{}", job.own.to, job.own.budget, job.recipe.Describe(),
                     fmt::join(job.own.rules, " "), more);
  if (job.recipe.rotate) key += fmt::format("|{}", job.flags.seed.value_or(1));
  return Sha256Hex(key);
}

std::string CalibrationKey(const CardCalibration& calibration) {
  return fmt::format(" {} {} {} {}", calibration.sha256, calibration.sequences, calibration.length,
                     calibration.seed ? fmt::format("{}", *calibration.seed) : "start");
}

Result<TensorStore> OpenStore(const QuantizeJob& job, std::string_view key) {
  NIBBLE_TRY(TensorStore store, TensorStore::Open(job.own.out, key));
  if (store.found() > 0 && !job.flags.quiet) {
    fmt::print(stderr, "note: {} tensors are there from a run that was stopped\n", store.found());
  }
  return store;
}

std::unexpected<Error> KeptFor(Error error, TensorStore& store) {
  if (error.kind == ErrorKind::kIo) {
    error.message += fmt::format("; finished tensors are kept in {}: the same command goes on",
                                 store.Keep().string());
  }
  return std::unexpected(std::move(error));
}

Result<CalibratedResult> RunCalibrated(const QuantizeJob& job, const Calibration& calibration,
                                       LinearTarget& target) {
  CalibratedOptions options;
  options.recipe = job.recipe;
  options.sequences = calibration.sequences;
  NIBBLE_TRY(options.memory, ParseSize(job.own.calib_memory));
  options.folder = std::filesystem::absolute(job.own.out).parent_path();
  Progress progress("quantize", !job.flags.quiet);
  options.progress = [&](double done, const std::string& what) { progress.Update(done, what); };
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  return QuantizeLinears(job.model, options, KernelsFor(isa), job.pool, target);
}

}  // namespace nibble::cli
