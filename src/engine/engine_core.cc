#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/best_of.h"
#include "engine/check_request.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// Draws the tokens of a step while its logits are there, and passes on the rows that requests want.
class EngineCore::StepLogits : public LogitsSink {
 public:
  StepLogits(Sampler& sampler, std::span<const Wanted> wanted)
      : sampler_(sampler), wanted_(wanted) {}

  void Rows(int first, MatrixView<float> logits) override {
    const std::span<const Wanted> rows =
        wanted_.subspan(static_cast<size_t>(first), static_cast<size_t>(logits.rows));
    for (int r = 0; r < logits.rows; ++r) {
      const Wanted& row = rows[static_cast<size_t>(r)];
      if (row.sample) Draw(row, logits.row_span(r));
    }
    // Drawn first: a request's sink may change the rows.
    for (int begin = 0; begin < logits.rows;) {
      int end = begin + 1;
      const Wanted& head = rows[static_cast<size_t>(begin)];
      while (end < logits.rows && rows[static_cast<size_t>(end)].sequence == head.sequence &&
             rows[static_cast<size_t>(end)].deliver == head.deliver) {
        ++end;
      }
      if (head.deliver) Deliver(head, logits, begin, end);
      begin = end;
    }
  }

  // One sequence's tokens stand together: those before the last are guesses that were right.
  struct Token {
    const Wanted* row;
    Result<Drawn> drawn;
    bool known;  // a guess: the next one is of the same sequence
  };
  const std::vector<Token>& drawn() const { return drawn_; }

 private:
  // A row behind a wrong guess is of no use.
  void Draw(const Wanted& row, std::span<const float> logits) {
    if (row.generation != generation_) {
      generation_ = row.generation;
      right_ = true;
    } else if (right_) {
      drawn_.back().known = true;
    }
    if (!right_) return;
    drawn_.push_back({&row, generation_->Draw(sampler_, logits), false});
    const Result<Drawn>& drawn = drawn_.back().drawn;
    right_ =
        drawn && drawn->id == row.guess && !drawn->ends_form && !generation_->EndsWith(drawn->id);
  }

  static void Deliver(const Wanted& head, MatrixView<float> logits, int begin, int end) {
    head.generation->request().logits->Rows(
        Position{head.position}, {logits.row(begin), end - begin, logits.cols, logits.stride});
    head.generation->DeliveredLogits(head.position + end - begin - 1);
  }

  Sampler& sampler_;
  std::span<const Wanted> wanted_;
  std::vector<Token> drawn_;
  Generation* generation_ = nullptr;  // of the last row that was drawn from
  bool right_ = false;                // its guesses so far
};

EngineCore::EngineCore(Executor& executor, const Tokenizer& tokenizer, const KernelTable& kernels,
                       EngineCoreOptions options)
    : executor_(executor),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      scheduler_(options_.limits, options_.pools, options_.pages, options_.price),
      sampler_(executor.vocabulary(), kernels) {}

Status EngineCore::Check(const Request& request) const {
  NIBBLE_RETURN_IF_ERROR(CheckRequest(request, executor_.vocabulary(), options_.max_context));
  const int prompt = static_cast<int>(request.prompt.size());
  return scheduler_.CheckFits(std::max(prompt, prompt + MaxNew(request) - 1));
}

// Most tokens of the answer. One that may go on until the context is full ends earlier when the
// pages do; one of a given length is refused instead.
int EngineCore::MaxNew(const Request& request) const {
  const int prompt = static_cast<int>(request.prompt.size());
  const int room = options_.max_context - prompt;
  if (request.max_tokens >= 0) return std::min(request.max_tokens, room);
  return std::clamp(scheduler_.capacity() - prompt, 1, room);
}

Result<std::shared_ptr<const AcceptedRequest>> EngineCore::Accept(Request request) const {
  NIBBLE_RETURN_IF_ERROR(Check(request));
  const int max_new = MaxNew(request);
  NIBBLE_TRY(PreparedSampling prepared,
             PrepareSampling(std::exchange(request.sampling, {}), tokenizer_));
  return std::make_shared<const AcceptedRequest>(std::move(request), std::move(prepared), max_new,
                                                 tokenizer_);
}

void EngineCore::Start(RequestId id, const std::shared_ptr<const AcceptedRequest>& accepted,
                       const std::shared_ptr<EventSink>& sink, double submitted_s) {
  const int prompt = static_cast<int>(accepted->prompt->size());
  std::vector<RequestId>& choices = choices_[id];
  std::optional<RequestId> leader;  // computes the prompt for all
  std::shared_ptr<EventSink> target = sink;
  if (accepted->choices > accepted->request.n) {
    target = std::make_shared<BestOfSink>(sink, accepted->request, accepted->choices);
  }
  for (int choice = 0; choice < accepted->choices; ++choice) {
    const RequestId sequence{next_sequence_++};
    Generation generation({id, choice, submitted_s, scheduler_.counters().steps}, accepted, target,
                          tokenizer_);
    const Status added = scheduler_.Add(
        {.id = sequence,
         .priority = accepted->request.priority,
         .prompt = accepted->prompt,
         .max_positions = std::max(prompt, prompt + accepted->max_new - 1),
         .compute_from = accepted->request.logits == nullptr ? prompt + accepted->max_new
                                                             : accepted->request.logits_from,
         .leader = leader});
    if (!added) {
      generation.Finish(FinishReason::kError, options_.clock(), added.error());
      continue;
    }
    generations_.emplace(sequence, std::move(generation));
    choices.push_back(sequence);
    if (!leader) leader = sequence;
  }
  if (choices.empty()) choices_.erase(id);
}

