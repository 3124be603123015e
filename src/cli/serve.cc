#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/here_device.h"
#include "cli/number_range.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/serving_flags.h"
#include "cli/session.h"
#include "cli/speculation_flags.h"
#include "fetch/store.h"
#include "model/config/model_file.h"
#include "platform/bandwidth.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"
#include "server/http_server.h"
#include "server/service.h"
#include "server/step_meter.h"

namespace nibble::cli {
namespace {

struct ServeFlags {
  std::string model;
  server::HttpOptions http;
  ServingFlags serving;
  SpeculationFlags speculation;
  std::vector<std::string> keys;
  std::string key_file;
  std::vector<std::string> aliases;
  std::string chat_template;
  std::string model_dir;
  std::string cors;
  std::string metrics_prefix = "nibble";
  std::string max_body = "10MB";
  std::string max_unread = "1MB";
  int max_queue = 1024;
  int64_t max_queued_tokens = 1 << 20;
  int max_tokens = 0;
  int max_n = 16;
  int max_stops = 16;
  int max_logprobs = 20;
  int max_logit_bias = 1024;
  double drain_s = 30;
  double comment_s = 15;
  std::string trace_log;
  std::string trace_steps;
  std::string read_bandwidth = "measure";
  std::optional<double> given_bandwidth;  // read_bandwidth, where it is no "measure"
  bool log_json = false;
  bool log_prompts = false;
};

Status ReadKeys(const ServeFlags& own, server::AccessKeys& keys) {
  for (const std::string& key : own.keys) {
    if (const Status added = keys.Add(key); !added) return Within("--api-key", added.error());
  }
  if (own.key_file.empty()) return {};
  NIBBLE_TRY(const std::string text, ReadTextFile(own.key_file, size_t{1} << 20));
  if (const Status added = keys.AddLines(text); !added) {
    return Within(own.key_file, added.error());
  }
  return {};
}

Result<server::ServiceOptions> MakeServiceOptions(const GlobalFlags& flags, const ServeFlags& own,
                                                  const std::filesystem::path& path) {
  server::ServiceOptions options;
  options.names = own.aliases;
  if (options.names.empty() || options.names == std::vector<std::string>{"*"}) {
    options.names.insert(options.names.begin(), path.stem().string());
    if (own.model != options.names.front()) options.names.push_back(own.model);
  }
  NIBBLE_RETURN_IF_ERROR(ReadKeys(own, options.keys));
  options.limits = {.max_tokens = own.max_tokens,
                    .max_choices = own.max_n,
                    .max_queue = own.max_queue,
                    .max_logprobs = own.max_logprobs,
                    .max_stops = static_cast<size_t>(own.max_stops),
                    .max_logit_bias = static_cast<size_t>(own.max_logit_bias)};
  options.seed = flags.seed;
  options.model_dir = own.model_dir.empty() ? ModelStore() : std::filesystem::path(own.model_dir);
  options.cors_origin = own.cors;
  options.metrics_prefix = own.metrics_prefix;
  options.max_queued_tokens = own.max_queued_tokens;
  options.comment_s = own.comment_s;
  options.drain_s = own.drain_s;
  using Form = server::EventLog::Form;
  options.log = flags.quiet ? Form::kNone : own.log_json ? Form::kJson : Form::kText;
  options.log_prompts = own.log_prompts;
  return options;
}

std::string HostInUrl(const std::string& host) {
  return host.find(':') == host.npos ? host : "[" + host + "]";
}

// What to do with it, for people.
void PrintReady(const ServeFlags& own, const server::HttpServer& http, const Engine& engine,
                bool chat, double seconds) {
  const int port = http.port();
  const bool everywhere = own.http.host == "0.0.0.0" || own.http.host == "::";
  const bool tls = !own.http.tls_cert.empty();
  const std::string url = fmt::format("{}://{}:{}", tls ? "https" : "http",
                                      everywhere ? "127.0.0.1" : HostInUrl(own.http.host), port);
  const std::string key =
      own.keys.empty() && own.key_file.empty() ? "" : " -H 'Authorization: Bearer KEY'";
  const EnginePlan& plan = engine.plan();
  fmt::print(
      stderr,
      "ready after {:.1f} s: {} of memory taken, up to {} with all {} of KV pages ({} "
      "tokens)\n  page {}/\n  curl {}{}{}{} -H 'Content-Type: application/json' -d '{}'\n",
      seconds, FormatBytes(static_cast<double>(ReadResidentBytes().private_)),
      FormatBytes(static_cast<double>(plan.Total())),
      FormatBytes(static_cast<double>(plan.kv_bytes)), plan.kv_tokens, url,
      tls ? fmt::format("--cacert {} ", own.http.tls_cert) : "", url,
      chat ? "/v1/chat/completions" : "/v1/completions", key,
      chat ? R"({"messages":[{"role":"user","content":"Why is the sky blue?"}],"max_tokens":100})"
           : R"({"prompt":"Once upon a time","max_tokens":50})");
  if (http.is_loopback()) {
    fmt::print(
        stderr,
        "from another machine: ssh -L {0}:{1}:{0} USER@THIS-MACHINE, then {2}://127.0.0.1:{0}\n",
        port, HostInUrl(http.address()), tls ? "https" : "http");
  }
}

// What /plan may name beside the tables: the model that is served, by any of its names, and this
// machine once it is calibrated (nobody measures beside a server's work).
PlanSources PlanSourcesFor(const GlobalFlags& flags, const ModelFile& file,
                           const std::vector<std::string>& names) {
  PlanSources sources = TableSources();
  const auto shape = std::make_shared<const ModelShape>(ShapeOfFile(file, names.front()));
  sources.model = [shape, names](const std::string& name) -> Result<ModelShape> {
    if (std::ranges::find(names, name) != names.end()) return *shape;
    return ModelShapeByName(name);
  };
  sources.device = [flags](const std::string& name) {
    return name == "here" ? CalibratedHere(flags) : DeviceShapeByName(name);
  };
  return sources;
}

// What watches a server: outlives its engine and its service.
struct Watch {
  std::unique_ptr<server::LineFile> step_lines;
  std::unique_ptr<server::RequestTrace> trace;
  std::unique_ptr<server::StepMeter> steps;
};

Result<Watch> MakeWatch(const ServeFlags& own) {
  Watch watch;
  const double now = MonotonicSeconds();
  if (!own.trace_log.empty()) {
    NIBBLE_TRY(auto file, server::LineFile::Create(own.trace_log));
    watch.trace = std::make_unique<server::RequestTrace>(std::move(file), now);
  }
  if (!own.trace_steps.empty()) {
    NIBBLE_TRY(watch.step_lines, server::LineFile::Create(own.trace_steps));
  }
  watch.steps = std::make_unique<server::StepMeter>(watch.step_lines.get(), now);
  return watch;
}

// A model that fits into caches is not bound by memory: nothing is measured for it.
double ReadBandwidth(const ServeFlags& own, const EnginePlan& plan, const EngineOptions& options) {
  constexpr size_t kLeastWeights = size_t{64} << 20;
  constexpr double kSeconds = 0.1;
  if (own.given_bandwidth) return *own.given_bandwidth;
  if (plan.model.weight_bytes < kLeastWeights) return 0.0;
  ThreadPool pool(options.threads > 0 ? options.threads : ReadTopology().threads, options.nodes);
  return ProbeReadBandwidth(pool, kSeconds).value_or(0.0);  // none where memory is short
}

// Loads while the server already answers, then serves until it is stopped.
Status LoadAndServe(const GlobalFlags& flags, const ServeFlags& own, const ModelFile& file,
                    EngineOptions engine_options) {
  NIBBLE_TRY(server::ServiceOptions options, MakeServiceOptions(flags, own, file.path()));
  options.plan = PlanSourcesFor(flags, file, options.names);
  NIBBLE_TRY(Watch watch, MakeWatch(own));
  const std::string name = options.names.front();
  options.trace = watch.trace.get();
  options.steps = watch.steps.get();
  engine_options.steps = watch.steps.get();
  const bool anybody = options.keys.empty();
  NIBBLE_TRY(const EnginePlan plan, Engine::Plan(file, engine_options));
  if (!flags.quiet) fmt::print(stderr, "{}\n", plan.Describe());
  options.file = &file;
  server::Service service(std::move(options));
  NIBBLE_TRY(const auto http, server::HttpServer::Listen(own.http, service));
  if (anybody && !http->is_loopback()) {
    fmt::print(stderr, "warning: --host {} without --api-key: whoever reaches port {} may ask\n",
               own.http.host, http->port());
  }
  service.SetPlan(plan);
  service.Attach(*http);
  if (!flags.quiet) {
    fmt::print(stderr, "listening on {}://{}:{}; loading\n",
               own.http.tls_cert.empty() ? "http" : "https", HostInUrl(own.http.host),
               http->port());
  }
  std::thread io([&] { http->Run(); });
  const double started = MonotonicSeconds();
  auto engine = Engine::Create(file, engine_options);
  Result<std::optional<ChatTemplate>> chat;
  if (engine) chat = LoadChatTemplate(**engine, own.chat_template);
  if (engine && chat) {
    // Behind loading, whose progress is told by the memory that it takes.
    service.SetReadBandwidth(ReadBandwidth(own, plan, engine_options));
    if (watch.trace) watch.trace->WriteHead(name, **engine, engine_options);
    service.SetEngine(**engine, *chat ? &**chat : nullptr);
    if (!flags.quiet) {
      PrintReady(own, *http, **engine, chat->has_value(), MonotonicSeconds() - started);
    }
  } else {
    http->Stop();
  }
  io.join();
  service.StopWorkers();
  if (engine) engine->reset();  // its last events still find the server
  service.DropJobs();
  if (!engine) return std::unexpected(engine.error());
  if (!chat) return std::unexpected(chat.error());
  return {};
}

Status Serve(const GlobalFlags& flags, ServeFlags own) {
  NIBBLE_TRY(EngineOptions engine_options, MakeEngineOptions(flags));
  ApplyServingFlags(own.serving, engine_options);
  engine_options.max_queue = own.max_queue;
  const auto body = ParseSize(own.max_body);
  if (!body) return Within("--max-body", body.error());
  const auto unread = ParseSize(own.max_unread);
  if (!unread) return Within("--max-unread", unread.error());
  own.http.limits.max_body_bytes = std::min(*body, size_t{128} << 20);
  own.http.max_unread = *unread;
  if (own.http.host.empty()) {
    return BadInput("--host: expected an address, found nothing; 0.0.0.0 is all of this machine's");
  }
  for (const std::string& alias : own.aliases) {
    if (alias.empty()) return BadInput("--alias: expected a name, found nothing");
  }
  if (own.read_bandwidth == "off") own.given_bandwidth = 0;
  if (own.read_bandwidth != "off" && own.read_bandwidth != "measure") {
    const auto given = ParseSize(own.read_bandwidth);
    if (!given) return Within("--read-bandwidth", given.error());
    own.given_bandwidth = static_cast<double>(*given);
  }
  NIBBLE_TRY(const std::filesystem::path path, FindModel(flags, own.model, true));
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(path));
  NIBBLE_TRY(const MadeSpeculation made, MakeSpeculation(flags, own.speculation, file));
  engine_options.speculation = made.speculation;
  return LoadAndServe(flags, own, file, engine_options);
}

void AddLimitFlags(CLI::App& command, ServeFlags& own) {
  const std::string group = "Limits";
  const auto count = [&](const char* name, auto& value, int most, const char* help) {
    command.add_option(name, value, help)
        ->check(CLI::Range(1, most))
        ->capture_default_str()
        ->group(group);
  };
  const auto seconds = [&](const char* name, double& value, const char* help) {
    command.add_option(name, value, help)
        ->check(NumberFrom(0.1, 86400.0))
        ->capture_default_str()
        ->group(group);
  };
  count("--max-queue", own.max_queue, 1 << 20, "Most sequences that wait; more get 429");
  count("--max-queued-tokens", own.max_queued_tokens, 1 << 30,
        "Most prompt tokens of requests that wait; more get 429");
  command
      .add_option("--max-tokens", own.max_tokens,
                  "Most tokens of an answer; 0: what the context holds")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str()
      ->group(group);
  count("--max-n", own.max_n, 128, "Most answers to one request");
  count("--max-stops", own.max_stops, 64, "Most stop strings");
  count("--max-logprobs", own.max_logprobs, 1000, "Most log-probabilities per token");
  count("--max-logit-bias", own.max_logit_bias, 1 << 20, "Most entries of logit_bias");
  count("--max-connections", own.http.max_connections, 1 << 16, "Most open connections");
  command.add_option("--max-body", own.max_body, "Largest body of a request, at most 134MB")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-unread", own.max_unread,
                  "Bytes of a stream that its client may leave unread; then it is dropped")
      ->capture_default_str()
      ->group(group);
  seconds("--header-timeout", own.http.header_s, "Seconds for the head of a request");
  seconds("--body-timeout", own.http.body_s, "Seconds for its body");
  seconds("--idle-timeout", own.http.idle_s, "Seconds without a request on a connection");
  seconds("--write-timeout", own.http.write_s, "Seconds without the client reading");
  seconds("--drain-timeout", own.drain_s, "Seconds for running requests after SIGTERM or Ctrl-C");
  seconds("--comment-interval", own.comment_s,
          "Seconds after which a silent stream gets a comment, so that nobody gives it up");
}

