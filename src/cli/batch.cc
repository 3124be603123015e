#include "cli/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/sha256.h"
#include "base/split_mix.h"
#include "cli/batch_journal.h"
#include "cli/generate.h"
#include "cli/json_output.h"
#include "cli/logit_bias.h"
#include "cli/output.h"
#include "cli/output_paths.h"
#include "cli/prompt.h"
#include "cli/session.h"
#include "container/output_file.h"
#include "engine/check_request.h"
#include "engine/sampler.h"
#include "platform/clock.h"
#include "server/constraints.h"
#include "server/openai_request.h"
#include "server/openai_response.h"

namespace nibble::cli {
namespace {

using server::Endpoint;
using server::Json;
using server::OpenAiContext;
using server::OpenAiRequest;
using server::QuoteJson;

struct InputLine {
  std::string_view text;
  int number = 0;  // in the file, from 1
};

std::vector<InputLine> SplitLines(std::string_view text) {
  std::vector<InputLine> lines;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    ++number;
    if (line.find_first_not_of(" \t\r") != line.npos) lines.push_back({line, number});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// A missing seed, from --seed and the request's name, so that a line's answer does not depend on
// its neighbours. FNV-1a, finished by SplitMix64.
uint64_t SeedOf(uint64_t seed, std::string_view custom_id) {
  uint64_t hash = 0xcbf29ce484222325ULL ^ seed;
  for (const char c : custom_id) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return SplitMix(hash);
}

// A line on its way.
struct Item {
  int index = 0;
  std::string custom_id;
  OpenAiRequest parsed;
};

// Where finished requests wait for the thread that writes them.
class Finished {
 public:
  struct Entry {
    int index = 0;
    std::vector<Answer> answers;
  };
  void Push(Entry entry) {
    {
      const std::scoped_lock lock(mutex_);
      entries_.push_back(std::move(entry));
    }
    ready_.notify_one();
  }
  std::optional<Entry> PopFor(double seconds) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return !entries_.empty(); });
    if (entries_.empty()) return std::nullopt;
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    return entry;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Entry> entries_;
};

class CollectingSink : public EventSink {
 public:
  CollectingSink(std::shared_ptr<Finished> finished, int index, int choices)
      : finished_(std::move(finished)),
        entry_{index, std::vector<Answer>(static_cast<size_t>(choices))},
        open_(choices) {}
  void OnToken(RequestId /*id*/, const TokenEvent& event) override {
    Answer& answer = entry_.answers[static_cast<size_t>(event.choice)];
    answer.text += event.text;
    answer.tokens.push_back(event);
  }
  void OnFinish(RequestId /*id*/, const FinishEvent& event) override {
    Answer& answer = entry_.answers[static_cast<size_t>(event.choice)];
    answer.text += event.text;
    answer.finish = event;
    if (--open_ == 0) finished_->Push(std::move(entry_));
  }

 private:
  std::shared_ptr<Finished> finished_;
  Finished::Entry entry_;
  int open_;
};

struct Totals {
  int errors = 0;
  int resumed = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
};

class Batch {
 public:
  Batch(const GlobalFlags& flags, const BatchFlags& own, const Session& session,
        OpenAiContext context, BatchJournal& journal)
      : flags_(flags),
        own_(own),
        engine_(*session.engine),
        model_(session.path.stem().string()),
        context_(context),
        journal_(journal) {}

  Status Run(std::span<const InputLine> lines);
  const Totals& totals() const { return totals_; }

 private:
  Result<Item> Parse(const InputLine& line, int index);
  Status Submit(const InputLine& line, int index);
  Status Start(Item item);
  Status Write(const Finished::Entry& entry);
  Status WriteError(int index, const std::string& custom_id, const Error& error);
  Status WriteLine(int index, const std::string& custom_id, int status, Json body);
  void CancelAll();