void EngineCore::Cancel(RequestId id) {
  const auto found = choices_.find(id);
  if (found == choices_.end()) return;
  const std::vector<RequestId> sequences = found->second;  // End changes the list
  cancelled_ += static_cast<int>(sequences.size());
  for (RequestId sequence : sequences) End(sequence, FinishReason::kCancelled);
}

void EngineCore::CancelAll() {
  while (!choices_.empty()) Cancel(choices_.begin()->first);
}

void EngineCore::ProposeDrafts() {
  queries_.clear();
  for (const auto& [id, generation] : generations_) {
    const Sequence& sequence = *scheduler_.Find(id);
    // Rows that may be rolled back are nobody's to see.
    if (!sequence.running || !sequence.generating() || generation.request().logits != nullptr) {
      continue;
    }
    const int most = std::min(kMostDraft, sequence.max_positions - sequence.tokens());
    if (most <= 0) continue;
    queries_.push_back({.sequence = id,
                        .tokens = sequence.list(),
                        .most = most,
                        .choice = generation.choice(),
                        .sampling = &generation.sampling(),
                        .state = &generation.state()});
  }
  if (queries_.empty()) return;
  options_.drafter->Propose(queries_, drafts_);
  for (size_t i = 0; i < queries_.size(); ++i) {
    if (drafts_[i].tokens.empty()) continue;
    scheduler_.Propose(queries_[i].sequence, drafts_[i].tokens, drafts_[i].chances);
  }
}

bool EngineCore::RunStep() {
  if (options_.drafter != nullptr) ProposeDrafts();
  const int running = scheduler_.running();
  Step step = scheduler_.Plan(options_.limits.max_rows);
  for (RequestId sequence : step.preempted()) generations_.at(sequence).OnPreempted();
  if (step.empty()) {
    NIBBLE_CHECK(!runnable());
    return false;
  }
  BuildInput(step);
  record_.preempted = static_cast<int>(step.preempted().size());
  record_.admitted = scheduler_.running() - running + record_.preempted;
  StepLogits logits(sampler_, wanted_);
  const Status executed = executor_.Execute({tokens_, spans_, logit_rows_, copies_}, logits);
  std::vector<RequestId> served;
  std::vector<RequestId> computed;  // all known tokens are, and no further one is wanted
  for (const StepSpan& span : step.spans()) {
    served.push_back(span.sequence->id);
    if (span.ReachesEnd() && !generations_.at(span.sequence->id).WantsToken()) {
      computed.push_back(span.sequence->id);
    }
  }
  if (!executed) {
    step = {};
    for (RequestId sequence : served) End(sequence, FinishReason::kError, executed.error());
    record_.failed = true;
    EndRecord();
    return true;
  }
  AcceptDrafts(logits, step);
  step.Commit();
  for (const StepLogits::Token& token : logits.drawn()) {
    Advance(token.row->sequence, token.drawn, token.known);
  }
  for (RequestId sequence : computed) End(sequence, FinishReason::kLength);
  EndRecord();
  return true;
}

// Tells the step how many guesses of each span were right, and counts them.
void EngineCore::AcceptDrafts(const StepLogits& logits, Step& step) {
  size_t at = 0;  // in logits.drawn(), whose sequences come in the order of the spans
  for (size_t i = 0; i < step.spans().size(); ++i) {
    const StepSpan& span = step.spans()[i];
    const RequestId id = span.sequence->id;
    int right = -1;
    for (; at < logits.drawn().size() && logits.drawn()[at].row->sequence == id; ++at) ++right;
    if (span.drafted == 0) continue;
    step.Accept(i, right);
    generations_.at(id).OnDraft(span.drafted, right);
    ++totals_.drafts;
    totals_.drafted += span.drafted;
    for (int k = 0; k < right; ++k) ++totals_.accepted_at[static_cast<size_t>(k)];
    record_.drafted += span.drafted;
    record_.accepted += right;
  }
}

