#include "advise/replay.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "platform/clock.h"

namespace nibble {
namespace {

// What all sinks of a replay tell its thread.
class Ended {
 public:
  void Add() {
    {
      const std::scoped_lock lock(mutex_);
      ++count_;
    }
    changed_.notify_one();
  }
  int count() const {
    const std::scoped_lock lock(mutex_);
    return count_;
  }
  // Until more than `seen` have ended, or the time has passed.
  void Wait(int seen, double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(std::max(seconds, 0.0)),
                      [&] { return count_ > seen; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// Writes down when the tokens of one request came. Read when it has ended.
class TimingSink : public EventSink {
 public:
  TimingSink(std::shared_ptr<Ended> ended, int tokens) : ended_(std::move(ended)) {
    times.token_s.reserve(static_cast<size_t>(tokens));
  }
  void OnToken(RequestId /*id*/, const TokenEvent& /*event*/) override {
    times.token_s.push_back(MonotonicSeconds());
  }
  void OnFinish(RequestId /*id*/, const FinishEvent& event) override {
    times.finished = event.reason == FinishReason::kLength;
    times.prompt_tokens = event.usage.prompt_tokens;
    times.cached_tokens = event.usage.cached_prompt_tokens;
    ended_->Add();
  }
  RequestTimes times;

 private:
  std::shared_ptr<Ended> ended_;
};

class Replayer {
 public:
  Replayer(Engine& engine, const Trace& trace, const ReplayOptions& options)
      : engine_(engine), trace_(trace), options_(options), sinks_(trace.requests.size()) {}

  Status Run() {
    started_ = MonotonicSeconds();
    const int total = static_cast<int>(trace_.requests.size());
    int next = 0;
    double shown = started_;
    while (next < total || ended_->count() < submitted_) {
      const int seen = ended_->count();
      const double now = MonotonicSeconds();
      while (next < total && MaySubmit(next, now)) {
        Submit(static_cast<size_t>(next));
        if (++next == total) engine_.CloseArrivals();
      }
      if (now - shown > 0.2) {
        shown = now;
        if (options_.progress && !options_.progress(ended_->count() + refused_, total)) {
          return Fail(ErrorKind::kCancelled, "stopped after {} of {} requests", ended_->count(),
                      total);
        }
      }
      double wait = 0.2;
      if (next < total && options_.concurrency == 0) wait = std::min(wait, Due(next) - now);
      ended_->Wait(seen, wait);
    }
    return {};
  }

  ReplayResult Collect() {
    ReplayResult result;
    for (size_t i = 0; i < sinks_.size(); ++i) {
      RequestTimes times;
      times.rejected = sinks_[i] == nullptr;
      if (sinks_[i]) times = std::move(sinks_[i]->times);
      result.requests.push_back(std::move(times));
      result.requests.back().arrival_s = arrivals_[i];
    }
    result.report = MakeServingReport(result.requests);
    EngineStats stats = engine_.Stats();
    while (stats.running + stats.waiting > 0) {  // counted behind the step whose events have come
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stats = engine_.Stats();
    }
    result.report.preemptions = stats.preemptions;
    result.report.steps = stats.steps;
    result.report.prefix_hit_tokens = stats.cached_tokens;
    result.report.kv_peak_pages = stats.kv_pages_peak;
    result.report.wall_s = MonotonicSeconds() - started_;
    result.report.source = "measured";
    return result;
  }

 private:
  double Due(int index) const {
    return started_ + trace_.requests[static_cast<size_t>(index)].arrival_s;
  }

  bool MaySubmit(int index, double now) const {
    if (options_.concurrency == 0) return Due(index) <= now;
    return submitted_ - ended_->count() < options_.concurrency;
  }

  void Submit(size_t index) {
    const TraceRequest& asked = trace_.requests[index];
    // By time of arrival a request counts from when it should have come, however late it was sent.
    arrivals_.push_back(options_.concurrency == 0 ? Due(static_cast<int>(index))
                                                  : MonotonicSeconds());
    const int context = engine_.plan().max_context;
    const bool fits = asked.input_tokens > 0 && asked.output_tokens > 0 &&
                      asked.input_tokens + asked.output_tokens <= context;
    if (!fits) {
      ++refused_;
      return;
    }
    Request request;
    request.prompt = TracePrompt(asked, index, engine_.config().vocabulary, options_.seed);
    request.max_tokens = asked.output_tokens;
    request.ignore_end = true;
    auto sink = std::make_shared<TimingSink>(ended_, asked.output_tokens);
    const auto id = engine_.Submit(std::move(request), sink);
    if (!id) {
      ++refused_;
      return;
    }
    ++submitted_;
    sinks_[index] = std::move(sink);
  }

  Engine& engine_;
  const Trace& trace_;
  const ReplayOptions& options_;
  std::shared_ptr<Ended> ended_ = std::make_shared<Ended>();
  std::vector<std::shared_ptr<TimingSink>> sinks_;  // null: refused
  std::vector<double> arrivals_;                    // of what has been submitted or refused
  int submitted_ = 0;
  int refused_ = 0;
  double started_ = 0;
};

}  // namespace

Result<ReplayResult> Replay(Engine& engine, const Trace& trace, const ReplayOptions& options) {
  Replayer replayer(engine, trace, options);
  NIBBLE_RETURN_IF_ERROR(replayer.Run());
  return replayer.Collect();
}

}  // namespace nibble
