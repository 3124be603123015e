#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "engine/event_stream.h"
#include "engine/executor.h"
#include "kernels/kernel_table.h"
#include "kv/invariants.h"
#include "platform/cpu.h"
#include "tokenizer/tokenizer.h"

// Random schedules of random requests: whatever they are, every request's tokens and logits must
// be, bit for bit, those of its run alone, and the bookkeeping must hold after every step.
namespace nibble::testing {

// Numbers from a random generator or from a fuzzer's bytes.
using Pick = std::function<int(int low, int high)>;

// A model as schedules see it.
class ScheduleModel {
 public:
  virtual ~ScheduleModel() = default;
  // Pools that hold about `tokens` tokens in all, as the model's KV groups want them.
  virtual std::vector<PoolSpec> Pools(int tokens) const = 0;
  // A fresh executor over pages for these pools.
  virtual std::unique_ptr<Executor> Make(std::span<const PoolSpec> pools, int threads) = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual int max_context() const = 0;
  // Pages that its executors have sealed, where they count them.
  virtual int64_t seals() const { return 0; }
};

// The bits of a request's rows.
class BitsOfRows : public PositionLogitsSink {
 public:
  void Rows(Position /*first*/, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      const size_t size = bits.size();
      bits.resize(size + static_cast<size_t>(logits.cols));
      std::memcpy(bits.data() + size, logits.row(r), sizeof(float) * logits.cols);
    }
  }
  std::vector<uint32_t> bits;
};

struct Outcome {
  std::vector<std::vector<int>> tokens;  // per choice
  std::vector<uint32_t> logits;
  std::vector<FinishReason> reasons;
};

// What schedules met, so that a test can see that they met it.
struct ScheduleCounts {
  int64_t steps = 0;
  int64_t preemptions = 0;
  int64_t cached_tokens = 0;
  int64_t forked_tokens = 0;
  int64_t cancelled = 0;
  int64_t longest = 0;  // tokens of a sequence
};

// Requests on their way through one core.
class ScheduleRun {
 public:
  ScheduleRun(ScheduleModel& model, EngineCoreOptions options, int threads)
      : executor_(model.Make(options.pools, threads)),
        core_(*executor_, model.tokenizer(), KernelsFor(ChooseIsa().value_or(Isa::kScalar)),
              std::move(options)) {}

  // False: the core refuses it.
  bool Submit(Request request, bool with_logits) {
    auto entry = std::make_unique<Entry>();
    entry->n = request.n;
    if (with_logits) request.logits = &entry->sink;
    auto accepted = core_.Accept(std::move(request));
    if (!accepted) return false;
    entry->stream = std::make_shared<EventStream>(entry->n);
    core_.Start(RequestId{entries_.size() + 1}, *accepted, entry->stream, 0);
    entries_.push_back(std::move(entry));
    return true;
  }
  void Cancel(size_t index) { core_.Cancel(RequestId{index + 1}); }
  void CloseArrivals() { core_.CloseArrivals(); }
  bool Step() { return core_.RunStep(); }
  std::optional<std::string> Problem() const {
    return FindPageProblem(core_.scheduler().book(), core_.scheduler().AllPages());
  }
  const EngineCore& core() const { return core_; }
  size_t size() const { return entries_.size(); }

  Outcome Take(size_t index) {
    Entry& entry = *entries_[index];
    Outcome outcome;
    for (const Answer& answer : Collect(*entry.stream, entry.n)) {
      outcome.tokens.emplace_back();
      for (const TokenEvent& token : answer.tokens)
        outcome.tokens.back().push_back(token.id.value());
      outcome.reasons.push_back(answer.finish.reason);
    }
    outcome.logits = std::move(entry.sink.bits);
    return outcome;
  }

