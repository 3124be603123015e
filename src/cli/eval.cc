#include "eval/perplexity.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>

#include "cli/commands.h"
#include "cli/divergence_output.h"
#include "cli/eval_flags.h"
#include "cli/eval_tasks.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/output_paths.h"
#include "cli/session.h"
#include "container/json.h"
#include "eval/divergence.h"
#include "eval/logits_base.h"
#include "eval/logits_file.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

Result<std::vector<TokenId>> ReadIds(const std::string& path) {
  NIBBLE_TRY(std::string json, ReadTextFile(path, JsonLimits{}.max_bytes));
  const auto parsed = JsonDocument::Parse(std::move(json));
  if (!parsed) return Within(path, parsed.error());
  const JsonDocument& document = *parsed;
  const auto array = document.root().AsArray();
  if (!array) return Within(path, array.error());
  std::vector<TokenId> ids;
  for (const JsonValue value : *array) {
    const auto id = value.AsInt();
    if (!id) return Within(fmt::format("{}: element {}", path, ids.size()), id.error());
    if (*id < 0 || *id > INT32_MAX) {
      return BadInput("{}: element {}: {} is no token id", path, ids.size(), *id);
    }
    ids.emplace_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Status WriteLogitsOf(const GlobalFlags& flags, const EvalFlags& own) {
  if (own.ids_file.empty()) return BadInput("--logits: --ids-file FILE is missing");
  NIBBLE_TRY(const std::vector<TokenId> ids, ReadIds(own.ids_file));
  // As transformers sees it: LongRoPE models choose their factors by the length of the sequence.
  SessionOptions session_options;
  session_options.max_context = static_cast<int>(std::min<size_t>(ids.size(), INT32_MAX));
  NIBBLE_TRY(const Session session, OpenSession(flags, own.model, session_options));
  NIBBLE_RETURN_IF_ERROR(WriteLogits(*session.engine, ids, own.logits));
  if (flags.json) {
    Json out;
    out["tokens"] = ids.size();
    out["vocabulary"] = session.engine->config().vocabulary;
    out["logits"] = own.logits;
    PrintJsonLine(out);
  } else if (!flags.quiet) {
    fmt::print("wrote the logits of {} tokens to {}\n", ids.size(), own.logits);
  }
  return {};
}

Status PrintPerplexity(const GlobalFlags& flags, const EvalFlags& own, int context,
                       const PerplexityResult& result) {
  if (flags.json) {
    Json out;
    out["ppl"] = result.perplexity;
    out["ppl_se"] = result.standard_error;
    out["tokens"] = result.tokens;
    out["chunks"] = result.chunks;
    out["protocol"] = own.protocol;
    out["ctx"] = context;
    NIBBLE_RETURN_IF_ERROR(AddArithmetic(flags, out));
    PrintJsonLine(out);
    return {};
  }
  fmt::print("perplexity {:.4f} ± {:.4f}  ({} windows of {} tokens, {} predictions, {} protocol)\n",
             result.perplexity, result.standard_error, result.chunks, context, result.tokens,
             own.protocol);
  return {};
}

Status SayDivergence(const GlobalFlags& flags, const EvalFlags& own, int context,
                     const DivergenceResult& result) {
  if (!flags.json) {
    PrintDivergence(result);
    return {};
  }
  Json out = DivergenceJson(result);
  out["protocol"] = own.protocol;
  out["ctx"] = context;
  NIBBLE_RETURN_IF_ERROR(AddArithmetic(flags, out));
  if (!LogitsBase::Recognise(own.base)) {
    out["base_act"] = InFloats(flags).act;
    out["base_kv"] = InFloats(flags).kv;
  }
  PrintJsonLine(out);
  return {};
}

DivergenceOptions WithProgress(const WindowOptions& windows, Progress& progress) {
  DivergenceOptions options;
  options.windows = windows;
  options.progress = [&progress](int done, int total, double mean) {
    progress.Update(static_cast<double>(done) / total,
                    fmt::format("window {} of {}, divergence {:.5f}", done, total, mean));
  };
  return options;
}

Status CompareWithBase(const GlobalFlags& flags, const EvalFlags& own, Engine& candidate,
                       std::span<const TokenId> ids, const WindowOptions& windows) {
  SessionOptions session_options;
  session_options.max_context = windows.context;
  NIBBLE_TRY(const Session base, OpenSession(InFloats(flags), own.base, session_options));
  Progress progress("eval", !flags.quiet);
  NIBBLE_TRY(const DivergenceSamples samples,
             MeasureDivergence(candidate, *base.engine, ids, WithProgress(windows, progress)));
  return SayDivergence(flags, own, windows.context, Summarise(samples));
}

// The base is a file of llama-perplexity's, which holds the text's tokens as well.
Status CompareWithFile(const GlobalFlags& flags, const EvalFlags& own) {
  NIBBLE_TRY(const LogitsBase base, LogitsBase::Open(own.base));
  if (!own.text.empty() || !own.ids_file.empty()) {
    return BadInput("{}: holds the text's tokens itself: leave --text and --ids-file out",
                    own.base);
  }
  if (own.protocol != "llama") {
    return BadInput("--protocol {}: {} was written under llama's", own.protocol, own.base);
  }
  if (flags.context > 0 && flags.context != base.context()) {
    return BadInput("-c {}: {} was written with windows of {}", flags.context, own.base,
                    base.context());
  }
  SessionOptions session_options;
  session_options.max_context = base.context();
  session_options.min_sequences = 2;
  NIBBLE_TRY(const Session session, OpenSession(flags, own.model, session_options));
  WindowOptions windows;
  windows.chunks = own.chunks;
  Progress progress("eval", !flags.quiet);
  const auto samples = MeasureDivergence(*session.engine, base, WithProgress(windows, progress));
  if (!samples) return Within(own.base, samples.error());
  return SayDivergence(flags, own, base.context(), Summarise(*samples));
}

Status RunEval(const GlobalFlags& flags, const EvalFlags& own) {
  const NamedPath outputs[] = {{"--logits", own.logits}, {"--answers", own.answers}};
  const NamedPath inputs[] = {{"MODEL", own.model},           {"--base", own.base},
                              {"--text", own.text},           {"--data", own.data},
                              {"--task-file", own.task_file}, {"--ids-file", own.ids_file}};
  NIBBLE_RETURN_IF_ERROR(CheckOutputPaths(outputs, inputs));
  if (!own.logits.empty()) return WriteLogitsOf(flags, own);
  if (!own.task.empty()) return RunChoiceTask(flags, own);
  if (!own.task_file.empty()) return RunPromptTask(flags, own);
  if (!own.base.empty() && LogitsBase::Recognise(own.base)) return CompareWithFile(flags, own);
  if (own.text.empty() == own.ids_file.empty()) {
    const std::string_view what =
        own.base.empty() ? ""
                         : ", for --base is no base file of llama-perplexity's that holds them";
    return BadInput("give a text with --text FILE, or its token ids with --ids-file FILE{}", what);
  }
  WindowOptions windows;
  windows.protocol =
      own.protocol == "gptq" ? PerplexityProtocol::kGptq : PerplexityProtocol::kLlama;
  windows.chunks = own.chunks;
  windows.context = flags.context > 0
                        ? flags.context
                        : (windows.protocol == PerplexityProtocol::kGptq ? 2048 : 512);

  std::string text;
  std::vector<TokenId> ids;
  if (own.ids_file.empty()) {
    NIBBLE_TRY(text, ReadTextFile(own.text));
    NIBBLE_RETURN_IF_ERROR(CheckUtf8(own.text, text));
  } else {
    NIBBLE_TRY(ids, ReadIds(own.ids_file));
  }
  SessionOptions session_options;
  session_options.max_context = windows.context;
  session_options.min_sequences = 2;
  NIBBLE_TRY(const Session session, OpenSession(flags, own.model, session_options));
  if (own.ids_file.empty()) {
    NIBBLE_TRY(ids, session.engine->tokenizer().Encode(text));
  }

  if (!own.base.empty()) return CompareWithBase(flags, own, *session.engine, ids, windows);
  PerplexityOptions options;
  options.windows = windows;
  Progress progress("eval", !flags.quiet);
  options.progress = [&](int done, int total, double perplexity) {
    progress.Update(static_cast<double>(done) / total,
                    fmt::format("window {} of {}, perplexity {:.4f}", done, total, perplexity));
  };
  NIBBLE_TRY(const PerplexityResult result, MeasurePerplexity(*session.engine, ids, options));
  return PrintPerplexity(flags, own, windows.context, result);
}

}  // namespace

void AddEvalCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "eval",
      "Perplexity of a text, divergence from a base model, accuracy on tasks, logits of given ids");
  auto own = std::make_shared<EvalFlags>();
  command->add_option("MODEL", own->model, "Model file, folder or name")->required();
  command->add_option("--text", own->text, "Text file to measure perplexity on");
  command->add_option("--chunks", own->chunks, "Windows from the start of the text; default: all")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--protocol", own->protocol,
                   "llama: windows of 512, second half scored; gptq: windows of 2048, all scored")
      ->check(CLI::IsMember({"llama", "gptq"}));
  command->add_option("--base", own->base,
                      "Compare with this model, which runs with --act f32 --kv f32, or with a file "
                      "that llama-perplexity --kl-divergence-base wrote (in place of a text)");
  command
      ->add_option("--task", own->task,
                   "Accuracy by the endings' probabilities: hellaswag, lambada, arc or "
                   "multiple-choice")
      ->check(CLI::IsMember({"hellaswag", "lambada", "arc", "multiple-choice"}))
      ->excludes("--text");
  command->add_option("--data", own->data, "With --task: its file (docs/quality.md has the forms)")
      ->needs("--task");
  command
      ->add_option("--task-file", own->task_file,
                   "Accuracy of generated answers: lines of JSON with prompt, expected and rule "
                   "(exact, number or regex), or GSM8K's file")
      ->excludes("--text", "--task");
  command
      ->add_option("--answers", own->answers, "With --task-file: write the answers, lines of JSON")
      ->needs("--task-file");
  command->add_option("-n,--items", own->items, "Items of a task; default: all")
      ->check(CLI::PositiveNumber);
  command->add_option("--ids-file", own->ids_file, "JSON array of token ids in place of a text");
  command->add_option("--logits", own->logits,
                      "With --ids-file: write the logits as NumPy float32 [tokens, vocabulary]");
  command->footer(
      "Examples:\n"
      "  nibble eval smollm2-135m --text wiki.test.raw\n"
      "  nibble eval model.gguf --text wiki.test.raw --protocol gptq --act f32\n"
      "  nibble eval q4.gguf --base f16.gguf --text wiki.test.raw --chunks 40\n"
      "  nibble eval q4.gguf --base llama-perplexity.kld\n"
      "  nibble eval q4.gguf --base f16.gguf --task hellaswag --data hellaswag_val_full.txt -n "
      "400\n"
      "  nibble eval model.gguf --task-file gsm8k/test.jsonl -n 100 --answers answers.jsonl\n"
      "  nibble eval model/ --ids-file ids.json --logits out.npy --act f32 --kv f32\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunEval(flags, *own); }; });
}

}  // namespace nibble::cli
