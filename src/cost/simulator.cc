#include "cost/simulator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/split_mix.h"
#include "cost/latency_sketch.h"

namespace nibble {
namespace {

// Prompts differ in tokens beyond their common blocks; the number of tokens only has to be large.
constexpr int kVocabulary = 1 << 17;

// A request in the scheduler, with all its answers.
struct Asked {
  SimulatedRequest facts;
  int open = 0;  // answers that have not ended
  bool begun = false;
};

// One answer of it: a sequence.
struct Answer {
  std::shared_ptr<Asked> asked;
  int length = 0;
  int made = 0;
  double first_s = 0;
  double last_s = 0;
  uint64_t stream = 0;  // of its tokens
};

class Simulation {
 public:
  Simulation(ArrivalSource& source, StepTimer& timer, const SimulatorOptions& options,
             SimulationObserver* observer)
      : source_(source),
        timer_(timer),
        options_(options),
        observer_(observer),
        scheduler_(options.limits, options.pools, options.pages, options.price) {}

  Result<SimulationResult> Run() {
    NIBBLE_RETURN_IF_ERROR(Take());
    while (next_ || !answers_.empty()) {
      NIBBLE_RETURN_IF_ERROR(Receive());
      CancelEnded();
      if (RunStep()) {
        if (++since_shown_ < kStepsPerProgress) continue;
        since_shown_ = 0;
        if (options_.progress && !options_.progress(ended_)) {
          return Fail(ErrorKind::kCancelled, "stopped after {} requests", ended_);
        }
        continue;
      }
      if (!next_) {
        NIBBLE_CHECK(answers_.empty());
        break;
      }
      // Idle until somebody comes; a log that says "before step n" of a step that never was is
      // followed all the same.
      now_ = std::max(now_, next_->request.arrival_s);
      hurry_ = options_.by_step;
    }
    return Collect();
  }

 private:
  static constexpr int kStepsPerProgress = 512;

  Status Take() {
    auto next = source_.Next();
    if (!next) return std::unexpected(std::move(next).error());
    next_ = *std::move(next);
    if (!next_) scheduler_.CloseArrivals();
    return {};
  }

  bool Due() const {
    if (!next_) return false;
    const auto& served = next_->request.served;
    if (!options_.by_step || !served || served->queued_step < 0) {
      return next_->request.arrival_s <= now_;
    }
    return hurry_ || served->queued_step <= scheduler_.counters().steps;
  }

  // Everybody who has come by now.
  Status Receive() {
    while (Due()) {
      hurry_ = false;
      Queue(*std::exchange(next_, std::nullopt));
      NIBBLE_RETURN_IF_ERROR(Take());
    }
    return {};
  }

  // Most tokens of an answer, as EngineCore::MaxNew: where nobody says, the context is the limit.
  int MaxNew(const TraceRequest& request) const {
    const int room = options_.max_context - request.input_tokens;
    if (!request.served) return request.output_tokens;
    const int asked = request.served->max_tokens;
    if (asked >= 0) return std::max(std::min(asked, room), request.output_tokens);
    return std::max(std::clamp(scheduler_.capacity() - request.input_tokens, 1, std::max(room, 1)),
                    request.output_tokens);
  }

  // Empty: it can run.
  std::string Unfit(const TraceRequest& request, int max_positions) const {
    if (request.input_tokens == 0) return "a prompt of 0 tokens, expected at least 1";
    if (request.output_tokens == 0 && !request.served) {
      return "an answer of 0 tokens, expected at least 1";
    }
    const int all = request.input_tokens + request.output_tokens;
    if (all > options_.max_context) {
      return fmt::format("the request has {} tokens and the context holds {}", all,
                         options_.max_context);
    }
    const Status fits = scheduler_.CheckFits(max_positions);
    return fits ? "" : fits.error().message;
  }