 private:
  struct Entry {
    int n = 1;
    std::shared_ptr<EventStream> stream;
    BitsOfRows sink;
  };
  std::unique_ptr<Executor> executor_;
  EngineCore core_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

struct Question {
  Request request;
  bool with_logits = false;
  Outcome alone;
};

// Prompts that share one of two beginnings of up to seven pages, and answers; the first question is
// as long as any.
inline std::vector<Question> MakeQuestions(const Pick& pick, int count, int vocabulary,
                                           int max_context) {
  std::vector<Question> questions;
  const auto token = [&](int seed, int i) {
    const uint32_t x =
        (static_cast<uint32_t>(seed) * 2654435761U + static_cast<uint32_t>(i)) * 2246822519U;
    return TokenId{static_cast<int>((x >> 7) % static_cast<uint32_t>(vocabulary))};
  };
  for (int q = 0; q < count; ++q) {
    Question question;
    Request& request = question.request;
    const int least = q == 0 ? 1 : 0;
    const int shared = std::min(pick(7 * least, 7) * 32, max_context / 2);
    const int beginning = pick(0, 1);
    for (int i = 0; i < shared; ++i) request.prompt.push_back(token(beginning, i));
    const int most = std::min(70, max_context / 4);
    const int own = pick(std::max(1, most * least), most);
    for (int i = 0; i < own; ++i) request.prompt.push_back(token(100 + q, i));
    request.max_tokens = pick(0, std::min(60, max_context / 5));
    request.ignore_end = true;
    request.priority = pick(0, 2);
    request.n = pick(0, 3) == 0 ? pick(2, 4) : 1;
    request.sampling.temperature = pick(0, 2) == 0 ? 0 : 0.9F;
    request.sampling.top_k = pick(0, 1) * 20;
    request.sampling.frequency_penalty = pick(0, 2) == 0 ? 0.3F : 0;
    request.sampling.seed = static_cast<uint64_t>(q);
    question.with_logits = request.n == 1 && pick(0, 2) == 0;
    if (question.with_logits)
      request.logits_from = pick(0, static_cast<int>(request.prompt.size()));
    questions.push_back(std::move(question));
  }
  return questions;
}

// Each request by itself: one thread, whole prompts, nothing cached, pages in plenty.
inline void AskAlone(ScheduleModel& model, std::vector<Question>& questions) {
  for (Question& question : questions) {
    ScheduleRun run(model,
                    {.max_context = model.max_context(),
                     .limits = {.max_rows = 512},
                     .pools = model.Pools(model.max_context() * 6),
                     .clock = [] { return 0.0; }},
                    1);
    if (!run.Submit(question.request, question.with_logits)) continue;
    while (run.Step()) {
    }
    question.alone = run.Take(0);
  }
}

inline EngineCoreOptions RandomOptions(const Pick& pick, const ScheduleModel& model, int longest) {
  EngineCoreOptions options{.max_context = model.max_context(),
                            .limits = {.max_rows = pick(0, 3) == 0 ? pick(1, 9) : pick(10, 200),
                                       .max_running = pick(1, 9),
                                       .max_queue = 1000,
                                       .policy = static_cast<Policy>(pick(0, 2)),
                                       .batching = static_cast<Batching>(pick(0, 4) / 4),
                                       .max_step_s = pick(0, 3) == 0 ? 40.0 : 0},
                            .pools = model.Pools(longest + 32 * pick(0, pick(0, 1) == 0 ? 4 : 20)),
                            .clock = [] { return 0.0; }};
  options.pages.prefix_cache = pick(0, 3) > 0;
  if (pick(0, 5) == 0) options.pages.hash.mask = 7;
  if (pick(0, 2) == 0) options.price = StepPrice({{1, 10}, {8, 12}, {64, 60}}, 0.001, 0.1);
  return options;
}

// What is wrong with an outcome, beside the run alone; of a cancelled choice only the beginning is
// there.
inline std::optional<std::string> Compare(const Outcome& outcome, const Outcome& alone) {
  for (size_t choice = 0; choice < outcome.tokens.size(); ++choice) {
    const std::vector<int>& got = outcome.tokens[choice];
    const std::vector<int>& want = alone.tokens[choice];
    const FinishReason reason = outcome.reasons[choice];
    if (reason == FinishReason::kError) return fmt::format("choice {} failed", choice);
    const bool cut = reason == FinishReason::kCancelled;
    if (got.size() > want.size() || (!cut && got.size() != want.size()) ||
        !std::equal(got.begin(), got.end(), want.begin())) {
      return fmt::format("choice {} has other tokens", choice);
    }
    if (outcome.logits.size() > alone.logits.size() ||
        (!cut && outcome.logits.size() != alone.logits.size()) ||
        !std::equal(outcome.logits.begin(), outcome.logits.end(), alone.logits.begin())) {
      return "other logits";
    }
  }
  return std::nullopt;
}

// One random schedule of the questions; what went wrong, if anything.
inline std::optional<std::string> RunSchedule(const Pick& pick, ScheduleModel& model,
                                              const std::vector<Question>& questions,
                                              ScheduleCounts& counts) {
  int longest = 1;
  for (const Question& question : questions) {
    longest = std::max(
        longest, static_cast<int>(question.request.prompt.size()) + question.request.max_tokens);
  }
  // More threads than cores now and then: on a busy machine each of their barriers costs a time
  // slice.
  const int threads = pick(0, 3) == 0 ? pick(3, 4) : pick(1, 2);
  ScheduleRun run(model, RandomOptions(pick, model, longest), threads);
  std::vector<size_t> asked;
  const auto step = [&]() -> std::optional<std::string> {
    run.Step();
    ++counts.steps;
    if (!asked.empty() && pick(0, 59) == 0) {
      run.Cancel(static_cast<size_t>(pick(0, static_cast<int>(asked.size()) - 1)));
    }
    return run.Problem();
  };
  for (size_t q = 0; q < questions.size(); ++q) {
    if (run.Submit(questions[q].request, questions[q].with_logits)) asked.push_back(q);
    for (int i = pick(0, 8); i > 0; --i) {
      if (auto problem = step()) return problem;
    }
  }
  run.CloseArrivals();
  for (int i = 0; !run.core().idle(); ++i) {
    if (auto problem = step()) return problem;
    if (i > 100'000) return "it does not end";
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const Outcome outcome = run.Take(i);
    counts.cancelled += std::ranges::count(outcome.reasons, FinishReason::kCancelled);
    if (auto problem = Compare(outcome, questions[asked[i]].alone)) {
      return fmt::format("request {}: {}", asked[i], *problem);
    }
  }
  const Scheduler& scheduler = run.core().scheduler();
  for (int g = 0; g < scheduler.book().groups(); ++g) {
    if (scheduler.book().pool(g).used_pages() + scheduler.book().open_pool(g).used_pages() != 0) {
      return "pages are left behind";
    }
  }
  counts.preemptions += scheduler.counters().preemptions();
  counts.cached_tokens += scheduler.counters().cached_tokens;
  counts.forked_tokens += scheduler.counters().forked_tokens;
  counts.longest = std::max<int64_t>(counts.longest, longest);
  return std::nullopt;
}

}  // namespace nibble::testing
