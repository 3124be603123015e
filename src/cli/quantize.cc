#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <future>

#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/number_range.h"
#include "cli/output.h"
#include "cli/output_paths.h"
#include "cli/quantize_budget.h"
#include "cli/quantize_floats.h"
#include "cli/quantize_html.h"
#include "cli/quantize_job.h"
#include "cli/quantize_quality.h"
#include "cli/quantize_report.h"
#include "cli/quantize_rotate.h"
#include "cli/session.h"
#include "engine/model_tokenizer.h"
#include "fetch/paths.h"
#include "kernels/kernel_table.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "quantize/card.h"
#include "quantize/encode_tensor.h"

namespace nibble::cli {
Result<std::string> HashModel(const ModelFile& model) {
  std::string lines;
  for (const MappedFile& file : model.files()) {
    NIBBLE_TRY(const std::string hash, HashFile(file.path()));
    if (model.files().size() == 1) return hash;
    lines += hash + " " + file.path().filename().string() + "\n";
  }
  return Sha256Hex(lines);
}

Result<MadeModel> MakeModel(const QuantizeJob& job) {
  Result<MadeModel> made = ToGguf(job.own) ? QuantizeToGguf(job) : QuantizeToFolder(job);
  if (!made) return made;
  constexpr size_t kMostNotes = 8;
  if (made->notes.size() > kMostNotes) {
    const size_t more = made->notes.size() - kMostNotes;
    made->notes.resize(kMostNotes);
    made->notes.push_back(fmt::format("and {} more like these", more));
  }
  for (const std::string& note : made->notes) {
    if (!job.flags.quiet) fmt::print(stderr, "note: {}\n", note);
  }
  return made;
}

Result<Card> MakeCard(const QuantizeJob& job, const MadeModel& made) {
  Card card;
  card.tool = std::string("nibble ") + NIBBLE_VERSION;
  card.to = made.to;
  card.method = job.own.method;
  if (card.method.empty()) card.method = ToGguf(job.own) ? "kquant" : "rtn";
  if (FloatsOfFolder(job.own)) card.method = "none";
  card.parameters = job.recipe.Describe();
  if (!made.grid.empty()) card.parameters += "; " + made.grid;
  card.rules = job.own.rules;
  card.budget = job.own.budget;
  card.importance = made.importance;
  card.calibration = made.calibration;
  card.notes = made.notes;
  card.bytes = made.bytes;
  card.bits_per_weight = 8.0 * static_cast<double>(made.weight_bytes) /
                         static_cast<double>(job.model.config().parameters);
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  card.machine = fmt::format("{}, {} threads", IsaName(isa), job.pool.size());
  card.peak_resident_bytes = ReadPeakResidentBytes();
  return card;
}

namespace {

// Nothing that is read may be replaced, and what cannot be written is told before the work.
Status CheckOutputs(const QuantizeFlags& own, const ModelFile& model) {
  const auto text = [](const std::string& name) {
    return std::filesystem::path(name == "built-in" ? "" : name);
  };
  std::vector<NamedPath> inputs = {{"IN", model.path()},
                                   {"--calib", text(own.importance.calib)},
                                   {"--imatrix", own.importance.imatrix},
                                   {"--text", own.text}};
  for (const MappedFile& file : model.files()) inputs.push_back({"a part of IN", file.path()});
  const NamedPath outputs[] = {
      {"OUT", own.out}, {"--report", own.report}, {"--save-imatrix", own.importance.save}};
  return CheckOutputPaths(outputs, inputs);
}

// "model.bin" and "q4_0" into "out" are files whose name lacks .gguf; "Llama-3.2-1B-gptq" is a
// folder.
bool LooksLikeFile(const QuantizeFlags& own) {
  const std::string extension = std::filesystem::path(own.out).extension().string();
  if (extension.empty()) return false;
  constexpr std::string_view kFiles[] = {".bin", ".safetensors", ".pt", ".pth", ".ggml", ".guf"};
  if (std::ranges::find(kFiles, extension) != std::end(kFiles)) return true;
  return !FloatsOfFolder(own) && !CheckLayoutName(own);
}

Status CheckPaths(const QuantizeFlags& own, const std::filesystem::path& in) {
  std::error_code error;
  if (own.out.empty()) return BadInput("OUT: expected a name, found none");
  if (!ToGguf(own) && LooksLikeFile(own) && !std::filesystem::is_directory(own.out, error)) {
    return BadInput("OUT: expected a name that ends in .gguf, or a folder's, found '{}'", own.out);
  }
  if (std::filesystem::equivalent(in, own.out, error)) {
    return BadInput("OUT: '{}' is the source itself", own.out);
  }
  if (std::filesystem::exists(own.out, error) && !own.force) {
    return BadInput("OUT: '{}' exists; --force replaces it when the new file is complete", own.out);
  }
  return {};
}

// Nothing is computed with the weights: encoding looks at each of them, and so do copies.
bool OnlyEncodes(const QuantizeFlags& own, const Recipe& recipe) {
  const bool by_rows = recipe.rounding == Rounding::kRtn || recipe.rounding == Rounding::kKquant;
  return ToGguf(own) && by_rows && !recipe.rotate && !recipe.NeedsCalibration() &&
         own.budget.empty() && own.importance.calib.empty();
}

Status RunQuantize(const GlobalFlags& flags, const QuantizeFlags& own) {
  const double started = MonotonicSeconds();
  NIBBLE_TRY(const std::filesystem::path in, FindModel(flags, own.in, false));
  NIBBLE_RETURN_IF_ERROR(CheckPaths(own, in));
  NIBBLE_RETURN_IF_ERROR(CheckBudgetFlags(own));
  NIBBLE_TRY(const Recipe recipe, RecipeOf(own, !ToGguf(own)));
  NIBBLE_TRY(const ModelFile model, ModelFile::Open(in));
  NIBBLE_RETURN_IF_ERROR(CheckOutputs(own, model));
  NIBBLE_TRY(const Tokenizer tokenizer, LoadModelTokenizer(model));
  NIBBLE_TRY(const auto text,
             ReadQualityText(flags, own, tokenizer, model.config().context_length));
  const bool coarse = std::ranges::any_of(model.source().tensors(), [](const SourceTensor& tensor) {
    return tensor.linear != nullptr ||
           (tensor.format && TraitsOf(*tensor.format).BitsPerWeight() < 16);
  });
  if (coarse && !ToGguf(own) && !flags.quiet) PrintSourceIsQuantised();
  auto source_hash = std::async(std::launch::async, [&] { return HashModel(model); });
  ThreadPool pool(flags.threads > 0 ? flags.threads : ReadTopology().threads);
  if (!OnlyEncodes(own, recipe)) NIBBLE_RETURN_IF_ERROR(CheckFiniteWeights(model, pool));
  NIBBLE_TRY(const RotatedSource rotated, RotatedSource::Make(flags, own, model, pool));
  NIBBLE_TRY(const FloatFolderSource floats,
             FloatFolderSource::Make(flags, own, model, tokenizer, pool));
  const QuantizeJob job = {.flags = flags,
                           .own = own,
                           .in = floats.PathOr(rotated.PathOr(in)),
                           .model = floats.ModelOr(rotated.ModelOr(model)),
                           .tokenizer = tokenizer,
                           .recipe = recipe,
                           .pool = pool};
  NIBBLE_TRY(const MadeModel made, MakeModel(job));
  NIBBLE_TRY(Card card, MakeCard(job, made));
  card.source_name = in.filename().string();
  card.source_bytes = model.file_bytes();
  card.seconds = MonotonicSeconds() - started;
  card.cpu_seconds = ProcessCpuSeconds();
  NIBBLE_TRY(card.source_sha256, source_hash.get());
  if (text) {
    NIBBLE_TRY(const MeasuredQuality measured, MeasureQuality(flags, own, *text, in, made.path));
    card.quality = measured.quality;
    card.speed = measured.speed;
  }
  NIBBLE_RETURN_IF_ERROR(made.commit(CardJson(card)));
  if (!own.report.empty()) {
    NIBBLE_TRY(OutputFile page, OutputFile::Create(own.report));
    NIBBLE_RETURN_IF_ERROR(page.Write(QuantizeHtml(card, made.tensors)));
    NIBBLE_RETURN_IF_ERROR(page.Commit());
  }
  const double seconds = MonotonicSeconds() - started;
  if (flags.json) {
    PrintJsonLine(QuantizeJson(card, made.tensors, seconds));
  } else {
    PrintCard(card, seconds);
  }
  return {};
}

void AddMethodFlags(CLI::App& command, QuantizeFlags& own) {
  command.add_flag("--act-order", own.act_order,
                   "gptq: columns by falling activation (type's scales then from the source)");
  command.add_flag("--static-groups", own.static_groups,
                   "gptq: scales from the weights as they were");
  command.add_option("--damp", own.damp, "gptq: damping, as a share of the mean diagonal")
      ->check(NumberFrom(0.0, 1.0))
      ->capture_default_str();
  command.add_flag("--mse", own.mse, "Search for smaller ranges (grids in folders)");
  command.add_flag("--rotate", own.rotate,
                   "Rotate the channels first (Hadamard, from --seed): spreads outliers; needs a "
                   "GGUF file of RMS norms in front of blocks only, and room for its f32 copy");
  command.add_flag("--clip", own.clip, "awq: search for smaller ranges behind the scales");
  command.add_option("--alpha", own.alpha, "smoothquant: how much goes from inputs to weights")
      ->check(NumberFrom(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option("--threshold", own.threshold,
                  "llm-int8: inputs of this magnitude are not quantised")
      ->check(NumberFrom(1e-6, 1e6))
      ->capture_default_str();
  command.add_option("--granularity", own.granularity, "Folders: what shares a scale")
      ->check(CLI::IsMember({"tensor", "channel", "group"}));
  command.add_option("--group", own.group, "Folders: inputs that share a scale")
      ->check(CLI::Range(8, 1 << 20));
  CLI::Option* sym = command.add_flag("--sym", own.sym, "Folders: no zero points");
  command.add_flag("--asym", own.asym, "Folders: zero points")->excludes(sym);
  command
      .add_option("--calib-memory", own.calib_memory,
                  "Most memory of the calibration's activations; more lie in a file")
      ->type_name("SIZE")
      ->capture_default_str();
}

}  // namespace

void AddQuantizeCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "quantize", "Write a model in fewer bits, and measure what that costs in quality");
  auto own = std::make_shared<QuantizeFlags>();
  command->add_option("IN", own->in, "Model file or name")->required();
  command
      ->add_option("OUT", own->out,
                   "GGUF file to write (.gguf), or a folder in a Hugging Face layout")
      ->required();
  CLI::Option* to = command->add_option(
      "--to", own->to,
      "GGUF type or mix, such as q4_k_m, q8_0, iq4_xs; for a folder gptq, awq, w4a16-g128, "
      "w4a16-asym-g128, w8a16-g128, w8a8, fp8, fp8-dynamic, llm-int8, or f16, bf16, f32");
  command
      ->add_option("--budget", own->budget,
                   "In place of --to: bits a weight (4.5bpw) or the file's size (700MB). Measures "
                   "the divergence that each matrix costs and gives each the type that pays best")
      ->type_name("BPW|SIZE")
      ->excludes(to);
  command
      ->add_option("--budget-sequences", own->budget_sequences,
                   "Sequences of 128 tokens of --calib that --budget measures on")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--tensor-type", own->rules,
                   "REGEX=TYPE: matrices whose name matches get the type; may be repeated")
      ->type_name("REGEX=TYPE")
      ->take_all();
  command
      ->add_option("--method", own->method,
                   "rtn, kquant (scales searched as llama.cpp does), gptq, hqq, llm-int8; awq or "
                   "smoothquant alone or before one of these: smoothquant+gptq. Default: kquant")
      ->type_name("METHOD");
  AddMethodFlags(*command, *own);
  command->add_option("--calib", own->importance.calib,
                      "Text to find out which columns matter (importance matrix), or \"built-in\"; "
                      "default: all columns matter alike");
  command
      ->add_option("--calib-sequences", own->importance.sequences,
                   "Sequences from the start of that text; 0: all")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--calib-length", own->importance.length,
                   "Tokens of a sequence, at most the model's context")
      ->check(CLI::Range(2, 1 << 24))
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
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--no-quality", own->no_quality,
                    "Do not measure; the card then says \"not measured\"");
  command->add_option("--report", own->report, "Draw the card as a page (HTML)")->type_name("FILE");
  command->add_flag("--force", own->force, "Replace OUT when the new file is complete");
  command->footer(
      "Examples:\n"
      "  nibble quantize model-f16.gguf model-q4.gguf --to q4_k_m --text my.txt\n"
      "  nibble quantize model-f16.gguf out.gguf --to q4_k_m --tensor-type 'ffn_down=q6_k'\n"
      "  nibble quantize model-f16.gguf out.gguf --to q4_k_m --calib my.txt --save-imatrix "
      "my.gguf\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback([own, &flags, &action] {
    while (own->out.size() > 1 && own->out.ends_with('/')) own->out.pop_back();
    action = [own, &flags] { return RunQuantize(flags, *own); };
  });
}

}  // namespace nibble::cli
