#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "cli/output.h"
#include "cli/quantize_budget.h"
#include "cli/quantize_job.h"
#include "eval/builtin_text.h"
#include "quantize/encode_tensor.h"
#include "quantize/gguf_target.h"
#include "quantize/gguf_tokenizer.h"

namespace nibble::cli {
namespace {

// What falls back, before the work starts.
void PrintChoices(const GlobalFlags& flags, const std::vector<TensorChoice>& choices) {
  if (flags.quiet) return;
  for (const TensorChoice& choice : choices) {
    if (choice.note.empty() || choice.note.starts_with("--budget")) continue;  // its own table
    fmt::print(stderr, "{}: {} ({})\n", choice.name(), TraitsOf(choice.to).name, choice.note);
  }
  const bool coarse = std::ranges::any_of(choices, [](const TensorChoice& choice) {
    return !choice.copied && TraitsOf(choice.from).BitsPerWeight() < 16;
  });
  if (coarse) PrintSourceIsQuantised();
}

Result<FormatMix> ChooseMix(const QuantizeJob& job) {
  // Under a budget the mix only says which tensors are matrices.
  NIBBLE_TRY(FormatMix mix, FormatMix::FromName(job.own.budget.empty() ? job.own.to : "q8_0"));
  const ImportanceFlags& own = job.own.importance;
  const bool importance = !own.calib.empty() || !own.imatrix.empty();
  if (mix.NeedsImportance() && !importance) {
    return BadInput("{} loses too much without an importance matrix: add --calib TEXT or --imatrix",
                    mix.name());
  }
  if (importance) mix.UseImportance();
  return mix;
}

Result<std::vector<TensorChoice>> Choose(const QuantizeJob& job, const FormatMix& mix) {
  ChoiceOptions options = {.mix = mix, .rules = {}, .requantize = job.own.requantize};
  for (const std::string& text : job.own.rules) {
    NIBBLE_TRY(TypeRule rule, TypeRule::Parse(text));
    options.rules.push_back(std::move(rule));
  }
  NIBBLE_TRY(auto choices, ChooseFormats(job.model, options));
  for (const TensorChoice& choice : choices) {
    if (TraitsOf(choice.to).gguf_type) continue;
    return BadInput("'{}': GGUF has no type {}", choice.name(), TraitsOf(choice.to).name);
  }
  return choices;
}

// The importance of the columns, checked against what is to be quantised.
Result<std::optional<Importance>> ImportanceFor(const QuantizeJob& job,
                                                const std::vector<TensorChoice>& choices) {
  NIBBLE_TRY(std::optional<Importance> found, FindImportance(job));
  if (!found) return found;
  NIBBLE_TRY(const auto unknown, CheckImportance(found->matrix, choices));
  if (!unknown.empty() && !job.flags.quiet) {
    fmt::print(stderr, "note: no importance is known for {}\n", fmt::join(unknown, ", "));
  }
  return found;
}

Status EncodeRest(const QuantizeJob& job, const std::vector<TensorChoice>& choices,
                  const Imatrix* importance, TensorStore& store) {
  Progress progress("quantize", !job.flags.quiet);
  const EncodeRunOptions options = {
      .importance = importance,
      .progress = [&](double done, std::string_view name) { progress.Update(done, name); }};
  return EncodeTensors(job.model, choices, options, job.pool, store);
}

// All tensors of the new file, with an importance matrix where one is asked for.
Result<TensorStore> MakePlain(const QuantizeJob& job, const std::vector<TensorChoice>& choices,
                              MadeModel& made) {
  // Encoding looks at what it reads; copies are looked at here.
  std::set<const SourceTensor*> copied;
  for (const TensorChoice& choice : choices) {
    if (choice.copied) copied.insert(choice.view.tensor);
  }
  NIBBLE_RETURN_IF_ERROR(CheckFiniteWeights(
      job.model, job.pool, [&](const SourceTensor& tensor) { return !copied.contains(&tensor); }));
  NIBBLE_TRY(const auto importance, ImportanceFor(job, choices));
  std::string more = BudgetKey(job, choices);
  if (importance) {
    more += fmt::format("{} {}", importance->card.sha256, importance->card.tokens);
    made.importance = importance->card;
  }
  NIBBLE_TRY(TensorStore store, OpenStore(job, StoreKey(job, more)));
  const Status done = EncodeRest(job, choices, importance ? &importance->matrix : nullptr, store);
  if (!done) return KeptFor(done.error(), store);
  return store;
}

// The same by a method that computes the layers' inputs.
Result<TensorStore> MakeCalibrated(const QuantizeJob& job, const std::vector<TensorChoice>& choices,
                                   MadeModel& made) {
  if (!job.own.importance.imatrix.empty() || !job.own.importance.save.empty()) {
    return BadInput("--imatrix and --save-imatrix: only with --method kquant");
  }
  Calibration calibration;
  if (job.recipe.NeedsCalibration()) {
    NIBBLE_TRY(calibration, ReadCalibration(job.flags, job.own.importance, job.tokenizer,
                                            job.model.config().context_length));
    made.calibration = calibration.card;
  }
  const std::string more = BudgetKey(job, choices) + CalibrationKey(calibration.card);
  NIBBLE_TRY(TensorStore store, OpenStore(job, StoreKey(job, more)));
  GgufTarget target(choices, job.recipe, job.pool, store);
  auto run = RunCalibrated(job, calibration, target);
  if (!run) return KeptFor(run.error(), store);
  for (std::string& note : run->notes) made.notes.push_back(std::move(note));
  const Status rest = EncodeRest(job, choices, nullptr, store);
  if (!rest) return KeptFor(rest.error(), store);
  return store;
}

}  // namespace

Result<MadeModel> QuantizeToGguf(const QuantizeJob& job) {
  NIBBLE_TRY(const FormatMix mix, ChooseMix(job));
  NIBBLE_TRY(auto choices, Choose(job, mix));
  const auto tokenizer = [&](GgufWriter& writer) {
    return WriteGgufTokenizer(job.in, job.tokenizer, job.model.config().vocabulary, kBuiltinText,
                              job.own.out, writer);
  };
  // A wrong matrix is told before the sensitivity pass.
  if (!job.own.importance.imatrix.empty()) {
    NIBBLE_TRY([[maybe_unused]] const Imatrix matrix, Imatrix::Read(job.own.importance.imatrix));
  }
  MadeModel made;
  made.to = mix.name();
  if (!job.own.budget.empty()) {
    made.to = "mixed";
    NIBBLE_TRY(const uint64_t beside,
               GgufBytesBesideTensors(job.model, choices, made.to, tokenizer));
    NIBBLE_TRY(made.notes, ChooseByBudget(job, beside, choices));
  }
  NIBBLE_RETURN_IF_ERROR(GgufTarget::Check(choices, job.recipe));
  PrintChoices(job.flags, choices);
  const bool by_layers = job.recipe.NeedsCalibration() || job.recipe.rounding == Rounding::kHqq;
  // Even where the types stay, a method would change what they hold.
  if (by_layers) NIBBLE_RETURN_IF_ERROR(CheckSourceBits(job.own, job.model));
  NIBBLE_TRY(TensorStore store,
             by_layers ? MakeCalibrated(job, choices, made) : MakePlain(job, choices, made));
  auto assembled = AssembleGguf(job.model, choices, job.own.out, made.to, tokenizer, store);
  if (!assembled) return KeptFor(assembled.error(), store);
  auto file = std::make_shared<QuantizedGguf>(*std::move(assembled));
  made.path = file->path();
  made.bytes = file->bytes();
  for (const TensorChoice& choice : choices) {
    made.weight_bytes += TraitsOf(choice.to).RowBytes(choice.view.elements());
  }
  made.tensors = file->tensors();
  // The store goes when the file has its name, or when this is given up.
  auto kept = std::make_shared<TensorStore>(std::move(store));
  made.commit = [file, kept](const std::string& card) { return file->Commit(card); };
  return made;
}

}  // namespace nibble::cli
