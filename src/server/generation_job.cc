#include "server/generation_job.h"

#include <algorithm>
#include <utility>

#include "platform/clock.h"

namespace nibble::server {
namespace {

// The engine's end of a prompt.
class JobSink : public EventSink {
 public:
  JobSink(std::shared_ptr<GenerationJob> job, EventHub* hub, int prompt)
      : job_(std::move(job)), hub_(hub), prompt_(prompt) {}
  void OnToken(RequestId /*id*/, const TokenEvent& event) override { Push(event); }
  void OnFinish(RequestId /*id*/, const FinishEvent& event) override { Push(event); }

 private:
  void Push(EventHub::Event event) {
    job_->ReleaseQueued(prompt_);
    hub_->Push(job_, prompt_, std::move(event));
  }

  std::shared_ptr<GenerationJob> job_;
  EventHub* hub_;
  int prompt_;
};

std::string JoinNames(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    out += (i > 0 ? ", " : "") + QuoteJson(names[i].substr(0, 40));
  }
  if (names.size() > kMost) out += fmt::format(" and {} more", names.size() - kMost);
  return out;
}

}  // namespace

void EventHub::Push(std::shared_ptr<GenerationJob> job, int prompt, Event event) {
  const double now = MonotonicSeconds();
  bool first = false;
  {
    const std::scoped_lock lock(mutex_);
    first = entries_.empty();
    entries_.push_back({std::move(job), prompt, std::move(event), now});
  }
  if (first) post_([this] { Drain(); });
}

void EventHub::Drain() {
  std::vector<Entry> entries;
  {
    const std::scoped_lock lock(mutex_);
    entries.swap(entries_);
  }
  for (Entry& entry : entries) {
    entry.job->OnEvent(entry.prompt, std::move(entry.event), entry.time_s);
  }
}

GenerationJob::GenerationJob(const JobHost& host, OpenAiRequest request, Facts facts,
                             std::shared_ptr<Responder> responder)
    : host_(host),
      request_(std::move(request)),
      facts_(std::move(facts)),
      responder_(std::move(responder)),
      last_write_s_(MonotonicSeconds()) {
  const size_t count = request_.more_prompts.size() + 1;
  const auto n = static_cast<size_t>(std::max(request_.request.n, 1));
  for (size_t i = 0; i < count; ++i) {
    prompts_.push_back(std::make_unique<Prompt>());
    prompts_.back()->answers.answers.resize(n);
    prompts_.back()->open = static_cast<int>(n);
  }
  choices_.resize(count * n);
  open_ = static_cast<int>(choices_.size());
  if (request_.stream) chunks_.emplace(request_, facts_.name, host_.engine->tokenizer());
}

ApiResult<void> GenerationJob::SubmitOne(int prompt, std::vector<TokenId> ids) {
  Prompt& own = PromptAt(prompt);
  own.tokens = std::ssize(ids);
  if (host_.trace != nullptr) own.traced.blocks = host_.trace->BlockHashes(ids);
  Request request = request_.request;
  if (request_.echo) {
    own.answers.echo = host_.engine->tokenizer().Decode(ids, {.skip_special = true});
    if (request.logprobs >= 0) {
      own.logprobs = std::make_unique<PromptLogprobs>(ids, request.logprobs);
      request.logits = own.logprobs.get();
    }
  }
  request.prompt = std::move(ids);
  const int64_t before = host_.queued_tokens->fetch_add(own.tokens);
  own.queued = true;
  if (before > 0 && before + own.tokens > host_.max_queued_tokens) {
    ReleaseQueued(prompt);
    return std::unexpected(
        ApiError{.status = 429,
                 .message = fmt::format("{} prompt tokens wait, with these {} more than the {} "
                                        "that may; try again later",
                                        before, own.tokens, host_.max_queued_tokens),
                 .code = "queue_full"});
  }
  const auto id = host_.engine->Submit(
      std::move(request), std::make_shared<JobSink>(shared_from_this(), host_.hub, prompt));
  if (id) {
    own.id = *id;
    return {};
  }
  ReleaseQueued(prompt);
  ApiError error = ApiErrorOf(id.error());
  if (error.status == 400 && error.param == "prompt" &&
      request_.endpoint == Endpoint::kChatCompletions) {
    error.param = "messages";
  }
  if (id.error().kind == ErrorKind::kNoRoom) {
    error.status = 429;
    error.code = "queue_full";
  }
  return std::unexpected(std::move(error));
}