void AddAccessFlags(CLI::App& command, ServeFlags& own) {
  const std::string group = "Access and logs";
  command.add_option("--host", own.http.host, "Address to listen on; 0.0.0.0: all")
      ->capture_default_str()
      ->group(group);
  command.add_option("--port", own.http.port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group(group);
  command.add_option("--api-key", own.keys, "KEY or NAME=KEY; may be given several times")
      ->allow_extra_args(false)
      ->group(group);
  command.add_option("--api-key-file", own.key_file, "File with one of these on each line")
      ->group(group);
  command
      .add_option("--alias", own.aliases,
                  "Name that requests may call the model by, in place of its own; *: any name")
      ->allow_extra_args(false)
      ->group(group);
  CLI::Option* cert =
      command
          .add_option("--tls-cert", own.http.tls_cert, "PEM file of a chain of certificates: TLS")
          ->type_name("FILE")
          ->group(group);
  CLI::Option* key = command.add_option("--tls-key", own.http.tls_key, "PEM file of its key")
                         ->type_name("FILE")
                         ->group(group);
  key->needs(cert);
  cert->needs(key);
  command.add_option("--cors", own.cors, "Origin whose pages may ask; *: all; default: none")
      ->type_name("ORIGIN")
      ->group(group);
  command.add_option("--metrics-prefix", own.metrics_prefix, "vllm: dashboards for vLLM fit")
      ->check(CLI::IsMember({"nibble", "vllm"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--trace-log", own.trace_log,
                  "Write a line for each request: times, lengths, salted hashes of pages, no text")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--trace-steps", own.trace_steps,
                  "Write a line for each step: seconds, tokens, who came and went, bytes")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--read-bandwidth", own.read_bandwidth,
                  "Bytes per second that memory gives, for the metrics: measure (as it starts, for "
                  "models of 64 MiB or more), off, or a size")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--log-json", own.log_json, "Log lines as JSON")->group(group);
  command.add_flag("--log-prompts", own.log_prompts, "Log what is asked; else no text is logged")
      ->group(group);
}

}  // namespace

