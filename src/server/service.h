#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cost/plan.h"
#include "engine/engine.h"
#include "server/access.h"
#include "server/constraints.h"
#include "server/event_log.h"
#include "server/generation_job.h"
#include "server/http_server.h"
#include "server/load_meter.h"
#include "server/metrics.h"
#include "server/request_trace.h"
#include "server/step_meter.h"
#include "server/workers.h"
#include "tokenizer/chat_template.h"

namespace nibble {
class ModelFile;
}

namespace nibble::server {

struct ServiceOptions {
  std::vector<std::string> names;  // of the model, the first is its own; "*": any is taken
  AccessKeys keys;                 // none: everybody may ask
  OpenAiLimits limits;
  std::optional<uint64_t> seed;  // for requests that give none; none: random
  std::string cors_origin;       // empty: no CORS
  std::string metrics_prefix = "nibble";
  int64_t max_queued_tokens = 1 << 20;
  double comment_s = 15;  // a stream is silent so long at most
  double drain_s = 30;    // after the first signal
  EventLog::Form log = EventLog::Form::kText;
  bool log_prompts = false;
  const ModelFile* file = nullptr;  // of the model, for /learn; outlives the service
  std::filesystem::path model_dir;  // whose cards /cards tells
  int workers = 2;
  PlanSources plan = TableSources();  // what /plan may name
  RequestTrace* trace = nullptr;      // outlives the service, as all pointers here
  const StepMeter* steps = nullptr;   // what the engine's steps are told to
};

// The OpenAI interface over an engine: what is asked at which path, who may, and what is answered
// while the model loads and while the server drains.
class Service : public HttpHandler {
 public:
  explicit Service(ServiceOptions options);
  ~Service() override;

  // Before anything is asked. The server outlives all use of this.
  void Attach(HttpServer& server);
  // What loading is going to take, for its progress.
  void SetPlan(const EnginePlan& plan);
  // Bytes per second that the machine reads; 0: not known. Any thread.
  void SetReadBandwidth(double bandwidth);
  // The model is there. Both outlive the server's Run. Any thread.
  void SetEngine(Engine& engine, const ChatTemplate* chat);
  // Behind the server's Run, in this order, while the server is still there: nothing more is asked
  // of the engine; what its end told is dropped.
  void StopWorkers() { workers_.reset(); }
  void DropJobs();

  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override;
  void Handle(HttpRequest request, std::shared_ptr<Responder> responder) override;
  HttpResponse Refusal(const ApiError& error) override;
  void Tick() override;
  void OnSignal(int count) override;

 private:
  struct Asked;  // a request on its way to a worker

  HttpResponse Reply(const Json& body);
  HttpResponse Get(const HttpRequest& request);
  HttpResponse Health();
  HttpResponse Status();
  HttpResponse MetricsPage();
  HttpResponse Models(const std::string& path);
  HttpResponse Options(const HttpRequest& request);
  Json ModelJson(const std::string& name) const;
  void Decorate(HttpResponse& response);
  double LoadedFraction() const;
  std::optional<std::string> KeyOf(const HttpRequest& request) const;
  std::optional<ApiError> NotReady() const;

  // On a worker.
  ApiResult<Json> Transform(const Asked& asked) const;
  ApiResult<std::shared_ptr<GenerationJob>> MakeJob(Asked& asked) const;
  // False: not yet, for a constraint would have to be compiled.
  bool Answer(Asked& asked, bool may_compile);

  // For GET: on a worker, what takes longer than a moment.
  void AnswerLater(const std::string& path, std::shared_ptr<Responder> responder);
  ApiResult<Json> Learn(const std::string& path) const;
  static std::shared_ptr<Responder> Handed(HttpServer* server,
                                           std::shared_ptr<Responder> responder);

  void Begin(const std::shared_ptr<GenerationJob>& job);
  void SendError(Responder& responder, ApiError error, const std::string& path);
  void Sample(double now);
  uint64_t NextRandom();

  ServiceOptions options_;
  EventLog log_;
  HttpServer* server_ = nullptr;
  Engine* engine_ = nullptr;
  const ChatTemplate* chat_ = nullptr;
  EnginePlan plan_;
  size_t resident_at_start_ = 0;
  double started_s_;
  int64_t started_unix_;
  Metrics metrics_;
  LoadMeter meter_;
  double sampled_s_ = 0;
  EngineStats sampled_stats_;
  double read_bandwidth_ = 0;
  std::atomic<int64_t> queued_tokens_ = 0;
  std::unique_ptr<EventHub> hub_;
  std::unique_ptr<Constraints> constraints_;
  std::set<std::shared_ptr<GenerationJob>> jobs_;
  int asked_ = 0;  // on their way through the workers
  uint64_t random_;
  bool draining_ = false;
  double drain_until_s_ = 0;
  bool cancelled_ = false;
  std::unique_ptr<Workers> workers_;  // last: they use all of the above
};

}  // namespace nibble::server
