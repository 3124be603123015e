#include "server/service.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/split_mix.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/random_bits.h"
#include "server/cards.h"
#include "server/learn.h"
#include "server/page.h"
#include "server/plan_route.h"
#include "server/text_routes.h"

namespace nibble {

extern const std::string_view kOpenApi;  // openapi.json

}  // namespace nibble

namespace nibble::server {
namespace {

struct Route {
  std::string_view path;
  bool post = false;
};
constexpr std::array kRoutes = {
    Route{"/health", false},        Route{"/status", false},
    Route{"/metrics", false},       Route{"/v1/models", false},
    Route{"/v1/completions", true}, Route{"/v1/chat/completions", true},
    Route{"/plan", false},          Route{"/openapi.json", false},
    Route{"/tokenize", true},       Route{"/detokenize", true},
    Route{"/apply-template", true}, Route{"/cards", false},
    Route{"/learn/weights", false}, Route{"/learn/attention", false},
};
constexpr std::string_view kModelPath = "/v1/models/";
constexpr double kSampleS = 1;
constexpr size_t kMostFieldNames = 2048;         // bytes of those that a preflight asks for
constexpr size_t kLongBody = size_t{128} << 10;  // takes some ten milliseconds to cut into tokens
constexpr size_t kLargeBody = size_t{1} << 20;
constexpr double kRecentS = 10;  // of the latencies of /status

std::optional<Route> FindRoute(std::string_view path) {
  if (path.starts_with(kModelPath) && path.size() > kModelPath.size()) return Route{path, false};
  if (IsPageFile(path)) return Route{path, false};
  const auto found = std::ranges::find(kRoutes, path, &Route::path);
  if (found == kRoutes.end()) return std::nullopt;
  return *found;
}

// What opens files or computes.
bool IsSlow(std::string_view path) { return path == "/cards" || path.starts_with("/learn/"); }

std::string_view MethodsOf(const Route& route) {
  return route.post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

// The key of "Authorization: Bearer KEY", or of X-Api-Key.
std::string_view PresentedKey(const HttpRequest& request) {
  const std::string_view header = request.Header("authorization");
  if (header.size() > 7 && (header.starts_with("Bearer ") || header.starts_with("bearer "))) {
    return header.substr(7);
  }
  return request.Header("x-api-key");
}

// "content-type, x-stainless-os": names of header fields, which are tokens (RFC 9110, 5.6.2).
bool IsFieldNames(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~, ";
  return !text.empty() && text.size() <= kMostFieldNames && std::ranges::all_of(text, [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || kMarks.find(c) != kMarks.npos;
  });
}

// The last steps and what each computed, newest last.
Json StepsJson(const StepMeter& meter) {
  constexpr size_t kMost = 16;
  Json out = Json::array();
  for (const StepRecord& step : meter.Last(kMost)) {
    Json spans = Json::array();
    for (const StepRecord::Span& span : step.spans) {
      spans.push_back({{"request", span.request.value()},
                       {"choice", span.choice},
                       {"first", span.first},
                       {"rows", span.rows},
                       {"answer", span.answer}});
    }
    out.push_back({{"step", step.number},
                   {"seconds", step.seconds},
                   {"price_s", step.price_s},
                   {"rows", step.rows},
                   {"weight_bytes", step.weight_bytes},
                   {"kv_bytes", step.kv_bytes},
                   {"spans", std::move(spans)}});
  }
  return out;
}

}  // namespace

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      log_(options_.log),
      resident_at_start_(ReadResidentBytes().private_),
      started_s_(MonotonicSeconds()),
      started_unix_(std::time(nullptr)),
      random_(RandomBits()) {}

Service::~Service() = default;

void Service::Attach(HttpServer& server) {
  server_ = &server;
  hub_ = std::make_unique<EventHub>(
      [&server](std::function<void()> call) { server.Post(std::move(call)); });
  workers_ = std::make_unique<Workers>(options_.workers);
}

void Service::DropJobs() {
  jobs_.clear();
  hub_.reset();
}

void Service::SetPlan(const EnginePlan& plan) { plan_ = plan; }

void Service::SetReadBandwidth(double bandwidth) {
  server_->Post([this, bandwidth] { read_bandwidth_ = bandwidth; });
}

void Service::SetEngine(Engine& engine, const ChatTemplate* chat) {
  server_->Post([this, &engine, chat] {
    engine_ = &engine;
    constraints_ = std::make_unique<Constraints>([&engine] { return engine.vocabulary(); });
    chat_ = chat;
    plan_ = engine.plan();
    options_.limits.max_context = plan_.max_context;
  });
}

uint64_t Service::NextRandom() {
  random_ += kSplitMixStep;
  return SplitMix(random_);
}

std::optional<std::string> Service::KeyOf(const HttpRequest& request) const {
  if (options_.keys.empty()) return "";
  return options_.keys.Find(PresentedKey(request));
}

std::optional<ApiError> Service::NotReady() const {
  if (draining_) {
    return ApiError{
        .status = 503, .message = "the server is stopping", .code = "stopping", .retry_after_s = 5};
  }
  if (engine_ != nullptr) return std::nullopt;
  return ApiError{.status = 503,
                  .message = fmt::format("the model is loading: {:.0f}%", 100 * LoadedFraction()),
                  .code = "loading",
                  .retry_after_s = 1};
}

std::optional<HttpResponse> Service::CheckHead(const HttpRequest& head) {
  if (head.method == "OPTIONS") return std::nullopt;
  if (head.path != "/health" && !IsPageFile(head.path) && !KeyOf(head)) {
    const bool given = !PresentedKey(head).empty();
    HttpResponse refusal =
        Refusal({.status = 401,
                 .message = given ? "the API key is not one of this server's"
                                  : "an API key is needed: send Authorization: Bearer KEY",
                 .code = "invalid_api_key"});
    refusal.headers.emplace_back("WWW-Authenticate", "Bearer");
    return refusal;
  }
  const auto route = FindRoute(head.path);
  if (!route) {
    return Refusal({.status = 404,
                    .message = "there is nothing at " + QuoteJson(head.path),
                    .code = "not_found"});
  }
  const bool reads = head.method == "GET" || head.method == "HEAD";
  if (route->post ? head.method != "POST" : !reads) {
    HttpResponse refusal =
        Refusal({.status = 405,
                 .message = fmt::format("{} takes {}, not {}", QuoteJson(head.path),
                                        MethodsOf(*route), QuoteJson(head.method)),
                 .code = "method_not_allowed"});
    refusal.headers.emplace_back("Allow", MethodsOf(*route));
    return refusal;
  }
  if (route->post) {
    if (const auto error = NotReady()) return Refusal(*error);
  }
  return std::nullopt;
}

void Service::Decorate(HttpResponse& response) {
  ++metrics_.responses[std::to_string(response.status)];
  if (options_.cors_origin.empty()) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", options_.cors_origin);
  response.headers.emplace_back("Access-Control-Expose-Headers",
                                "X-Request-Id, X-Nibble-Seed, X-Nibble-Warning, "
                                "X-Nibble-Dropped-Messages, Retry-After");
  response.headers.emplace_back("Vary", "Origin");
}

HttpResponse Service::Reply(const Json& body) {
  HttpResponse response{.body = DumpJson(body)};
  Decorate(response);
  return response;
}

HttpResponse Service::Refusal(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = DumpJson(ErrorBody(error))};
  if (error.retry_after_s) {
    response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  }
  Decorate(response);
  return response;
}

HttpResponse Service::Options(const HttpRequest& request) {
  const auto route = FindRoute(request.path);
  if (!route) {
    return Refusal({.status = 404,
                    .message = "there is nothing at " + QuoteJson(request.path),
                    .code = "not_found"});
  }
  HttpResponse response{.status = 204, .content_type = ""};
  Decorate(response);
  response.headers.emplace_back("Allow", MethodsOf(*route));
  if (!options_.cors_origin.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", MethodsOf(*route));
    const std::string_view wanted = request.Header("access-control-request-headers");
    response.headers.emplace_back(
        "Access-Control-Allow-Headers",
        IsFieldNames(wanted) ? wanted : "Authorization, Content-Type, X-Api-Key, X-Request-Id");
    response.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return response;
}

HttpResponse Service::Get(const HttpRequest& request) {
  if (request.path == "/health") return Health();
  if (request.path == "/status") return Status();
  if (request.path == "/metrics") return MetricsPage();
  if (IsPageFile(request.path)) {
    HttpResponse response = PageFile(request.path, request.Header("if-none-match"));
    Decorate(response);
    return response;
  }
  if (request.path == "/plan") {
    const auto plan = AnswerPlan(request.query, options_.plan);
    return plan ? Reply(*plan) : Refusal(plan.error());
  }
  if (request.path == "/openapi.json") {
    HttpResponse response{.body = std::string(kOpenApi)};
    Decorate(response);
    return response;
  }
  return Models(request.path);
}

double Service::LoadedFraction() const {
  const auto total = static_cast<double>(plan_.Total() - plan_.kv_bytes);
  if (total <= 0) return 0;
  const size_t now = ReadResidentBytes().private_;
  const size_t taken = now - std::min(now, resident_at_start_);
  return std::min(static_cast<double>(taken) / total, 0.99);
}

HttpResponse Service::Health() {
  const char* status = draining_ ? "draining" : engine_ == nullptr ? "loading" : "ok";
  Json body = {{"status", status}};
  if (engine_ == nullptr) body["progress"] = LoadedFraction();
  HttpResponse response{.status = draining_ || engine_ == nullptr ? 503 : 200,
                        .body = DumpJson(body)};
  response.headers.emplace_back("Cache-Control", "no-store");
  Decorate(response);
  return response;
}

HttpResponse Service::Status() {
  Json out;
  out["status"] = draining_ ? "draining" : engine_ == nullptr ? "loading" : "ok";
  out["model"] = options_.names.front();
  out["uptime_s"] = MonotonicSeconds() - started_s_;
  if (engine_ != nullptr) {
    const EngineStats stats = engine_->Stats();
    out["engine"] = {{"running", stats.running},
                     {"waiting", stats.waiting},
                     {"steps", stats.steps},
                     {"step_tokens", stats.rows},
                     {"preemptions", stats.preemptions},
                     {"preemptions_for_answers", stats.preemptions_for_answers},
                     {"preemptions_for_prompts", stats.preemptions_for_prompts},
                     {"sampled_tokens", stats.sampled},
                     {"drafted_tokens", stats.drafted},
                     {"accepted_tokens", stats.accepted},
                     {"step_s", stats.step_s},
                     {"weight_bytes", stats.weight_bytes},
                     {"kv_bytes", stats.kv_bytes},
                     {"read_bytes_per_s", metrics_.read_bytes_per_s},
                     {"read_bandwidth", read_bandwidth_},
                     {"prefix_hits", stats.prefix_hits},
                     {"cached_tokens", stats.cached_tokens},
                     {"threads", engine_->threads()},
                     {"weight_bytes_per_step", engine_->WeightBytesPerStep()}};
    out["kv"] = {{"pages_used", stats.kv_pages_used},
                 {"pages_cached", stats.kv_pages_cached},
                 {"pages_peak", stats.kv_pages_peak},
                 {"pages_total", stats.kv_pages_total},
                 {"touched_bytes", stats.kv_touched_bytes}};
  }
  out["chat"] = chat_ != nullptr;
  const auto percentiles = [&](const RecentLatencies& latencies) {
    const auto found = latencies.Over(MonotonicSeconds(), kRecentS);
    return Json{{"count", found.count}, {"p50", found.p50}, {"p90", found.p90}, {"p99", found.p99}};
  };
  out["latency"] = {{"window_s", kRecentS},
                    {"ttft_s", percentiles(metrics_.recent_first_token)},
                    {"itl_s", percentiles(metrics_.recent_inter_token)}};
  if (options_.steps != nullptr) out["steps"] = StepsJson(*options_.steps);
  const HttpCounters& http = server_->counters();
  out["queue"] = {{"requests", jobs_.size()},
                  {"prompt_tokens", queued_tokens_.load()},
                  {"most_prompt_tokens", options_.max_queued_tokens},
                  {"finished_per_s", meter_.finished_per_s()},
                  {"tokens_per_s", meter_.rows_per_s()}};
  out["http"] = {{"connections", http.connections}, {"accepted", http.accepted},
                 {"refused", http.refused},         {"dropped", http.dropped},
                 {"timeouts", http.timeouts},       {"body_bytes", http.body_bytes}};
  out["memory"] = {
      {"max_context", plan_.max_context}, {"weight_bytes", plan_.model.weight_bytes},
      {"kv_bytes", plan_.kv_bytes},       {"kv_tokens", plan_.kv_tokens},
      {"predicted_bytes", plan_.Total()}, {"resident_bytes", ReadResidentBytes().private_}};
  return Reply(out);
}

HttpResponse Service::MetricsPage() {
  MetricsInput input{.prefix = options_.metrics_prefix, .model = options_.names.front()};
  EngineStats stats;
  std::optional<StepMeter::Histograms> steps;
  if (options_.steps != nullptr) {
    steps = options_.steps->histograms();
    input.steps = &*steps;
  }
  input.read_bandwidth = read_bandwidth_;
  if (engine_ != nullptr) {
    stats = engine_->Stats();
    input.engine = &stats;
    input.plan = &plan_;
    input.weight_bytes_per_step = engine_->WeightBytesPerStep();
  }
  input.queued_tokens = queued_tokens_;
  input.http = server_->counters();
  input.resident_bytes = ReadResidentBytes().private_;
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = MetricsText(metrics_, input)};
  Decorate(response);
  return response;
}

Json Service::ModelJson(const std::string& name) const {
  Json out = {
      {"id", name}, {"object", "model"}, {"created", started_unix_}, {"owned_by", "nibble"}};
  if (engine_ != nullptr) out["max_model_len"] = plan_.max_context;
  return out;
}

HttpResponse Service::Models(const std::string& path) {
  std::vector<std::string> names = options_.names;
  std::erase(names, "*");
  if (path.size() > kModelPath.size()) {
    const std::string name = path.substr(kModelPath.size());
    if (std::ranges::find(names, name) == names.end()) {
      return Refusal({.status = 404,
                      .message = fmt::format("the model {} is not served here", QuoteJson(name)),
                      .param = "model",
                      .code = "model_not_found"});
    }
    return Reply(ModelJson(name));
  }
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(ModelJson(name));
  return Reply({{"object", "list"}, {"data", std::move(list)}});
}

// A request of a path with POST. `responder` gives itself back on the I/O thread, wherever its last
// copy is dropped.
struct Service::Asked {
  HttpRequest http;
  std::shared_ptr<Responder> responder;
  GenerationJob::Facts facts;
  uint64_t seed = 0;
  OpenAiContext context;
  JobHost host;
};

// A responder that gives itself back on the I/O thread, wherever its last copy is dropped.
std::shared_ptr<Responder> Service::Handed(HttpServer* server,
                                           std::shared_ptr<Responder> responder) {
  Responder* raw = responder.get();
  return {raw, [server, own = std::move(responder)](Responder*) mutable {
            server->Post([own = std::move(own)] {});
          }};
}

ApiResult<Json> Service::Learn(const std::string& path) const {
  auto json = path == "/learn/weights" ? WeightRowJson(*options_.file)
                                       : AttentionJson(*options_.file, engine_->tokenizer());
  if (!json) return std::unexpected(ApiErrorOf(json.error()));
  return *std::move(json);
}

void Service::AnswerLater(const std::string& path, std::shared_ptr<Responder> responder) {
  if (path != "/cards") {
    if (const auto error = NotReady()) return SendError(*responder, *error, path);
  }
  const auto handed = Handed(server_, std::move(responder));
  ++asked_;
  const auto answer = [this, path, handed] {
    auto json = path == "/cards" ? ApiResult<Json>(CardsJson(options_.model_dir)) : Learn(path);
    server_->Post([this, json = std::move(json), handed, path] {
      --asked_;
      if (json) {
        handed->Send(Reply(*json));
      } else {
        SendError(*handed, json.error(), path);
      }
    });
  };
  workers_->Add(answer, true);
}

void Service::Handle(HttpRequest request, std::shared_ptr<Responder> responder) {
  if (request.method == "OPTIONS") return responder->Send(Options(request));
  const auto route = FindRoute(request.path);
  if (route && !route->post && IsSlow(request.path)) {
    return AnswerLater(request.path, std::move(responder));
  }
  if (!route || !route->post) return responder->Send(Get(request));
  if (const auto error = NotReady()) return SendError(*responder, *error, request.path);
  auto asked = std::make_shared<Asked>();
  asked->facts.path = request.path;
  asked->facts.key = KeyOf(request).value_or("");
  asked->facts.received_s = MonotonicSeconds();
  asked->facts.name = {.id = fmt::format("{:016x}", NextRandom()),
                       .model = options_.names.front(),
                       .created = std::time(nullptr),
                       .live = true};
  asked->seed = options_.seed.value_or(NextRandom() >> 11);  // a number that JSON can hold
  asked->context = {.tokenizer = &engine_->tokenizer(),
                    .chat = chat_,
                    .limits = options_.limits,
                    .constraints = constraints_.get(),
                    .live = true};
  asked->context.sampling.temperature = 1;
  asked->host = {.engine = engine_,
                 .hub = hub_.get(),
                 .metrics = &metrics_,
                 .log = &log_,
                 .queued_tokens = &queued_tokens_,
                 .max_queued_tokens = options_.max_queued_tokens,
                 .log_prompts = options_.log_prompts,
                 .trace = options_.trace,
                 .decorate = [this](HttpResponse& response) { Decorate(response); },
                 .on_done =
                     [this](const GenerationJob* job) {
                       std::erase_if(jobs_, [&](const auto& one) { return one.get() == job; });
                     }};
  asked->http = std::move(request);
  asked->responder = Handed(server_, std::move(responder));
  ++asked_;
  const size_t size = asked->http.body.size();
  auto answer = [this, workers = workers_.get(), size, asked = std::move(asked)]() mutable {
    if (!Answer(*asked, false)) {
      workers->Add([this, asked] { Answer(*asked, true); }, true);
    }
    asked.reset();
    if (size >= kLargeBody)
      malloc_trim(0);  // the allocator keeps some hundred megabytes of them else
  };
  workers_->Add(std::move(answer), size >= kLongBody);
}

ApiResult<std::shared_ptr<GenerationJob>> Service::MakeJob(Asked& asked) const {
  const bool chat = asked.facts.path == "/v1/chat/completions";
  auto document = ParseBody(asked.http.body);
  if (!document) return std::unexpected(document.error());
  auto read = ReadOpenAiRequest(chat ? Endpoint::kChatCompletions : Endpoint::kCompletions,
                                document->root(), asked.context);
  if (!read) return std::unexpected(read.error());
  if (!read->model.empty()) {
    const auto served = [&](const std::string& name) { return name == "*" || name == read->model; };
    if (std::ranges::none_of(options_.names, served)) {
      return std::unexpected(ApiError{
          .status = 404,
          .message = fmt::format("the model {} is not served here; GET /v1/models lists what is",
                                 QuoteJson(read->model)),
          .param = "model",
          .code = "model_not_found"});
    }
    asked.facts.name.model = read->model;
  }
  if (!read->seed) read->request.sampling.seed = asked.seed;
  auto job =
      std::make_shared<GenerationJob>(asked.host, *std::move(read), asked.facts, asked.responder);
  if (auto submitted = job->Submit(); !submitted) return std::unexpected(submitted.error());
  return job;
}

ApiResult<Json> Service::Transform(const Asked& asked) const {
  return AnswerText(asked.facts.path, asked.http.body, asked.context);
}

// Where it answers, the count of those on their way goes down, whatever happens.
bool Service::Answer(Asked& asked, bool may_compile) {
  const std::string path = asked.facts.path;
  const std::shared_ptr<Responder> responder = asked.responder;
  if (path.starts_with("/v1/")) {
    bool missing = false;
    asked.context.constraint_is_missing = may_compile ? nullptr : &missing;
    auto job = MakeJob(asked);
    if (missing) return false;
    server_->Post([this, job, responder, path] {
      --asked_;
      if (job) {
        Begin(*job);
      } else {
        SendError(*responder, job.error(), path);
      }
    });
    return true;
  }
  auto json = Transform(asked);
  server_->Post([this, json = std::move(json), responder, path] {
    --asked_;
    if (json) {
      responder->Send(Reply(*json));
    } else {
      SendError(*responder, json.error(), path);
    }
  });
  return true;
}

void Service::Begin(const std::shared_ptr<GenerationJob>& job) {
  jobs_.insert(job);
  job->Begin();
}

void Service::SendError(Responder& responder, ApiError error, const std::string& path) {
  if (error.status == 429) {
    const int waiting = engine_ == nullptr ? 0 : engine_->Stats().waiting;
    error.retry_after_s = meter_.RetryAfter(waiting, queued_tokens_);
  }
  ++metrics_.refused[error.code.empty() ? std::to_string(error.status) : error.code];
  // Messages quote what was asked; the member's name says enough.
  log_.Write(
      "refused",
      {{"path", path}, {"status", error.status}, {"param", error.param}, {"code", error.code}});
  responder.Send(Refusal(error));
}

void Service::Sample(double now) {
  EngineStats stats = engine_->Stats();
  meter_.Sample(now, static_cast<int64_t>(metrics_.e2e_latency.count()), stats.rows,
                stats.running > 0);
  const double seconds = stats.step_s - sampled_stats_.step_s;
  if (seconds > 0) {
    metrics_.read_bytes_per_s = (stats.weight_bytes - sampled_stats_.weight_bytes + stats.kv_bytes -
                                 sampled_stats_.kv_bytes) /
                                seconds;
  }
  sampled_stats_ = std::move(stats);
  sampled_s_ = now;
}

void Service::Tick() {
  const double now = MonotonicSeconds();
  const auto jobs = jobs_;  // they may leave meanwhile
  for (const auto& job : jobs) job->KeepAlive(now, options_.comment_s);
  if (engine_ != nullptr && now - sampled_s_ >= kSampleS) {
    Sample(now);
  }
  if (!draining_) return;
  if (jobs_.empty() && asked_ == 0 && server_->counters().connections == 0) return server_->Stop();
  if (now < drain_until_s_) return;
  if (!cancelled_) {
    cancelled_ = true;
    log_.Write("drain_deadline", {{"cancelled", jobs_.size()}});
    for (const auto& job : jobs) job->Cancel();
    drain_until_s_ = now + 1;  // for their last bytes
    return;
  }
  server_->Stop();
}

void Service::OnSignal(int count) {
  if (count > 1 || engine_ == nullptr) {
    log_.Write("stop", {{"requests", jobs_.size()}, {"loading", engine_ == nullptr}});
    std::fflush(nullptr);
    std::_Exit(count > 1 ? 1 : 0);
  }
  draining_ = true;
  drain_until_s_ = MonotonicSeconds() + options_.drain_s;
  log_.Write("drain", {{"requests", jobs_.size()}, {"seconds", options_.drain_s}});
  server_->StopAccepting();
}

}  // namespace nibble::server
