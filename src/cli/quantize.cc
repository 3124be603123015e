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
#include "cli/session.h"
#include "eval/builtin_text.h"
#include "eval/divergence.h"
#include "fetch/paths.h"
#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"
#include "quantize/card.h"
#include "quantize/gguf_output.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

struct QuantizeFlags {
  std::string in;
  std::string out;
  std::string to;
  std::string text;
  std::vector<std::string> rules;
  std::string method = "kquant";
  ImportanceFlags importance;
  bool requantize = false;
  bool no_quality = false;
  bool force = false;
  int chunks = 32;
};

// The text that quality is measured on.
struct QualityText {
  std::string name;
  std::string text;
};

Result<QualityText> ReadQualityText(const QuantizeFlags& own) {
  if (own.text.empty()) return QualityText{"built-in", std::string(kBuiltinText)};
  NIBBLE_TRY(std::string text, ReadTextFile(own.text));
  NIBBLE_RETURN_IF_ERROR(CheckUtf8(own.text, text));
  return QualityText{std::filesystem::path(own.text).filename().string(), std::move(text)};
}

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
    fmt::print(stderr, "{}: {} ({})\n", choice.source->name, TraitsOf(choice.to).name, choice.note);
  }
  const bool coarse = std::ranges::any_of(choices, [](const TensorChoice& choice) {
    return !choice.copied && TraitsOf(*choice.source->format).BitsPerWeight() < 16;
  });
  if (coarse) {
    fmt::print(stderr, "note: the source is quantised itself; its errors stay in the result\n");
  }
}

Result<CardQuality> MeasureQuality(const GlobalFlags& flags, const QuantizeFlags& own,
                                   const std::filesystem::path& source, const std::string& made) {
  NIBBLE_TRY(const QualityText text, ReadQualityText(own));
  SessionOptions options;
  DivergenceOptions divergence;
  divergence.windows.context = flags.context > 0 ? flags.context : 512;
  divergence.windows.chunks = own.chunks;
  options.max_context = divergence.windows.context;
  GlobalFlags quiet = flags;
  quiet.quiet = true;
  quiet.verbose = false;
  NIBBLE_TRY(const Session candidate, OpenSession(quiet, made, options));
  NIBBLE_TRY(const Session base, OpenSession(InFloats(quiet), source.string(), options));
  NIBBLE_TRY(const std::vector<TokenId> ids, candidate.engine->tokenizer().Encode(text.text));
  Progress progress("quality", !flags.quiet);
  divergence.progress = [&](int done, int total, double mean) {
    progress.Update(static_cast<double>(done) / total, fmt::format("divergence {:.5f}", mean));
  };
  NIBBLE_TRY(const DivergenceSamples samples,
             MeasureDivergence(*candidate.engine, *base.engine, ids, divergence));
  const DivergenceResult result = Summarise(samples);
  return CardQuality{.text = text.name,
                     .text_sha256 = Sha256Hex(text.text),
                     .context = divergence.windows.context,
                     .tokens = result.tokens,
                     .act = flags.act,
                     .ppl = result.ppl.mean,
                     .ppl_se = result.ppl.se,
                     .ppl_source = result.ppl_base.mean,
                     .kld = result.divergence.mean,
                     .kld_se = result.divergence.se,
                     .top1 = result.same_top.mean,
                     .top1_se = result.same_top.se,
                     .verdict = Verdict(result)};
}

Json ReportJson(const Card& card, const std::vector<TensorReport>& tensors, double seconds) {
  Json out;
  out["in_bytes"] = card.source_bytes;
  out["out_bytes"] = card.bytes;
  out["bits_per_weight"] = card.bits_per_weight;
  out["per_tensor"] = Json::array();
  for (const TensorReport& tensor : tensors) {
    Json row;
    row["name"] = tensor.name;
    row["type"] = TraitsOf(tensor.to).name;
    row["source_type"] = TraitsOf(tensor.from).name;
    row["rel_error"] = tensor.loss.RelativeError();
    row["max_outlier_ratio"] = tensor.loss.OutlierRatio();
    if (!tensor.note.empty()) row["note"] = tensor.note;
    out["per_tensor"].push_back(std::move(row));
  }
  if (card.quality) {
    out["ppl_in"] = card.quality->ppl_source;
    out["ppl_out"] = card.quality->ppl;
    out["kld"] = card.quality->kld;
    out["top1"] = card.quality->top1;
  } else {
    for (const char* key : {"ppl_in", "ppl_out", "kld", "top1"}) out[key] = nullptr;
  }
  out["seconds"] = seconds;
  out["peak_resident_bytes"] = ReadPeakResidentBytes();
  out["card"] = Json::parse(CardJson(card));
  return out;
}

