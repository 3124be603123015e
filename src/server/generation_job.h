#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/prompt_logprobs.h"
#include "server/event_log.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/openai_response.h"
#include "server/request_trace.h"

namespace nibble::server {

class GenerationJob;

// Carries events from the engine's thread to the I/O thread. Neither waits for the other: the
// engine's thread adds to a list, and the first to add wakes the I/O thread.
class EventHub {
 public:
  using Event = std::variant<TokenEvent, FinishEvent>;
  using PostCall = std::function<void(std::function<void()>)>;
  explicit EventHub(PostCall post) : post_(std::move(post)) {}

  void Push(std::shared_ptr<GenerationJob> job, int prompt, Event event);

 private:
  struct Entry {
    std::shared_ptr<GenerationJob> job;
    int prompt = 0;
    Event event;
    double time_s = 0;
  };
  void Drain();

  PostCall post_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

// What all generations of a server share; outlives them.
struct JobHost {
  Engine* engine = nullptr;
  EventHub* hub = nullptr;
  Metrics* metrics = nullptr;
  const EventLog* log = nullptr;
  std::atomic<int64_t>* queued_tokens = nullptr;
  int64_t max_queued_tokens = 0;
  bool log_prompts = false;
  RequestTrace* trace = nullptr;
  std::function<void(HttpResponse&)> decorate;        // counts and adds headers
  std::function<void(const GenerationJob*)> on_done;  // it is answered, or its client is gone
};

// A request of /v1/chat/completions or /v1/completions from its body to the last byte of its
// answer. One for each; all but Submit is for the I/O thread.
class GenerationJob : public std::enable_shared_from_this<GenerationJob> {
 public:
  struct Facts {
    ResponseName name;
    std::string path;
    std::string key;  // its name
    double received_s = 0;
  };
  GenerationJob(const JobHost& host, OpenAiRequest request, Facts facts,
                std::shared_ptr<Responder> responder);

  // Hands every prompt to the engine, or none. Any thread, once. Errors: 400, 429, 503.
  ApiResult<void> Submit();
  // Its events may be answered from now on.
  void Begin();
  void OnEvent(int prompt, EventHub::Event event, double time_s);
  // A comment on a stream that has been silent for so long.
  void KeepAlive(double now_s, double silence_s);
  // The client is gone, or the server stops.
  void Cancel();
  void ReleaseQueued(int prompt);  // any thread

 private:
  struct Choice {
    std::optional<double> last_token_s;
    bool opened = false;  // its first chunk is written
  };
  struct Prompt {
    std::optional<RequestId> id;
    int64_t tokens = 0;
    std::atomic<bool> queued = false;
    std::unique_ptr<PromptLogprobs> logprobs;
    PromptAnswers answers;
    int open = 0;          // choices that have not ended
    TracedRequest traced;  // for --trace-log
  };
  struct Early {
    int prompt;
    EventHub::Event event;
    double time_s;
  };

  ApiResult<void> SubmitOne(int prompt, std::vector<TokenId> ids);
  void OnToken(int prompt, const TokenEvent& event, double time_s);
  void OnFinish(int prompt, const FinishEvent& event, double time_s);
  void Trace(int prompt, const FinishEvent& event, double time_s);
  void OpenChoice(int prompt, int choice);
  void Write(const std::string& chunk);
  void Fail(const ApiError& error);
  void SendWhole();
  void Done(int status, double now_s);
  void LeaveIfEnded();  // done, and so are all choices: logs it, and lets it go
  HttpResponse Head() const;
  int IndexOf(int prompt, int choice) const { return prompt * request_.request.n + choice; }
  Prompt& PromptAt(int prompt) { return *prompts_[static_cast<size_t>(prompt)]; }

  JobHost host_;
  OpenAiRequest request_;
  Facts facts_;
  std::shared_ptr<Responder> responder_;
  std::vector<std::unique_ptr<Prompt>> prompts_;
  std::vector<Choice> choices_;
  std::optional<ChunkWriter> chunks_;  // of a stream
  TokenCounts counts_;
  std::vector<Early> early_;
  bool begun_ = false;
  bool done_ = false;  // answered, or its client is gone
  int status_ = 0;
  double ended_s_ = 0;
  int open_ = 0;  // choices that have not ended
  std::string reason_;
  std::optional<double> first_token_s_;
  double last_write_s_ = 0;
};

}  // namespace nibble::server
