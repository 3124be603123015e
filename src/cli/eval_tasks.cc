#include "cli/eval_tasks.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/serving_flags.h"
#include "cli/session.h"
#include "container/output_file.h"
#include "eval/choices.h"
#include "eval/generated_tasks.h"
#include "eval/logits_base.h"
#include "eval/paired.h"
#include "eval/task_items.h"

namespace nibble::cli {
namespace {

constexpr size_t kMaxTaskBytes = size_t{256} << 20;
constexpr int kDefaultContext = 2048;

ChoiceTask ParseTask(std::string_view name) {
  if (name == "hellaswag") return ChoiceTask::kHellaswag;
  if (name == "lambada") return ChoiceTask::kLambada;
  if (name == "arc") return ChoiceTask::kArc;
  return ChoiceTask::kMultipleChoice;
}

Status CheckBase(const EvalFlags& own) {
  if (own.base.empty() || !LogitsBase::Recognise(own.base)) return {};
  return BadInput("{}: a file of logits answers no questions: expected a model", own.base);
}

// Runs `measure(engine, progress)` over a model that is in memory only meanwhile.
template <class Measure>
auto WithModel(const GlobalFlags& flags, const std::string& model, Measure measure)
    -> decltype(measure(std::declval<Engine&>(), std::declval<const TaskProgress&>())) {
  ServingFlags serving;
  serving.max_sequences = 64;
  serving.max_step_ms = 0;  // nobody waits for a single token
  SessionOptions options;
  options.max_context = kDefaultContext;
  options.serving = &serving;
  NIBBLE_TRY(const Session session, OpenSession(flags, model, options));
  Progress line("eval", !flags.quiet);
  return measure(*session.engine, [&](int done, int total) {
    line.Update(static_cast<double>(done) / total, fmt::format("item {} of {}", done, total));
  });
}

void PutShare(Json& out, const std::string& key, const MeanError& share) {
  out[key] = share.mean;
  out[key + "_se"] = share.se;
}

void PutPaired(Json& out, const PairedAnswers& paired) {
  PutShare(out, "difference", paired.difference);
  out["gained"] = paired.gained;
  out["lost"] = paired.lost;
  out["p"] = paired.p;
  out["verdict"] = Verdict(paired);
}

Status PutFlags(Json& out, const GlobalFlags& flags, bool with_base) {
  NIBBLE_RETURN_IF_ERROR(AddArithmetic(flags, out));
  if (!with_base) return {};
  const GlobalFlags base = InFloats(flags);
  out["base_act"] = base.act;
  out["base_kv"] = base.kv;
  return {};
}

void PrintShare(std::string_view title, const MeanError& share, std::string_view note) {
  const std::string error = std::isnan(share.se) ? "error unknown from one item"
                                                 : fmt::format("± {:.2f}%", 100 * share.se);
  fmt::print("{:<10} {:>8.2f}% {}{}{}\n", title, 100 * share.mean, error, note.empty() ? "" : "  ",
             note);
}

// ---- endings

// The answers that `accuracy` counts.
std::span<const uint8_t> Counted(ChoiceTask task, const ChoiceAnswers& answers) {
  return task == ChoiceTask::kLambada ? answers.greedy : answers.mean;
}

MeanError PerplexityOf(const ChoiceAnswers& answers) {
  const MeanError loss = MeanOf(answers.loss);
  const double perplexity = std::exp(loss.mean);
  return {.mean = perplexity, .se = perplexity * loss.se};
}

Json ChoiceJson(ChoiceTask task, const ChoiceAnswers& answers) {
  Json out;
  PutShare(out, "accuracy", ShareOf(Counted(task, answers)));
  if (task == ChoiceTask::kLambada) {
    PutShare(out, "ppl", PerplexityOf(answers));
  } else {
    PutShare(out, "acc", ShareOf(answers.sum));
    PutShare(out, "acc_norm", ShareOf(answers.per_char));
  }
  return out;
}

void PrintChoices(ChoiceTask task, const ChoiceAnswers& answers) {
  if (task == ChoiceTask::kLambada) {
    PrintShare("accuracy", ShareOf(answers.greedy), "the last word is what greedy decoding gives");
    const MeanError perplexity = PerplexityOf(answers);
    fmt::print("{:<10} {:>9.3f} ± {:.3f}  a last word\n", "perplexity", perplexity.mean,
               perplexity.se);
    return;
  }
  PrintShare("accuracy", ShareOf(answers.mean), "by the mean of ln p a token (llama-perplexity)");
  PrintShare("acc", ShareOf(answers.sum), "by the sum (lm-evaluation-harness)");
  PrintShare("acc_norm", ShareOf(answers.per_char), "by the sum a character");
}

}  // namespace

Status RunChoiceTask(const GlobalFlags& flags, const EvalFlags& own) {
  if (own.data.empty()) return BadInput("--task {}: --data FILE is missing", own.task);
  NIBBLE_RETURN_IF_ERROR(CheckBase(own));
  const ChoiceTask task = ParseTask(own.task);
  NIBBLE_TRY(const std::string text, ReadTextFile(own.data, kMaxTaskBytes));
  NIBBLE_RETURN_IF_ERROR(CheckUtf8(own.data, text));
  const auto items = ParseChoiceItems(task, text, own.items);
  if (!items) return Within(own.data, items.error());

  const auto measure = [&](Engine& engine, const TaskProgress& progress) -> Result<ChoiceAnswers> {
    const auto scores = ScoreChoices(engine, *items, progress);
    if (!scores) return Within(own.data, scores.error());
    return JudgeChoices(*items, *scores);
  };
  NIBBLE_TRY(const ChoiceAnswers answers, WithModel(flags, own.model, measure));
  Json out;
  out["task"] = own.task;
  out["items"] = items->size();
  out.update(ChoiceJson(task, answers));
  if (!flags.json) {
    fmt::print("{}, {} items\n", own.task, items->size());
    PrintChoices(task, answers);
  }
  if (!own.base.empty()) {
    NIBBLE_TRY(const ChoiceAnswers base, WithModel(InFloats(flags), own.base, measure));
    const PairedAnswers paired = ComparePaired(Counted(task, answers), Counted(task, base));
    out["base"] = ChoiceJson(task, base);
    PutPaired(out, paired);
    if (!flags.json) {
      fmt::print("the base\n");
      PrintChoices(task, base);
      fmt::print("{}\n", Verdict(paired));
    }
  }
  NIBBLE_RETURN_IF_ERROR(PutFlags(out, flags, !own.base.empty()));
  if (flags.json) PrintJsonLine(out);
  return {};
}

namespace {

// ---- generated answers

struct PromptResult {
  std::vector<uint8_t> right;
  int64_t tokens = 0;
  int64_t cut = 0;
};

PromptResult ResultOf(std::span<const GeneratedAnswer> answers) {
  PromptResult result;
  for (const GeneratedAnswer& answer : answers) {
    result.right.push_back(answer.right ? 1 : 0);
    result.tokens += answer.tokens;
    result.cut += answer.cut ? 1 : 0;
  }
  return result;
}

// One line of JSON an item, for reading what was answered.
Status WriteAnswers(const std::string& path, std::span<const PromptItem> items,
                    std::span<const GeneratedAnswer> answers) {
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  for (size_t i = 0; i < items.size(); ++i) {
    Json line;
    line["line"] = items[i].line;
    line["expected"] = items[i].expected;
    line["answer"] = answers[i].text;
    line["right"] = answers[i].right;
    line["tokens"] = answers[i].tokens;
    line["cut"] = answers[i].cut;
    NIBBLE_RETURN_IF_ERROR(
        file.Write(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"));
  }
  return file.Commit();
}

void PrintPrompts(const PromptResult& result) {
  PrintShare("accuracy", ShareOf(result.right),
             fmt::format("{} tokens generated, {} answers cut off", result.tokens, result.cut));
}

}  // namespace

Status RunPromptTask(const GlobalFlags& flags, const EvalFlags& own) {
  NIBBLE_RETURN_IF_ERROR(CheckBase(own));
  NIBBLE_TRY(const std::string text, ReadTextFile(own.task_file, kMaxTaskBytes));
  NIBBLE_RETURN_IF_ERROR(CheckUtf8(own.task_file, text));
  const auto items = ParsePromptItems(text, own.items);
  if (!items) return Within(own.task_file, items.error());

  const auto measure = [&](Engine& engine, const TaskProgress& progress) {
    return AnswerPrompts(engine, *items, progress);
  };
  const auto answers = WithModel(flags, own.model, measure);
  if (!answers) return Within(own.task_file, answers.error());
  const PromptResult result = ResultOf(*answers);
  if (!own.answers.empty()) NIBBLE_RETURN_IF_ERROR(WriteAnswers(own.answers, *items, *answers));
  Json out;
  out["items"] = items->size();
  PutShare(out, "accuracy", ShareOf(result.right));
  out["tokens"] = result.tokens;
  out["cut"] = result.cut;
  if (!flags.json) {
    fmt::print("{}, {} items\n", own.task_file, items->size());
    PrintPrompts(result);
  }
  if (!own.base.empty()) {
    const auto base_answers = WithModel(InFloats(flags), own.base, measure);
    if (!base_answers) return Within(own.task_file, base_answers.error());
    const PromptResult base = ResultOf(*base_answers);
    const PairedAnswers paired = ComparePaired(result.right, base.right);
    out["base"]["tokens"] = base.tokens;
    PutShare(out["base"], "accuracy", ShareOf(base.right));
    PutPaired(out, paired);
    if (!flags.json) {
      fmt::print("the base\n");
      PrintPrompts(base);
      fmt::print("{}\n", Verdict(paired));
    }
  }
  NIBBLE_RETURN_IF_ERROR(PutFlags(out, flags, !own.base.empty()));
  if (flags.json) PrintJsonLine(out);
  return {};
}

}  // namespace nibble::cli