  void Queue(Arrival arrival) {
    const TraceRequest& request = arrival.request;
    auto asked = std::make_shared<Asked>();
    asked->facts = {.index = arrival.index,
                    .line = arrival.line,
                    .arrival_s = request.arrival_s,
                    .input_tokens = request.input_tokens,
                    .output_tokens = request.output_tokens};
    first_s_ = report_.requests == 0 ? request.arrival_s : std::min(first_s_, request.arrival_s);
    ++report_.requests;
    const int max_new = MaxNew(request);
    const int positions = std::max(request.input_tokens, request.input_tokens + max_new - 1);
    if (const std::string why = Unfit(request, positions); !why.empty()) {
      if (never_fit_++ == 0) first_unfit_ = fmt::format("line {}: {}", arrival.line, why);
      return Refuse(asked->facts);
    }
    std::vector<int> lengths = {request.output_tokens};
    if (request.served && !request.served->choices.empty()) lengths = request.served->choices;
    // Its user goes at a step that the log names, not at a length.
    const bool cancelled = options_.by_step && request.served && request.served->cancelled;
    if (cancelled) std::ranges::fill(lengths, max_new);
    AddAnswers(arrival, lengths, max_new, asked);
    if (asked->open == 0) return Refuse(asked->facts);
    if (cancelled) cancels_.emplace(request.served->ended_step, asked);
  }

  void AddAnswers(const Arrival& arrival, const std::vector<int>& lengths, int max_new,
                  const std::shared_ptr<Asked>& asked) {
    const TraceRequest& request = arrival.request;
    const SharedTokens prompt =
        ShareTokens(TracePrompt(request, arrival.index, kVocabulary, options_.seed));
    const uint64_t own = SplitMix(SplitMix(options_.seed) ^ ~uint64_t{arrival.index});
    std::optional<RequestId> leader;
    for (size_t choice = 0; choice < lengths.size(); ++choice) {
      const RequestId id{next_id_++};
      const Status added = scheduler_.Add(
          {.id = id,
           .priority = request.served ? request.served->priority : 0,
           .prompt = prompt,
           .max_positions = std::max(request.input_tokens, request.input_tokens + max_new - 1),
           .compute_from = request.input_tokens + max_new,
           .leader = leader});
      if (!added) continue;
      answers_.emplace(
          id, Answer{.asked = asked, .length = lengths[choice], .stream = SplitMixAt(own, choice)});
      ++asked->open;
      if (!leader) leader = id;
    }
  }

  void Refuse(SimulatedRequest& facts) {
    facts.rejected = true;
    ++report_.rejected;
    ++ended_;
    if (observer_ != nullptr) observer_->OnRequest(facts);
  }

  // Requests whose user was gone before the next step.
  void CancelEnded() {
    while (!cancels_.empty() && cancels_.begin()->first <= scheduler_.counters().steps) {
      const std::shared_ptr<Asked> asked = cancels_.begin()->second;
      cancels_.erase(cancels_.begin());
      std::vector<RequestId> ids;
      for (const auto& [id, answer] : answers_) {
        if (answer.asked == asked) ids.push_back(id);
      }
      for (const RequestId id : ids) {
        scheduler_.Remove(id);
        answers_.erase(id);
      }
      cancelled_ += ids.empty() ? 0 : 1;
      ended_ += ids.empty() ? 0 : 1;
    }
  }

  bool RunStep() {
    const int before = scheduler_.running();
    Step step = scheduler_.Plan(options_.limits.max_rows);
    for (const RequestId id : step.preempted()) ++answers_.at(id).asked->facts.preemptions;
    if (step.empty()) return false;
    SimulatedStep record{.number = scheduler_.counters().steps,
                         .begin_s = now_,
                         .seconds = timer_.Seconds(step),
                         .price_s = scheduler_.price().Seconds(step.load()),
                         .rows = step.rows(),
                         .sequences = static_cast<int>(step.spans().size()),
                         .preempted = static_cast<int>(step.preempted().size())};
    record.admitted = scheduler_.running() - before + record.preempted;
    reached_.clear();
    for (const StepSpan& span : step.spans()) {
      if (!span.sequence->generating()) record.prompt_rows += span.rows;
      Answer& answer = answers_.at(span.sequence->id);
      Begin(*answer.asked, span.sequence->taken);
      if (span.ReachesEnd()) reached_.emplace_back(span.sequence->id, &answer);
    }
    step.Commit();
    now_ += record.seconds;
    busy_s_ += record.seconds;
    for (const auto& [id, answer] : reached_) record.accepted += Advance(id, *answer) ? 1 : 0;
    CountPages(record);
    record.running = scheduler_.running();
    record.waiting = scheduler_.waiting();
    if (observer_ != nullptr) observer_->OnStep(record);
    return true;
  }

  void Begin(Asked& asked, int taken) {
    if (asked.begun) return;
    asked.begun = true;
    asked.facts.begin_s = now_;
    asked.facts.cached_tokens = taken;
  }

