#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/batch.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/constraint_flags.h"
#include "cli/generate.h"
#include "cli/json_output.h"
#include "cli/logit_bias.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/session.h"
#include "cli/speculation_flags.h"
#include "platform/memory.h"
#include "platform/random_bits.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

struct RunFlags {
  std::string model;
  std::string prompt;
  std::string file;
  std::string system;
  std::string chat_template;
  std::vector<int32_t> ids;
  std::vector<std::string> stop;
  SamplingParams sampling;
  std::vector<std::string> dry_breakers;
  std::vector<std::string> logit_bias;
  int max_tokens = -1;
  bool raw = false;
  bool ignore_eos = false;
  bool stats = false;
  bool has_prompt = false;
  SpeculationFlags speculation;
  ConstraintFlags constraint;
  BatchFlags batch;
};

uint64_t RandomSeed() {
  return RandomBits() >> 11;  // a number that JSON can hold
}

Result<std::vector<TokenId>> PromptIds(const Engine& engine, const RunFlags& own,
                                       const std::string& text) {
  if (!own.ids.empty()) {
    std::vector<TokenId> ids;
    for (const int32_t id : own.ids) ids.emplace_back(id);
    return ids;
  }
  if (text.empty()) return BadInput("the prompt is empty");
  NIBBLE_RETURN_IF_ERROR(CheckUtf8("the prompt", text));
  if (!own.raw) {
    NIBBLE_TRY(const auto chat, LoadChatTemplate(engine, own.chat_template));
    if (chat) {
      std::vector<ChatMessage> messages;
      if (!own.system.empty()) messages.push_back({"system", own.system});
      messages.push_back({"user", text});
      return EncodeChat(engine, *chat, messages);
    }
    if (!own.system.empty()) {
      return BadInput("--system: the model has no chat template; give one with --chat-template");
    }
  }
  return engine.tokenizer().Encode(text);
}

void PrintJson(const Session& session, const Answer& answer, uint64_t seed) {
  const Usage& usage = answer.finish.usage;
  const Engine& engine = *session.engine;
  const RunStats stats = MakeRunStats(engine, usage);
  const double read_bandwidth = MeasureReadBandwidth(engine);
  const EnginePlan& plan = engine.plan();
  Json out;
  out["text"] = answer.text;
  out["ids"] = Json::array();
  for (const TokenEvent& token : answer.tokens) out["ids"].push_back(token.id.value());
  out["prompt_tokens"] = usage.prompt_tokens;
  out["generated_tokens"] = usage.generated_tokens;
  out["finish_reason"] = FinishReasonName(answer.finish.reason);
  out["seed"] = seed;
  out["load_s"] = session.load_s;
  out["prefill_s"] = usage.prefill_s;
  out["decode_s"] = usage.decode_s;
  out["prefill_tok_s"] = stats.prefill_tok_s;
  out["decode_tok_s"] = stats.decode_tok_s;
  out["weight_bytes_per_step"] = stats.weight_bytes_per_step;
  out["kv_bytes_per_step"] = stats.kv_bytes_per_step;
  out["achieved_bandwidth"] = stats.achieved_bandwidth;
  out["bandwidth_fraction"] = read_bandwidth > 0 ? stats.achieved_bandwidth / read_bandwidth : 0;
  out["resident_bytes"] = ReadResidentBytes().private_;
  out["predicted_bytes"] = plan.Total() - plan.kv_bytes + engine.Stats().kv_touched_bytes;
  out["spec"] = {{"drafted", usage.drafted_tokens}, {"accepted", usage.accepted_tokens}};
  if (usage.drafts > 0) {
    out["spec"]["drafts"] = usage.drafts;
    out["spec"]["accepted_at"] = usage.accepted_at;
  }
  PrintJsonLine(out);
}

Status RunOnce(const GlobalFlags& flags, const Session& session, const RunFlags& own,
               const std::string& text) {
  Engine& engine = *session.engine;
  Request request;
  NIBBLE_TRY(request.prompt, PromptIds(engine, own, text));
  request.max_tokens = own.max_tokens;
  request.sampling = own.sampling;
  request.stop = own.stop;
  request.ignore_end = own.ignore_eos;
  NIBBLE_TRY(request.constraint, MakeConstraint(own.constraint, engine));

  const InterruptGuard guard;
  const bool stream = !flags.json;
  NIBBLE_TRY(const Answer answer, Generate(engine, std::move(request), [&](std::string_view piece) {
               if (!stream) return;
               std::fwrite(piece.data(), 1, piece.size(), stdout);
               FlushOutput();
             }));
  if (flags.json) {
    PrintJson(session, answer, own.sampling.seed);
  } else {
    std::fputc('\n', stdout);
    FlushOutput();
  }
  if (own.stats) {
    const RunStats stats = MakeRunStats(engine, answer.finish.usage);
    fmt::print(stderr, "{}\n", DescribeSpeed(stats, MeasureReadBandwidth(engine)));
    if (own.speculation.on() || stats.usage.drafts > 0) {
      fmt::print(stderr, "{}\n", DescribeSpeculation(stats.usage));
    }
  }
  if (answer.finish.reason == FinishReason::kCancelled) {
    return Fail(ErrorKind::kCancelled, "stopped");
  }
  return {};
}

