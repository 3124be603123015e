#include "advise/interference.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "cost/trace.h"
#include "platform/clock.h"

namespace nibble {
namespace {

// Tokens of an answer's own prompt.
constexpr int kAnswerPrompt = 16;

class Times : public EventSink {
 public:
  void OnToken(RequestId /*id*/, const TokenEvent& /*event*/) override {
    const std::scoped_lock lock(mutex_);
    tokens_.push_back(MonotonicSeconds());
  }
  void OnFinish(RequestId /*id*/, const FinishEvent& /*event*/) override {
    const std::scoped_lock lock(mutex_);
    finished_ = true;
  }
  std::vector<double> tokens() const {
    const std::scoped_lock lock(mutex_);
    return tokens_;
  }
  size_t count() const {
    const std::scoped_lock lock(mutex_);
    return tokens_.size();
  }
  bool finished() const {
    const std::scoped_lock lock(mutex_);
    return finished_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<double> tokens_;
  bool finished_ = false;
};

class Measurement {
 public:
  Measurement(Engine& engine, const InterferenceOptions& options)
      : engine_(engine), options_(options) {}

  Result<Interference> Run() {
    Interference out{.answers = options_.answers, .prompt = options_.prompt};
    NIBBLE_TRY(out.prompt_alone_ttft_s, Prompt());
    std::vector<std::shared_ptr<Times>> answers;
    std::vector<RequestId> ids;
    for (int i = 0; i < options_.answers; ++i) {
      answers.push_back(std::make_shared<Times>());
      NIBBLE_TRY(const RequestId id, Submit(kAnswerPrompt, -1, answers.back()));
      ids.push_back(id);
    }
    NIBBLE_RETURN_IF_ERROR(Generate(answers));
    const double begin = MonotonicSeconds();
    NIBBLE_TRY(out.prompt_ttft_s, Prompt());
    const double end = begin + out.prompt_ttft_s;
    // Alone again: an answer's own context has grown meanwhile, and its steps with it.
    NIBBLE_RETURN_IF_ERROR(Generate(answers));
    std::vector<double> alone, during;
    for (const auto& answer : answers) {
      const std::vector<double> tokens = answer->tokens();
      for (size_t i = 1; i < tokens.size(); ++i) {
        const double gap = tokens[i] - tokens[i - 1];
        if (tokens[i] <= begin || tokens[i - 1] > end) alone.push_back(gap);
        if (tokens[i] > begin && tokens[i] <= end) during.push_back(gap);
      }
    }
    for (const auto& answer : answers) {
      if (!answer->finished()) continue;
      return BadInput("an answer filled its context of {} tokens before the prompt was computed",
                      engine_.plan().max_context);
    }
    for (const RequestId id : ids) engine_.Cancel(id);
    for (const auto& answer : answers) {
      NIBBLE_RETURN_IF_ERROR(Until([&] { return answer->finished(); }));
    }
    out.tokens_during = static_cast<int>(during.size()) / options_.answers;
    out.alone_s = Summarise(std::move(alone));
    out.during_s = Summarise(std::move(during));
    return out;
  }

 private:
  Result<RequestId> Submit(int prompt, int most, const std::shared_ptr<Times>& sink) {
    Request request;
    const TraceRequest asked{.input_tokens = prompt};
    request.prompt = TracePrompt(asked, requests_++, engine_.config().vocabulary, options_.seed);
    request.max_tokens = most;
    request.ignore_end = true;
    return engine_.Submit(std::move(request), sink);
  }

  Status Until(const std::function<bool()>& done) const {
    while (!done()) {
      if (options_.keep_going && !options_.keep_going()) {
        return Fail(ErrorKind::kCancelled, "stopped");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {};
  }

  // Waits until every answer has alone_tokens and one more, or can have no more.
  Status Generate(const std::vector<std::shared_ptr<Times>>& answers) const {
    for (const auto& answer : answers) {
      const size_t wanted = answer->count() + static_cast<size_t>(options_.alone_tokens + 1);
      NIBBLE_RETURN_IF_ERROR(
          Until([&] { return answer->count() >= wanted || answer->finished(); }));
      if (answer->finished()) break;  // Run says so
    }
    return {};
  }

  // Seconds to the first token of a prompt.
  Result<double> Prompt() {
    const auto sink = std::make_shared<Times>();
    const double begin = MonotonicSeconds();
    NIBBLE_TRY(const RequestId id, Submit(options_.prompt, 1, sink));
    const Status done = Until([&] { return sink->finished(); });
    if (!done) {
      engine_.Cancel(id);
      return std::unexpected(done.error());
    }
    return sink->tokens().front() - begin;
  }

  Engine& engine_;
  const InterferenceOptions& options_;
  size_t requests_ = 0;
};

}  // namespace

Result<Interference> MeasureInterference(Engine& engine, const InterferenceOptions& options) {
  return Measurement(engine, options).Run();
}

}  // namespace nibble