ApiResult<void> GenerationJob::Submit() {
  std::vector<std::vector<TokenId>> prompts;
  prompts.push_back(std::move(request_.request.prompt));
  for (auto& more : request_.more_prompts) prompts.push_back(std::move(more));
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto submitted = SubmitOne(static_cast<int>(i), std::move(prompts[i]));
    if (submitted) continue;
    for (const auto& prompt : prompts_) {
      if (prompt->id) host_.engine->Cancel(*prompt->id);
    }
    return submitted;
  }
  return {};
}

void GenerationJob::ReleaseQueued(int prompt) {
  Prompt& own = PromptAt(prompt);
  if (own.queued.exchange(false)) host_.queued_tokens->fetch_sub(own.tokens);
}

HttpResponse GenerationJob::Head() const {
  HttpResponse head;
  head.headers.emplace_back("X-Request-Id", facts_.name.id);
  head.headers.emplace_back("X-Nibble-Seed", std::to_string(request_.request.sampling.seed));
  if (!request_.ignored.empty()) {
    head.headers.emplace_back("X-Nibble-Warning",
                              "ignored, as nobody here knows them: " + JoinNames(request_.ignored));
  }
  if (request_.dropped_messages > 0) {
    head.headers.emplace_back("X-Nibble-Dropped-Messages",
                              std::to_string(request_.dropped_messages));
  }
  host_.decorate(head);
  return head;
}

void GenerationJob::Begin() {
  begun_ = true;
  const auto n = static_cast<double>(request_.request.n);
  host_.metrics->params_n.Add(n);
  if (request_.request.max_tokens >= 0) {
    host_.metrics->params_max_tokens.Add(request_.request.max_tokens);
  }
  ++host_.metrics->by_key[facts_.key.empty() ? "none" : facts_.key];
  if (responder_->gone()) {
    Cancel();
  } else {
    responder_->OnGone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Cancel();
    });
  }
  if (chunks_ && !done_) {
    HttpResponse head = Head();
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    responder_->Start(std::move(head));
  }
  for (Early& early : std::exchange(early_, {})) {
    OnEvent(early.prompt, std::move(early.event), early.time_s);
  }
}

void GenerationJob::OnEvent(int prompt, EventHub::Event event, double time_s) {
  if (!begun_) {
    early_.push_back({prompt, std::move(event), time_s});
    return;
  }
  if (const auto* token = std::get_if<TokenEvent>(&event)) {
    OnToken(prompt, *token, time_s);
  } else {
    OnFinish(prompt, std::get<FinishEvent>(event), time_s);
  }
}

void GenerationJob::OpenChoice(int prompt, int choice) {
  Choice& own = choices_[static_cast<size_t>(IndexOf(prompt, choice))];
  if (own.opened) return;
  own.opened = true;
  Prompt& asked = PromptAt(prompt);
  if (asked.logprobs && asked.answers.prompt.empty()) {
    asked.answers.prompt = asked.logprobs->tokens();
  }
  if (chunks_) Write(chunks_->First(IndexOf(prompt, choice), asked.answers));
}

void GenerationJob::OnToken(int prompt, const TokenEvent& event, double time_s) {
  Choice& choice = choices_[static_cast<size_t>(IndexOf(prompt, event.choice))];
  if (!choice.last_token_s) {
    host_.metrics->time_to_first_token.Add(time_s - facts_.received_s);
    host_.metrics->recent_first_token.Add(time_s, time_s - facts_.received_s);
    if (!first_token_s_) first_token_s_ = time_s;
    TracedRequest& traced = PromptAt(prompt).traced;
    if (traced.first_token_s < 0) traced.first_token_s = time_s;
  } else {
    host_.metrics->inter_token_latency.Add(time_s - *choice.last_token_s);
    host_.metrics->recent_inter_token.Add(time_s, time_s - *choice.last_token_s);
  }
  choice.last_token_s = time_s;
  if (done_) return;
  OpenChoice(prompt, event.choice);
  if (chunks_) return Write(chunks_->Token(IndexOf(prompt, event.choice), event));
  Answer& answer = PromptAt(prompt).answers.answers[static_cast<size_t>(event.choice)];
  answer.text += event.text;
  if (request_.request.logprobs >= 0) answer.tokens.push_back(event);
}

