#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <future>

#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/importance.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/quantize_flags.h"
#include "cli/quantize_quality.h"
#include "cli/quantize_report.h"
#include "cli/session.h"
#include "engine/model_tokenizer.h"
#include "eval/builtin_text.h"
#include "fetch/paths.h"
#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"
#include "quantize/card.h"
#include "quantize/gguf_output.h"
#include "quantize/gguf_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

Status CheckPaths(const QuantizeFlags& own, const std::filesystem::path& in) {
  if (!own.out.ends_with(".gguf")) {
    return BadInput("OUT: expected a name that ends in .gguf, found '{}'", own.out);
  }
  std::error_code error;
  if (std::filesystem::equivalent(in, own.out, error)) {
    return BadInput("OUT: '{}' is the source itself", own.out);
  }
  if (std::filesystem::exists(own.out, error) && !own.force) {
    return BadInput("OUT: '{}' exists; --force replaces it when the new file is complete", own.out);
  }
  return {};
}

// Two figures that people look at before the work starts: what falls back, and the new size.
void PrintChoices(const GlobalFlags& flags, const std::vector<TensorChoice>& choices) {
  if (flags.quiet) return;
  for (const TensorChoice& choice : choices) {
    if (choice.note.empty()) continue;
    fmt::print(stderr, "{}: {} ({})\n", choice.name(), TraitsOf(choice.to).name, choice.note);
  }
  const bool coarse = std::ranges::any_of(choices, [](const TensorChoice& choice) {
    return !choice.copied && TraitsOf(choice.from).BitsPerWeight() < 16;
  });
  if (coarse) {
    fmt::print(stderr, "note: the source is quantised itself; its errors stay in the result\n");
  }
}

// Where the disk is full, what is finished stays for another try.
std::unexpected<Error> KeptFor(Error error, TensorStore& store) {
  if (error.kind == ErrorKind::kIo) {
    error.message += fmt::format("; finished tensors are kept in {}: the same command goes on",
                                 store.Keep().string());
  }
  return std::unexpected(std::move(error));
}

Result<FormatMix> ChooseMix(const QuantizeFlags& own) {
  NIBBLE_TRY(FormatMix mix, FormatMix::FromName(own.to));
  const bool importance = !own.importance.calib.empty() || !own.importance.imatrix.empty();
  if (mix.NeedsImportance() && !importance) {
    return BadInput("{} loses too much without an importance matrix: add --calib TEXT or --imatrix",
                    mix.name());
  }
  if (importance) mix.UseImportance();
  return mix;
}

Result<std::vector<TensorChoice>> Choose(const ModelFile& model, const QuantizeFlags& own,
                                         const FormatMix& mix) {
  ChoiceOptions options = {.mix = mix, .rules = {}, .requantize = own.requantize};
  for (const std::string& text : own.rules) {
    NIBBLE_TRY(TypeRule rule, TypeRule::Parse(text));
    options.rules.push_back(std::move(rule));
  }
  return ChooseFormats(model, options);
}

// The importance of the columns, checked against what is to be quantised.
Result<std::optional<Importance>> ImportanceFor(const GlobalFlags& flags, const QuantizeFlags& own,
                                                const std::filesystem::path& in,
                                                const std::vector<TensorChoice>& choices) {
  NIBBLE_TRY(std::optional<Importance> found, FindImportance(flags, own.importance, in));
  if (!found) return found;
  NIBBLE_TRY(const auto unknown, CheckImportance(found->matrix, choices));
  if (!unknown.empty() && !flags.quiet) {
    fmt::print(stderr, "note: no importance is known for {}\n", fmt::join(unknown, ", "));
  }
  return found;
}

// The files that hold the weights, one after the other.
Result<std::string> HashModel(const ModelFile& model) {
  std::string lines;
  for (const MappedFile& file : model.files()) {
    NIBBLE_TRY(const std::string hash, HashFile(file.path()));
    if (model.files().size() == 1) return hash;
    lines += hash + " " + file.path().filename().string() + "\n";
  }
  return Sha256Hex(lines);
}

// All that decides the bytes of the tensors, for a run that takes up another's.
std::string StoreKey(const ModelFile& model, const QuantizeFlags& own, const FormatMix& mix,
                     const std::optional<Importance>& importance) {
  std::string key = std::string(NIBBLE_VERSION);
  for (const MappedFile& file : model.files()) {
    std::error_code ignored;
    const auto time = std::filesystem::last_write_time(file.path(), ignored);
    key += fmt::format("|{} {} {}", std::filesystem::absolute(file.path(), ignored).string(),
                       file.bytes().size(), time.time_since_epoch().count());
  }
  key += fmt::format("|{}|{}|{}", mix.name(), own.method, fmt::join(own.rules, " "));
  if (importance) {
    key += fmt::format("|{} {}", importance->card.sha256, importance->card.tokens);
  }
  return Sha256Hex(key);
}

struct MadeTensors {
  TensorStore store;  // all of the new file's that are not copied
  std::optional<CardImportance> importance;
};

Result<MadeTensors> MakeTensors(const GlobalFlags& flags, const QuantizeFlags& own,
                                const ModelFile& model, const FormatMix& mix,
                                const std::vector<TensorChoice>& choices, ThreadPool& pool) {
  NIBBLE_TRY(const auto importance, ImportanceFor(flags, own, model.path(), choices));
  NIBBLE_TRY(TensorStore store, TensorStore::Open(own.out, StoreKey(model, own, mix, importance)));
  if (store.found() > 0 && !flags.quiet) {
    fmt::print(stderr, "note: {} tensors are there from a run that was stopped\n", store.found());
  }
  Progress progress("quantize", !flags.quiet);
  const EncodeRunOptions options = {
      .importance = importance ? &importance->matrix : nullptr,
      .progress = [&](double done, std::string_view name) { progress.Update(done, name); }};
  const Status made = EncodeTensors(model, choices, options, pool, store);
  if (!made) return KeptFor(made.error(), store);
  MadeTensors all = {.store = std::move(store), .importance = {}};
  if (importance) all.importance = importance->card;
  return all;
}