void EngineCore::BuildInput(const Step& step) {
  tokens_.clear();
  spans_.clear();
  logit_rows_.clear();
  wanted_.clear();
  copies_.clear();
  const double now = options_.clock();
  record_.number = scheduler_.counters().steps;
  record_.begin_s = now;
  record_.rows = step.rows();
  record_.sampled = 0;
  record_.drafted = 0;
  record_.accepted = 0;
  record_.weight_bytes = static_cast<double>(executor_.WeightBytesPerStep());
  record_.kv_bytes = 0;
  record_.price_s = scheduler_.price().Seconds(step.load());
  record_.failed = false;
  record_.spans.clear();
  for (size_t i = 0; i < step.spans().size(); ++i) {
    const StepSpan& span = step.spans()[i];
    copies_.insert(copies_.end(), step.copies(i).begin(), step.copies(i).end());
    Generation& generation = generations_.at(span.sequence->id);
    const int row = static_cast<int>(tokens_.size());
    spans_.push_back({span.first, span.rows, &span.sequence->pages});
    span.sequence->AppendTokens(span.first, span.rows, tokens_);
    const double kv_bytes = executor_.KvBytesRead(span.first + span.rows - 1);
    generation.OnStep({.now = now,
                       .weight_bytes = record_.weight_bytes,
                       .kv_bytes = kv_bytes,
                       .taken = span.sequence->taken});
    record_.kv_bytes += kv_bytes;
    record_.spans.push_back({.request = generation.id(),
                             .choice = generation.choice(),
                             .first = span.first,
                             .rows = span.rows,
                             .drafted = span.drafted,
                             .answer = span.sequence->generating()});
    WantLogits(span, generation, row);
  }
}

void EngineCore::EndRecord() {
  record_.seconds = options_.clock() - record_.begin_s;
  record_.cancelled = std::exchange(cancelled_, 0);
  record_.running = scheduler_.running();
  record_.waiting = scheduler_.waiting();
  totals_.sampled += record_.sampled;
  totals_.seconds += record_.seconds;
  totals_.weight_bytes += record_.weight_bytes;
  totals_.kv_bytes += record_.kv_bytes;
  if (options_.observer != nullptr) options_.observer->OnStep(record_);
}

void EngineCore::WantLogits(const StepSpan& span, Generation& generation, int row) {
  const bool streams = generation.request().logits != nullptr;
  const bool samples = span.ReachesEnd() && generation.WantsToken();
  if (span.drafted > 0) return WantDrafted(span, generation, row);
  const int end = span.first + span.rows;
  const int first =
      streams ? std::max(span.first, generation.next_logit_position()) : (samples ? end - 1 : end);
  for (int position = first; position < end; ++position) {
    logit_rows_.push_back(row + position - span.first);
    wanted_.push_back({.sequence = span.sequence->id,
                       .generation = &generation,
                       .position = position,
                       .deliver = streams,
                       .sample = samples && position == end - 1});
  }
  // Its logits were delivered before a preemption, or lie before logits_from.
  if (samples && first > end - 1) {
    logit_rows_.push_back(row + span.rows - 1);
    wanted_.push_back({span.sequence->id, &generation, end - 1, false, true});
  }
}

// The last known token's row and those of the guesses behind it.
void EngineCore::WantDrafted(const StepSpan& span, Generation& generation, int row) {
  const int known = span.rows - span.drafted;
  for (int i = known - 1; i < span.rows; ++i) {
    logit_rows_.push_back(row + i);
    wanted_.push_back({.sequence = span.sequence->id,
                       .generation = &generation,
                       .position = span.first + i,
                       .deliver = false,
                       .sample = true,
                       .guess = i + 1 < span.rows
                                    ? span.sequence->draft[static_cast<size_t>(i + 1 - known)]
                                    : kNoToken});
  }
}

// known: the token joined the sequence when the step committed.
void EngineCore::Advance(RequestId sequence, const Result<Drawn>& drawn, bool known) {
  const auto found = generations_.find(sequence);
  if (found == generations_.end()) return;  // the answer has ended among its guesses
  Generation& generation = found->second;
  ++record_.sampled;
  if (!drawn) {
    Error error = drawn.error();
    error.message = fmt::format("no token can be drawn at position {}: {}",
                                generation.state().position(), error.message);
    End(sequence, FinishReason::kError, std::move(error));
    return;
  }
  if (const auto reason = generation.Accept(*drawn, options_.clock())) {
    End(sequence, *reason);
  } else if (!known) {
    scheduler_.Append(sequence, drawn->id);
  }
}

void EngineCore::End(RequestId sequence, FinishReason reason, std::optional<Error> error) {
  const auto found = generations_.find(sequence);
  scheduler_.Remove(sequence);
  if (options_.drafter != nullptr) options_.drafter->Forget(sequence);
  const auto choices = choices_.find(found->second.id());
  std::erase(choices->second, sequence);
  if (choices->second.empty()) choices_.erase(choices);
  // The last event is sent when nothing of the request is left.
  Generation generation = std::move(found->second);
  generations_.erase(found);
  generation.EndedAt(scheduler_.counters().steps);
  generation.Finish(reason, options_.clock(), std::move(error));
}

}  // namespace nibble