void UseDryBreakers(RunFlags& own) {
  if (own.dry_breakers.empty()) return;
  own.sampling.dry_sequence_breakers = own.dry_breakers;
  if (own.dry_breakers == std::vector<std::string>{"none"}) {
    own.sampling.dry_sequence_breakers.clear();
  }
}

Status Run(const GlobalFlags& flags, RunFlags own) {
  UseDryBreakers(own);
  std::string text = own.prompt;
  const bool chat = !own.has_prompt && own.file.empty() && own.ids.empty() && IsTerminal(stdin);
  if (!own.file.empty()) {
    NIBBLE_TRY(text, ReadTextFile(own.file));
  } else if (!chat && !own.has_prompt && own.ids.empty()) {
    NIBBLE_TRY(text, ReadTextFile("-"));
    if (text.empty()) return BadInput("no prompt: give -p TEXT, -f FILE, --ids or standard input");
  }
  if (chat && flags.json) return BadInput("--json: give a prompt with -p, -f or --ids");
  // Before a model is loaded.
  NIBBLE_RETURN_IF_ERROR(CheckConstraint(own.constraint));

  own.sampling.seed = flags.seed.value_or(RandomSeed());
  SessionOptions options;
  options.pull = true;
  options.speculation = own.speculation;
  NIBBLE_TRY(const Session session, OpenSession(flags, own.model, options));
  NIBBLE_TRY(own.sampling.logit_bias, ReadLogitBias(own.logit_bias, session.engine->tokenizer()));
  if (!flags.seed && own.sampling.temperature > 0 && !flags.quiet) {
    fmt::print(stderr, "seed: {}\n", own.sampling.seed);
  }
  if (!chat) return RunOnce(flags, session, own, text);

  ChatSettings settings;
  settings.system = own.system;
  settings.sampling = own.sampling;
  settings.stop = own.stop;
  settings.max_tokens = own.max_tokens;
  settings.show_stats = own.stats;
  NIBBLE_TRY(settings.constraint, MakeConstraint(own.constraint, *session.engine));
  NIBBLE_TRY(const auto chat_template, LoadChatTemplate(*session.engine, own.chat_template));
  return ChatInTerminal(*session.engine, chat_template, settings);
}

constexpr const char* kSamplingGroup = "Sampling";

// The names are llama.cpp's.
void AddMoreSamplingFlags(CLI::App& command, RunFlags& own) {
  const std::string group = kSamplingGroup;
  SamplingParams& s = own.sampling;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->capture_default_str()->group(group);
  };
  add("--top-nsigma,--top-n-sigma", s.top_n_sigma,
      "Keep logits within so many standard deviations of the largest; -1: all");
  add("--xtc-probability", s.xtc_probability, "How often the most probable tokens are left out");
  add("--xtc-threshold", s.xtc_threshold, "Tokens of at least this probability are these");
  add("--dynatemp-range", s.dynatemp_range, "Temperature by entropy, so much around --temp");
  add("--dynatemp-exp", s.dynatemp_exponent, "Exponent of the entropy's share");
  add("--mirostat", s.mirostat, "2: mirostat 2 in place of the filters; 0: off");
  add("--mirostat-ent", s.mirostat_tau, "Surprise it aims at, in bits");
  add("--mirostat-lr", s.mirostat_eta, "How fast it gets there");
  add("--dry-multiplier", s.dry_multiplier, "Penalty of tokens that continue a repetition; 0: off");
  add("--dry-base", s.dry_base, "Grows by this with every token of the repetition");
  add("--dry-allowed-length", s.dry_allowed_length, "Longest repetition without a penalty");
  add("--dry-penalty-last-n", s.dry_penalty_last_n, "Tokens it looks back; -1: all");
  command
      .add_option("--dry-sequence-breaker", own.dry_breakers,
                  "Text that repetitions do not reach over, in place of newline, colon, quote and "
                  "asterisk; may be given several times; none: no text")
      ->allow_extra_args(false)
      ->group(group);
  add("--min-tokens", s.min_tokens, "No end before so many tokens");
  command
      .add_option("--bad-word", s.bad_words,
                  "Text that the answer never has; may be given several times")
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option("--logit-bias", own.logit_bias,
                  "ID+1, ID-0.5 or TEXT=-2: added to the logits of a token or of a text's tokens; "
                  "-inf forbids; may be given several times")
      ->allow_extra_args(false)
      ->group(group);
}