void AddServeCommand(const CommandContext& context) {
  CLI::App* command =
      context.app.add_subcommand("serve", "Serves a model over HTTP, as OpenAI's API does");
  auto own = std::make_shared<ServeFlags>();
  command->add_option("MODEL", own->model, "Model file, folder or name (pulled if not on disk)")
      ->required();
  command->add_option("--chat-template", own->chat_template, "Jinja file in place of the model's");
  command
      ->add_option("--model-dir", own->model_dir,
                   "Folder whose models the page compares; default: where pull puts them")
      ->check(CLI::ExistingDirectory);
  AddServingFlags(*command, own->serving, "Batching");
  AddSpeculationFlags(*command, own->speculation);
  AddAccessFlags(*command, *own);
  AddLimitFlags(*command, *own);
  command->footer(
      "Spellings of llama.cpp and vLLM (-ctk q8_0, -np, --max-model-len, --max-num-seqs, …) are\n"
      "taken and said again as ours. docs/server.md has the interface.\n"
      "Examples:\n"
      "  nibble serve smollm2-135m\n"
      "  nibble serve model.gguf --port 9000 --kv int8 --max-seqs 64 --alias gpt-4o-mini\n"
      "  nibble serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --log-json\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return Serve(flags, *own); }; });
}

}  // namespace nibble::cli