void PrintCard(const Card& card, double seconds) {
  fmt::print("{} → {} ({}), {:.3f} bits a weight, in {:.1f} s\n",
             FormatBytes(static_cast<double>(card.source_bytes)),
             FormatBytes(static_cast<double>(card.bytes)), card.to, card.bits_per_weight, seconds);
  if (!card.quality) {
    fmt::print("quality: not measured\n");
    return;
  }
  const CardQuality& q = *card.quality;
  fmt::print("quality on {} ({} predictions, windows of {}, --act {}):\n", q.text, q.tokens,
             q.context, q.act);
  fmt::print("  perplexity  {:.4f} ± {:.4f}, source {:.4f}\n", q.ppl, q.ppl_se, q.ppl_source);
  fmt::print("  divergence  {:.5f} ± {:.5f} nats a token\n", q.kld, q.kld_se);
  fmt::print("  same top    {:.2f}% ± {:.2f}%\n", 100 * q.top1, 100 * q.top1_se);
  fmt::print("  {}\n", q.verdict);
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

Status RunQuantize(const GlobalFlags& flags, const QuantizeFlags& own) {
  const double started = MonotonicSeconds();
  NIBBLE_TRY(const std::filesystem::path in, FindModel(flags, own.in, false));
  NIBBLE_RETURN_IF_ERROR(CheckPaths(own, in));
  NIBBLE_TRY(const ModelFile model, ModelFile::Open(in));
  NIBBLE_TRY(const FormatMix mix, ChooseMix(own));
  NIBBLE_TRY(const auto choices, Choose(model, own, mix));
  PrintChoices(flags, choices);

  auto source_hash = std::async(std::launch::async, [&] { return HashFile(in); });
  NIBBLE_TRY(const auto importance, ImportanceFor(flags, own, in, choices));
  ThreadPool pool(flags.threads > 0 ? flags.threads : ReadTopology().threads);
  std::optional<QuantizedGguf> made;
  {
    Progress progress("quantize", !flags.quiet);
    const GgufOutputOptions options = {
        .importance = importance ? &importance->matrix : nullptr,
        .mix_name = mix.name(),
        .progress = [&](double done, std::string_view name) { progress.Update(done, name); }};
    NIBBLE_TRY(made, WriteQuantizedGguf(model, choices, own.out, options, pool));
  }
  Card card;
  card.tool = std::string("nibble ") + NIBBLE_VERSION;
  card.source_name = in.filename().string();
  card.source_bytes = model.file_bytes();
  NIBBLE_TRY(card.source_sha256, source_hash.get());
  card.to = mix.name();
  card.method = own.method;
  if (importance) card.importance = importance->card;
  card.rules = own.rules;
  card.bytes = made->bytes();
  uint64_t weight_bytes = 0;
  for (const TensorChoice& choice : choices) {
    weight_bytes += TraitsOf(choice.to).RowBytes(choice.source->elements());
  }
  card.bits_per_weight = 8.0 * static_cast<double>(weight_bytes) / model.config().parameters;
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  card.machine = fmt::format("{}, {} threads", IsaName(isa), pool.size());
  if (!own.no_quality) {
    NIBBLE_TRY(card.quality, MeasureQuality(flags, own, in, made->path()));
  }
  const std::vector<TensorReport> tensors = made->tensors();
  NIBBLE_RETURN_IF_ERROR(made->Commit(CardJson(card)));
  const double seconds = MonotonicSeconds() - started;
  if (flags.json) {
    PrintJsonLine(ReportJson(card, tensors, seconds));
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