  const GlobalFlags& flags_;
  const BatchFlags& own_;
  Engine& engine_;
  std::string model_;
  OpenAiContext context_;
  BatchJournal& journal_;
  std::shared_ptr<Finished> finished_ = std::make_shared<Finished>();
  std::map<int, std::pair<Item, RequestId>> running_;  // by index
  std::optional<Item> held_;                    // refused for now: the engine's queue is full
  std::unordered_map<std::string, int> names_;  // custom_id → line number
  Totals totals_;
};

Result<Item> Batch::Parse(const InputLine& line, int index) {
  Item item{.index = index, .custom_id = {}, .parsed = {}};
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(line.text)));
  const JsonValue root = document.root();
  NIBBLE_TRY(const std::string_view method, root.GetStringOr("method", "POST"));
  if (method != "POST") return BadInput("'method': expected POST, found {}", QuoteJson(method));
  NIBBLE_TRY(const std::string_view url, root.GetString("url"));
  Endpoint endpoint = Endpoint::kChatCompletions;
  if (url == "/v1/completions") {
    endpoint = Endpoint::kCompletions;
  } else if (url != "/v1/chat/completions") {
    return BadInput("'url': expected /v1/chat/completions or /v1/completions, found {}",
                    QuoteJson(url));
  }
  NIBBLE_TRY(const JsonValue body, root.Get("body"));
  auto parsed = server::ReadOpenAiRequest(endpoint, body, context_);
  if (!parsed) return BadInput("{}", parsed.error().message);
  item.parsed = *std::move(parsed);
  return item;
}

// The name of a line, or why it has none.
Result<std::string> CustomId(const InputLine& line) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(line.text)));
  NIBBLE_TRY(const std::string_view name, document.root().GetString("custom_id"));
  if (name.empty()) return BadInput("'custom_id' is empty: a response is found by it");
  return std::string(name);
}

Status Batch::Submit(const InputLine& line, int index) {
  const auto name = CustomId(line);
  if (!name) {
    Error error = name.error();
    error.message = fmt::format("line {}: {}", line.number, error.message);
    return journal_.done(index) ? Status() : WriteError(index, "", error);
  }
  const auto [first, added] = names_.emplace(*name, line.number);
  if (journal_.done(index)) return {};
  if (!added) {
    return WriteError(
        index, *name,
        BadInput("custom_id {} is that of line {}", QuoteJson(*name), first->second).error());
  }
  auto item = Parse(line, index);
  if (!item) return WriteError(index, *name, item.error());
  item->custom_id = *name;
  if (!item->parsed.seed) {
    item->parsed.request.sampling.seed = SeedOf(flags_.seed.value_or(0), *name);
  }
  return Start(*std::move(item));
}

Status Batch::Start(Item item) {
  const int index = item.index;
  // The engine refuses other numbers; until it has, they size nothing.
  const int choices = std::clamp(item.parsed.request.n, 1, kMostChoices);
  const auto id = engine_.Submit(item.parsed.request,
                                 std::make_shared<CollectingSink>(finished_, index, choices));
  if (id) {
    running_.emplace(index, std::pair(std::move(item), *id));
  } else if (id.error().kind == ErrorKind::kNoRoom && !running_.empty()) {
    held_ = std::move(item);
  } else {
    return WriteError(index, item.custom_id, id.error());
  }
  return {};
}