Status RunQuantize(const GlobalFlags& flags, const QuantizeFlags& own) {
  const double started = MonotonicSeconds();
  NIBBLE_TRY(const std::filesystem::path in, FindModel(flags, own.in, false));
  NIBBLE_RETURN_IF_ERROR(CheckPaths(own, in));
  NIBBLE_TRY(const ModelFile model, ModelFile::Open(in));
  NIBBLE_TRY(const FormatMix mix, ChooseMix(own));
  NIBBLE_TRY(const auto choices, Choose(model, own, mix));
  NIBBLE_TRY(const Tokenizer tokenizer, LoadModelTokenizer(model));
  NIBBLE_TRY(const auto text,
             ReadQualityText(flags, own, tokenizer, model.config().context_length));
  PrintChoices(flags, choices);

  auto source_hash = std::async(std::launch::async, [&] { return HashModel(model); });
  ThreadPool pool(flags.threads > 0 ? flags.threads : ReadTopology().threads);
  NIBBLE_TRY(MadeTensors tensors_made, MakeTensors(flags, own, model, mix, choices, pool));
  auto made = AssembleGguf(
      model, choices, own.out, mix.name(),
      [&](GgufWriter& writer) {
        return WriteGgufTokenizer(in, tokenizer, model.config().vocabulary, kBuiltinText, own.out,
                                  writer);
      },
      tensors_made.store);
  if (!made) return KeptFor(made.error(), tensors_made.store);
  Card card;
  card.tool = std::string("nibble ") + NIBBLE_VERSION;
  card.source_name = in.filename().string();
  card.source_bytes = model.file_bytes();
  NIBBLE_TRY(card.source_sha256, source_hash.get());
  card.to = mix.name();
  card.method = own.method;
  card.importance = tensors_made.importance;
  card.rules = own.rules;
  card.bytes = made->bytes();
  uint64_t weight_bytes = 0;
  for (const TensorChoice& choice : choices) {
    weight_bytes += TraitsOf(choice.to).RowBytes(choice.view.elements());
  }
  card.bits_per_weight = 8.0 * static_cast<double>(weight_bytes) / model.config().parameters;
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  card.machine = fmt::format("{}, {} threads", IsaName(isa), pool.size());
  if (text) {
    NIBBLE_TRY(card.quality, MeasureQuality(flags, own, *text, in, made->path()));
  }
  const std::vector<TensorReport> tensors = made->tensors();
  NIBBLE_RETURN_IF_ERROR(made->Commit(CardJson(card)));
  const double seconds = MonotonicSeconds() - started;
  if (flags.json) {
    PrintJsonLine(QuantizeJson(card, tensors, seconds));
  } else {
    PrintCard(card, seconds);
  }
  return {};
}

}  // namespace

void AddQuantizeCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "quantize", "Write a model in fewer bits, and measure what that costs in quality");
  auto own = std::make_shared<QuantizeFlags>();
  command->add_option("IN", own->in, "Model file or name")->required();
  command->add_option("OUT", own->out, "GGUF file to write")->required();
  command->add_option("--to", own->to, "GGUF type or mix, such as q4_k_m, q8_0, iq4_xs")
      ->required();
  command
      ->add_option("--tensor-type", own->rules,
                   "REGEX=TYPE: matrices whose name matches get the type; may be repeated")
      ->type_name("REGEX=TYPE")
      ->take_all();
  command->add_option("--method", own->method, "kquant: scales searched as llama.cpp does")
      ->check(CLI::IsMember({"kquant"}))
      ->capture_default_str();
  command->add_option("--calib", own->importance.calib,
                      "Text to find out which columns matter (importance matrix), or \"built-in\"; "
                      "default: all columns matter alike");
  command
      ->add_option("--calib-sequences", own->importance.sequences,
                   "Sequences from the start of that text; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--calib-length", own->importance.length,
                   "Tokens of a sequence, at most the model's context")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--imatrix", own->importance.imatrix,
                      "Importance matrix from this file (GGUF or .dat) in place of --calib");
  command->add_option("--save-imatrix", own->importance.save,
                      "Keep what --calib collected; a name ending in .dat: the older form");
  command->add_flag("--requantize", own->requantize,
                    "Take a source below 8 bits a weight all the same");
  command->add_option("--text", own->text,
                      "Text for the quality measurement; default: a built-in mix");
  command->add_option("--chunks", own->chunks, "Windows of that text to measure; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--no-quality", own->no_quality,
                    "Do not measure; the card then says \"not measured\"");
  command->add_flag("--force", own->force, "Replace OUT when the new file is complete");
  command->footer(
      "Examples:\n"
      "  nibble quantize model-f16.gguf model-q4.gguf --to q4_k_m --text my.txt\n"
      "  nibble quantize model-f16.gguf out.gguf --to q4_k_m --tensor-type 'ffn_down=q6_k'\n"
      "  nibble quantize model-f16.gguf out.gguf --to q4_k_m --calib my.txt --save-imatrix "
      "my.gguf\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunQuantize(flags, *own); }; });
}

}  // namespace nibble::cli