void GenerationJob::OnFinish(int prompt, const FinishEvent& event, double time_s) {
  const bool aborted = event.reason == FinishReason::kCancelled;
  const std::string reason(aborted ? "abort" : FinishReasonName(event.reason));
  if (!done_) reason_ = reason;
  host_.metrics->AddFinished(event.choice, reason, event.usage, time_s - facts_.received_s);
  counts_.Add(event.choice, event.usage);
  --open_;
  Trace(prompt, event, time_s);
  if (done_) return LeaveIfEnded();
  if (event.error) return Fail(ApiErrorOf(*event.error));
  if (aborted) return Fail({.status = 503, .message = "the server is stopping"});
  OpenChoice(prompt, event.choice);
  Answer& answer = PromptAt(prompt).answers.answers[static_cast<size_t>(event.choice)];
  answer.text += event.text;
  answer.finish = event;
  if (chunks_) Write(chunks_->Finish(IndexOf(prompt, event.choice), event));
  if (open_ > 0 || done_) return;
  if (!chunks_) return SendWhole();
  Write(chunks_->End(counts_));
  if (done_) return;  // dropped: it reads nothing
  responder_->End();
  Done(200, time_s);
}

void GenerationJob::Trace(int prompt, const FinishEvent& event, double time_s) {
  Prompt& own = PromptAt(prompt);
  TracedRequest& traced = own.traced;
  traced.longest = std::max(traced.longest, event.usage.generated_tokens);
  traced.generated += event.usage.generated_tokens;
  traced.lengths.resize(static_cast<size_t>(std::max(request_.request.n, 1)));
  traced.lengths[static_cast<size_t>(event.choice)] = event.usage.generated_tokens;
  traced.ended_step = std::max(traced.ended_step, event.usage.ended_step);
  if (event.choice == 0) traced.usage = event.usage;
  if (--own.open > 0) return;
  host_.metrics->most_generation_tokens.Add(traced.longest);
  if (host_.trace == nullptr) return;
  traced.received_s = facts_.received_s;
  traced.ended_s = time_s;
  traced.choices = request_.request.n;
  traced.max_tokens = request_.request.max_tokens;
  traced.priority = request_.request.priority;
  traced.reason =
      event.reason == FinishReason::kCancelled ? "abort" : FinishReasonName(event.reason);
  host_.trace->Write(traced);
}

void GenerationJob::Write(const std::string& chunk) {
  if (chunk.empty() || done_) return;
  last_write_s_ = MonotonicSeconds();
  responder_->Write(chunk);
}

void GenerationJob::SendWhole() {
  HttpResponse response = Head();
  std::vector<PromptAnswers> prompts;
  for (const auto& prompt : prompts_) prompts.push_back(std::move(prompt->answers));
  response.body = DumpJson(
      OpenAiResponse(request_, facts_.name, host_.engine->tokenizer(), std::move(prompts)));
  responder_->Send(std::move(response));
  Done(200, MonotonicSeconds());
}

void GenerationJob::Fail(const ApiError& error) {
  if (chunks_) {
    responder_->Write(ErrorChunk(error));
    responder_->End();
  } else {
    HttpResponse response{.status = error.status, .body = DumpJson(ErrorBody(error))};
    host_.decorate(response);
    responder_->Send(std::move(response));
  }
  Done(error.status, MonotonicSeconds());
  for (const auto& prompt : prompts_) {
    if (prompt->id) host_.engine->Cancel(*prompt->id);
  }
}

void GenerationJob::KeepAlive(double now_s, double silence_s) {
  if (!chunks_ || done_ || !begun_ || now_s - last_write_s_ < silence_s) return;
  Write(": the answer is being computed\n\n");
}

void GenerationJob::Cancel() {
  if (done_) return;
  for (const auto& prompt : prompts_) {
    if (prompt->id) host_.engine->Cancel(*prompt->id);
  }
  if (!responder_->gone()) return;  // told with the events to come
  reason_ = "gone";
  Done(499, MonotonicSeconds());
}

void GenerationJob::Done(int status, double now_s) {
  done_ = true;
  status_ = status;
  ended_s_ = now_s;
  LeaveIfEnded();
}

// The line of a request has the tokens of all of its choices, also of those that were still running
// when its client left.
void GenerationJob::LeaveIfEnded() {
  if (open_ > 0) return;
  Json line = {{"id", facts_.name.id}, {"path", facts_.path}, {"status", status_}};
  if (!facts_.key.empty()) line["key"] = facts_.key;
  line["stream"] = request_.stream;
  line["prompt_tokens"] = counts_.prompt;
  line["cached_tokens"] = counts_.cached;
  line["generated_tokens"] = counts_.generated;
  if (first_token_s_) line["ttft_s"] = *first_token_s_ - facts_.received_s;
  line["total_s"] = ended_s_ - facts_.received_s;
  line["finish_reason"] = reason_;
  if (host_.log_prompts) line["prompt"] = request_.prompt_text;
  host_.log->Write("request", line);
  host_.on_done(this);
}

}  // namespace nibble::server