  void CountPages(SimulatedStep& record) {
    for (int g = 0; g < scheduler_.book().groups(); ++g) {
      record.kv_pages +=
          scheduler_.book().pool(g).used_pages() + scheduler_.book().open_pool(g).used_pages();
    }
    report_.kv_peak_pages = std::max(report_.kv_peak_pages, record.kv_pages);
  }

  // The next token of an answer. False: none was wanted.
  bool Advance(RequestId id, Answer& answer) {
    const bool wanted = answer.made < answer.length;
    if (wanted) {
      if (answer.made == 0) answer.first_s = now_;
      if (answer.made > 0) itl_.Add(now_ - answer.last_s);
      answer.last_s = now_;
      ++answer.made;
    }
    if (answer.made >= answer.length) {
      Finish(id);
    } else {
      const uint64_t bits = SplitMixAt(answer.stream, static_cast<uint64_t>(answer.made));
      scheduler_.Append(id, TokenId{static_cast<int32_t>(bits % kVocabulary)});
    }
    return wanted;
  }

  void Finish(RequestId id) {
    const auto found = answers_.find(id);
    const Answer answer = std::move(found->second);
    answers_.erase(found);
    scheduler_.Remove(id);
    Asked& asked = *answer.asked;
    SimulatedRequest& facts = asked.facts;
    report_.generated_tokens += answer.made;
    if (answer.made > 0) {
      const bool first = facts.first_token_s == 0;
      facts.first_token_s = first ? answer.first_s : std::min(facts.first_token_s, answer.first_s);
      facts.last_token_s = std::max(facts.last_token_s, answer.last_s);
    }
    if (answer.made > 1) tpot_.Add((answer.last_s - answer.first_s) / (answer.made - 1));
    if (--asked.open > 0) return;
    facts.finished = true;
    ++report_.finished;
    ++ended_;
    report_.prompt_tokens += facts.input_tokens;
    if (facts.output_tokens > 0) {
      ttft_.Add(facts.first_token_s - facts.arrival_s);
      e2e_.Add(facts.last_token_s - facts.arrival_s);
      last_s_ = std::max(last_s_, facts.last_token_s);
    }
    if (observer_ != nullptr) observer_->OnRequest(facts);
  }

  Result<SimulationResult> Collect() {
    if (never_fit_ > 0 && never_fit_ == report_.requests) {
      return BadInput("no request of the trace can ever run; {}", first_unfit_);
    }
    report_.duration_s = std::max(0.0, last_s_ - first_s_);
    if (report_.duration_s > 0) {
      report_.throughput_tok_s = static_cast<double>(report_.generated_tokens) / report_.duration_s;
    }
    report_.ttft_s = ttft_.Summarised();
    report_.tpot_s = tpot_.Summarised();
    report_.itl_s = itl_.Summarised();
    report_.e2e_s = e2e_.Summarised();
    report_.preemptions = scheduler_.counters().preemptions();
    report_.steps = scheduler_.counters().steps;
    report_.prefix_hit_tokens = scheduler_.counters().cached_tokens;
    return SimulationResult{.report = report_,
                            .never_fit = never_fit_,
                            .first_unfit = first_unfit_,
                            .busy_s = busy_s_,
                            .rows = scheduler_.counters().rows,
                            .cancelled = cancelled_};
  }

  ArrivalSource& source_;
  StepTimer& timer_;
  const SimulatorOptions& options_;
  SimulationObserver* observer_;
  Scheduler scheduler_;

  std::optional<Arrival> next_;
  bool hurry_ = false;
  std::unordered_map<RequestId, Answer> answers_;
  std::vector<std::pair<RequestId, Answer*>> reached_;  // of the step at hand; reused
  std::multimap<int64_t, std::shared_ptr<Asked>> cancels_;
  uint64_t next_id_ = 1;
  double now_ = 0;
  int since_shown_ = 0;

  ServingReport report_;
  LatencySketch ttft_, tpot_, itl_, e2e_;
  double first_s_ = 0, last_s_ = 0, busy_s_ = 0;
  int64_t ended_ = 0, never_fit_ = 0, cancelled_ = 0;
  std::string first_unfit_;
};

}  // namespace

Result<SimulationResult> Simulate(ArrivalSource& source, StepTimer& timer,
                                  const SimulatorOptions& options, SimulationObserver* observer) {
  return Simulation(source, timer, options, observer).Run();
}

}  // namespace nibble