Status Batch::WriteLine(int index, const std::string& custom_id, int status, Json body) {
  Json line;
  line["id"] = "batch_req_" + custom_id;
  line["custom_id"] = custom_id.empty() ? Json(nullptr) : Json(custom_id);
  line["response"] = {
      {"status_code", status}, {"request_id", "req_" + custom_id}, {"body", std::move(body)}};
  line["error"] = nullptr;
  return journal_.Append(index, line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status Batch::WriteError(int index, const std::string& custom_id, const Error& error) {
  ++totals_.errors;
  const server::ApiError answer = server::ApiErrorOf(error);
  return WriteLine(index, custom_id, answer.status, server::ErrorBody(answer));
}

Status Batch::Write(const Finished::Entry& entry) {
  const auto found = running_.find(entry.index);
  const Item item = std::move(found->second.first);
  running_.erase(found);
  for (const Answer& answer : entry.answers) {
    if (answer.finish.error) return WriteError(entry.index, item.custom_id, *answer.finish.error);
    if (answer.finish.reason == FinishReason::kCancelled) return {};  // not finished: no line
    totals_.generated_tokens += answer.finish.usage.generated_tokens;
    totals_.cached_tokens += answer.finish.usage.cached_prompt_tokens;
    totals_.prompt_tokens += answer.finish.usage.prompt_tokens;
  }
  std::vector<server::PromptAnswers> prompts(1);
  prompts[0].answers = entry.answers;
  return WriteLine(entry.index, item.custom_id, 200,
                   server::OpenAiResponse(item.parsed, {.id = item.custom_id, .model = model_},
                                          engine_.tokenizer(), std::move(prompts)));
}

void Batch::CancelAll() {
  for (const auto& [index, entry] : running_) engine_.Cancel(entry.second);
}

Status Batch::Run(std::span<const InputLine> lines) {
  const InterruptGuard guard;
  Progress progress("batch", !flags_.quiet);
  const double started = MonotonicSeconds();
  double synced = started;
  totals_.resumed = journal_.count();
  // Enough that the engine's queue never runs dry, few enough that memory does not grow with the
  // file.
  const size_t most = static_cast<size_t>(std::max(64, 2 * own_.serving.max_sequences));
  size_t next = 0;
  bool stopped = false;
  while (!running_.empty() || held_ || (next < lines.size() && !stopped)) {
    while (!stopped && !held_ && next < lines.size() && running_.size() < most) {
      NIBBLE_RETURN_IF_ERROR(Submit(lines[next], static_cast<int>(next)));
      ++next;
    }
    if (InterruptGuard::Take() && !stopped) {
      stopped = true;
      held_.reset();
      CancelAll();
    }
    if (const auto entry = finished_->PopFor(0.1)) {
      NIBBLE_RETURN_IF_ERROR(Write(*entry));
      if (held_) NIBBLE_RETURN_IF_ERROR(Start(*std::exchange(held_, std::nullopt)));
    }
    const double now = MonotonicSeconds();
    if (now - synced > 1) {
      NIBBLE_RETURN_IF_ERROR(journal_.Sync());
      synced = now;
    }
    progress.Update(static_cast<double>(journal_.count()) / static_cast<double>(lines.size()),
                    fmt::format("{} of {} lines, {} tokens/s", journal_.count(), lines.size(),
                                FormatRate(static_cast<double>(totals_.generated_tokens) /
                                           std::max(now - started, 1e-9))));
  }
  if (stopped) {
    NIBBLE_RETURN_IF_ERROR(journal_.Sync());
    return Fail(ErrorKind::kCancelled, "stopped after {} of {} lines; the same command goes on",
                journal_.count(), lines.size());
  }
  return journal_.Finish();
}

constexpr uintmax_t kNamePieces = 64;
constexpr uintmax_t kNamePieceBytes = 4096;

// Pieces from all over a file, which is size bytes long.
std::string SomeBytes(const std::filesystem::path& path, uintmax_t size) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  std::string piece(kNamePieceBytes, '\0');
  const uintmax_t last = size > kNamePieceBytes ? size - kNamePieceBytes : 0;
  for (uintmax_t i = 0; i < kNamePieces && file; ++i) {
    file.seekg(static_cast<std::streamoff>(last * i / (kNamePieces - 1)));
    file.read(piece.data(), static_cast<std::streamsize>(std::min(size, kNamePieceBytes)));
    bytes.append(piece, 0, static_cast<size_t>(file.gcount()));
    if (last == 0) break;
  }
  return bytes;
}

// Of a model's files: their sizes and some of their bytes, so that a batch does not go on with
// another model of the same name, and does with a copy of the same.
std::string ModelName(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> files = {path};
  if (fs::is_directory(path, error)) {
    files.clear();
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path());
    }
    std::ranges::sort(files);
  }
  std::string name;
  for (const fs::path& file : files) {
    const uintmax_t size = fs::file_size(file, error);
    name +=
        fmt::format("{}:{}:{}|", file.filename().string(), size, Sha256Hex(SomeBytes(file, size)));
  }
  return name;
}

std::string NewerSamplers(const SamplingParams& s) {
  std::string text = fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", s.top_n_sigma, s.xtc_probability,
      s.xtc_threshold, s.dynatemp_range, s.dynatemp_exponent, s.mirostat, s.mirostat_tau,
      s.mirostat_eta, s.dry_multiplier, s.dry_base, s.dry_allowed_length, s.dry_penalty_last_n,
      s.min_tokens, server::DumpJson(Json(s.dry_sequence_breakers)),
      server::DumpJson(Json(s.bad_words)));
  for (const LogitBias& bias : s.logit_bias) {
    text += fmt::format("|{}:{}", bias.id.value(), bias.bias);
  }
  return text;
}