void AddSamplingFlags(CLI::App& command, RunFlags& own) {
  const std::string group = kSamplingGroup;
  SamplingParams& s = own.sampling;
  s.temperature = 0.8F;
  s.top_k = 40;
  s.top_p = 0.95F;
  s.min_p = 0.05F;
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->capture_default_str()->group(group);
  };
  add("--temp,--temperature", s.temperature, "0: always the most probable token");
  add("--top-k", s.top_k, "Keep the k most probable tokens; 0: all");
  add("--top-p", s.top_p, "Keep the smallest set of this probability; 1: all");
  add("--min-p", s.min_p, "Keep tokens of this share of the largest probability; 0: all");
  add("--typical", s.typical_p, "Locally typical sampling; 1: off");
  add("--repeat-penalty", s.repetition_penalty, "Penalty of tokens that occurred; 1: off");
  add("--presence-penalty", s.presence_penalty, "Subtracted once from tokens that occurred");
  add("--frequency-penalty", s.frequency_penalty, "Subtracted per occurrence");
  add("--repeat-last-n", s.penalty_last_n, "Tokens the penalties look back; -1: all");
  AddMoreSamplingFlags(command, own);
}

// OpenAI's defaults for lines that say nothing, or, when any is given, those of the flags.
Status StartBatch(const GlobalFlags& flags, const CLI::App& command, RunFlags own) {
  UseDryBreakers(own);
  BatchFlags batch = own.batch;
  batch.logit_bias = own.logit_bias;
  batch.model = own.model;
  batch.chat_template = own.chat_template;
  batch.speculation = own.speculation;
  batch.sampling.temperature = 1;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group() == kSamplingGroup && option->count() > 0) batch.sampling = own.sampling;
  }
  if (own.max_tokens >= 0) batch.max_tokens = own.max_tokens;
  if (own.raw || own.ignore_eos || !own.system.empty() || !own.stop.empty() ||
      own.constraint.any()) {
    return BadInput(
        "--batch: --raw, --system, --stop, --ignore-eos and what an answer must be belong into the "
        "lines");
  }
  return RunBatch(flags, batch);
}

void AddBatchFlags(CLI::App& command, RunFlags& own) {
  const std::string group = "Many at once";
  command.add_option("--batch", own.batch.in, "File of requests in OpenAI's batch format")
      ->type_name("IN.jsonl")
      ->excludes("--prompt", "--file", "--ids")
      ->group(group);
  command.add_option("-o,--output", own.batch.out, "Where their responses go, in the same order")
      ->type_name("OUT.jsonl")
      ->needs("--batch")
      ->group(group);
  AddServingFlags(command, own.batch.serving, group);
}

}  // namespace

void AddRunCommand(const CommandContext& context) {
  CLI::App* command =
      context.app.add_subcommand("run", "Chats or completes in the terminal, streaming");
  auto own = std::make_shared<RunFlags>();
  command->add_option("MODEL", own->model, "Model file, folder or name (pulled if not on disk)")
      ->required();
  CLI::Option* prompt = command->add_option("-p,--prompt", own->prompt, "The question or text");
  CLI::Option* file =
      command->add_option("-f,--file", own->file, "File with the prompt; - is standard input")
          ->excludes(prompt);
  command->add_option("--ids", own->ids, "Token ids as the prompt: 1,2,3")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(prompt)
      ->excludes(file);
  command->add_option("--system", own->system, "System message");
  command->add_flag("--raw", own->raw, "Complete the text as it is, without the chat template");
  command->add_option("--chat-template", own->chat_template, "Jinja file in place of the model's");
  command
      ->add_option("-n,--max-tokens", own->max_tokens,
                   "Most tokens to generate; default: until the answer or the context ends")
      ->check(CLI::Range(-1, 1 << 24));
  command->add_option("--stop", own->stop, "End before this text; may be given several times")
      ->allow_extra_args(false);  // else CLI11 takes the model behind it, and [brackets] apart
  command->add_flag("--ignore-eos", own->ignore_eos, "Go on behind end-of-text tokens");
  command->add_flag("--stats", own->stats, "Speed and bytes per token, on standard error");
  AddSamplingFlags(*command, *own);
  AddSpeculationFlags(*command, own->speculation);
  AddConstraintFlags(*command, own->constraint);
  AddBatchFlags(*command, *own);
  command->footer(
      "Without a prompt on a terminal: a chat (/help lists its commands).\n"
      "Examples:\n"
      "  nibble run smollm2-135m -p \"Why is the sky blue?\"\n"
      "  nibble run shakespeare -p \"ROMEO:\" -n 200 --seed 1\n"
      "  nibble run model.gguf --raw -f text.txt -n 64 --temp 0 --json\n"
      "  nibble run smollm2-135m --json-schema person.json -p \"Describe Ada Lovelace.\"\n"
      "  nibble run model.gguf --batch requests.jsonl -o responses.jsonl\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback([own, prompt, command, &flags, &action] {
    own->has_prompt = prompt->count() > 0;
    if (!own->batch.in.empty()) {
      action = [own, command, &flags] { return StartBatch(flags, *command, *own); };
      return;
    }
    action = [own, &flags] { return Run(flags, *own); };
  });
}

}  // namespace nibble::cli