// Everything that the lines of the output depend on.
std::string RunName(const GlobalFlags& flags, const BatchFlags& own, const Session& session,
                    std::string_view input, std::string_view chat) {
  const SamplingParams& s = own.sampling;
  return Sha256Hex(fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", Sha256Hex(input),
      session.path.stem().string() + ModelName(session.path), Sha256Hex(chat), flags.act, flags.kv,
      flags.kv_k, flags.kv_v, fmt::join(flags.kv_skip_layers, ","), flags.kv_rotate, flags.context,
      flags.seed.value_or(0), own.max_tokens.value_or(-2), s.temperature, s.top_k, s.top_p, s.min_p,
      s.typical_p, s.repetition_penalty, s.presence_penalty, s.frequency_penalty, s.penalty_last_n,
      NewerSamplers(s)));
}

void Report(const GlobalFlags& flags, const BatchFlags& own, const Totals& totals, size_t lines,
            double seconds) {
  const double rate = static_cast<double>(totals.generated_tokens) / std::max(seconds, 1e-9);
  if (flags.json) {
    Json out;
    out["output"] = own.out;
    out["lines"] = lines;
    out["errors"] = totals.errors;
    out["resumed_lines"] = totals.resumed;
    out["prompt_tokens"] = totals.prompt_tokens;
    out["cached_prompt_tokens"] = totals.cached_tokens;
    out["generated_tokens"] = totals.generated_tokens;
    out["seconds"] = seconds;
    out["tok_s"] = rate;
    PrintJsonLine(out);
  }
  if (flags.quiet) return;
  fmt::print(
      stderr,
      "{} lines to {}: {} errors, {} from an earlier run; {} tokens in {:.1f} s, {} tokens/s\n",
      lines, own.out, totals.errors, totals.resumed, totals.generated_tokens, seconds,
      FormatRate(rate));
}

// A context that memory has cut decides which answers end early, and memory is not the same
// tomorrow or with another --max-seqs.
Status CheckContext(const GlobalFlags& flags, const Session& session) {
  const EnginePlan& plan = session.engine->plan();
  const int of_model = session.engine->config().context_length;
  if (flags.context > 0 || plan.max_context == of_model) return {};
  return BadInput(
      "the KV cache has room for {} tokens and the model's context is {}, so that answers would "
      "depend on the memory there is; give --ctx {} or less, or more --kv-memory",
      plan.kv_tokens, of_model, plan.kv_tokens);
}

}  // namespace

Status RunBatch(const GlobalFlags& flags, BatchFlags own) {
  if (own.out.empty()) return BadInput("--batch: needs -o OUT.jsonl");
  // All that can be known is said before hours of work, not behind them.
  NIBBLE_TRY(const std::filesystem::path out, OutputPlace(own.out));
  const NamedPath outputs[] = {{"-o", own.out}};
  const NamedPath inputs[] = {{"--batch", own.in}, {"MODEL", own.model}};
  NIBBLE_RETURN_IF_ERROR(CheckOutputPaths(outputs, inputs));
  NIBBLE_TRY(const std::string input, ReadTextFile(own.in));
  const std::vector<InputLine> lines = SplitLines(input);
  if (lines.empty()) return BadInput("{}: no lines", own.in);

  SessionOptions options;
  options.pull = true;
  options.serving = &own.serving;
  options.speculation = own.speculation;
  NIBBLE_TRY(const Session session, OpenSession(flags, own.model, options));
  NIBBLE_RETURN_IF_ERROR(CheckContext(flags, session));
  // A wrong flag is not every line's error.
  NIBBLE_TRY(own.sampling.logit_bias, ReadLogitBias(own.logit_bias, session.engine->tokenizer()));
  NIBBLE_RETURN_IF_ERROR(CheckSampling(own.sampling, session.engine->config().vocabulary));
  NIBBLE_TRY(const auto chat, LoadChatTemplate(*session.engine, own.chat_template));
  const std::string run =
      RunName(flags, own, session, input, chat ? std::string_view(chat->source()) : "");
  NIBBLE_TRY(BatchJournal journal, BatchJournal::Open(out, run, static_cast<int>(lines.size())));

  server::Constraints constraints([&] { return session.engine->vocabulary(); });
  const double started = MonotonicSeconds();
  Batch batch(flags, own, session,
              {.tokenizer = &session.engine->tokenizer(),
               .chat = chat ? &*chat : nullptr,
               .sampling = own.sampling,
               .max_tokens = own.max_tokens,
               .constraints = &constraints},
              journal);
  NIBBLE_RETURN_IF_ERROR(batch.Run(lines));
  Report(flags, own, batch.totals(), lines.size(), MonotonicSeconds() - started);
  return {};
}

}  // namespace nibble::cli
