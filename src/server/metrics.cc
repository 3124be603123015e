#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/paging.h"

namespace nibble::server {
namespace {

constexpr std::array<double, 22> kFirstTokenBounds = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr std::array<double, 19> kTokenBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                                 0.1,   0.15,   0.2,   0.3,  0.4,   0.5,  0.75,
                                                 1,     2.5,    5,     7.5,  10};
constexpr std::array<double, 21> kRequestBounds = {
    0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480};
constexpr std::array<double, 18> kCountBounds = {1,    2,    5,    10,  20,  50,  100, 200, 500,
                                                 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5};
constexpr std::array<double, 5> kChoiceBounds = {1, 2, 5, 10, 20};

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

class Page {
 public:
  Page(std::string prefix, std::string_view model)
      : prefix_(std::move(prefix)), labels_("model_name=\"" + Escaped(model) + "\"") {}

  void Head(std::string_view name, std::string_view type, std::string_view help) {
    text_ += fmt::format("# HELP {0}:{1} {2}\n# TYPE {0}:{1} {3}\n", prefix_, name, help, type);
  }
  void Value(std::string_view name, double value, const std::string& more = "") {
    text_ += fmt::format("{}:{}{{{}{}}} {}\n", prefix_, name, labels_, more, value);
  }
  void Counter(std::string_view name, double value, std::string_view help) {
    Head(name, "counter", help);
    Value(name, value);
  }
  void Gauge(std::string_view name, double value, std::string_view help) {
    Head(name, "gauge", help);
    Value(name, value);
  }
  void Counters(std::string_view name, std::string_view label,
                const std::map<std::string, uint64_t>& values, std::string_view help) {
    Head(name, "counter", help);
    for (const auto& [key, value] : values) {
      Value(name, static_cast<double>(value), fmt::format(",{}=\"{}\"", label, Escaped(key)));
    }
  }
  void Add(std::string_view name, const Histogram& histogram, std::string_view help) {
    Head(name, "histogram", help);
    const std::string bucket = std::string(name) + "_bucket";
    uint64_t below = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      below += histogram.counts()[i];
      const bool last = i == histogram.bounds().size();
      Value(bucket, static_cast<double>(below),
            fmt::format(",le=\"{}\"", last ? "+Inf" : fmt::format("{}", histogram.bounds()[i])));
    }
    Value(std::string(name) + "_sum", histogram.sum());
    Value(std::string(name) + "_count", static_cast<double>(histogram.count()));
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string prefix_;
  std::string labels_;
  std::string text_;
};

// vLLM's names.
void AddSpeculation(const EngineStats& stats, Page& page) {
  page.Counter("spec_decode_num_drafts_total", static_cast<double>(stats.drafts),
               "Sequences in steps that had guesses.");
  page.Counter("spec_decode_num_draft_tokens_total", static_cast<double>(stats.drafted),
               "Guesses that steps verified.");
  page.Counter("spec_decode_num_accepted_tokens_total", static_cast<double>(stats.accepted),
               "Guesses that were right.");
  constexpr std::string_view kName = "spec_decode_num_accepted_tokens_per_pos_total";
  page.Head(kName, "counter", "The same by their place in the draft.");
  for (size_t i = 0; i < stats.accepted_at.size(); ++i) {
    page.Value(kName, static_cast<double>(stats.accepted_at[i]),
               fmt::format(",position=\"{}\"", i));
  }
}

void AddEngine(const EngineStats& stats, Page& page) {
  page.Gauge("num_requests_running", stats.running, "Sequences that hold KV pages.");
  page.Gauge("num_requests_waiting", stats.waiting, "Sequences in the queue.");
  const double total = std::max(stats.kv_pages_total, 1);
  page.Gauge("kv_cache_usage_perc", stats.kv_pages_used / total,
             "Share of the KV pages that sequences hold; 1 is all.");
  page.Head("kv_pages", "gauge", "KV pages by state.");
  const int free = stats.kv_pages_total - stats.kv_pages_used - stats.kv_pages_cached;
  page.Value("kv_pages", stats.kv_pages_used, ",state=\"used\"");
  page.Value("kv_pages", stats.kv_pages_cached, ",state=\"cached\"");
  page.Value("kv_pages", free, ",state=\"free\"");
  page.Counter("num_preemptions_total", static_cast<double>(stats.preemptions),
               "Sequences that gave up their pages for others.");
  page.Head("preemptions_total", "counter", "The same by what had no page.");
  page.Value("preemptions_total", static_cast<double>(stats.preemptions_for_answers),
             ",reason=\"answer\"");
  page.Value("preemptions_total", static_cast<double>(stats.preemptions_for_prompts),
             ",reason=\"prompt\"");
  page.Head("read_bytes_total", "counter", "Bytes that steps read from memory.");
  page.Value("read_bytes_total", stats.weight_bytes, ",kind=\"weights\"");
  page.Value("read_bytes_total", stats.kv_bytes, ",kind=\"kv\"");
  page.Head("read_bytes_per_step", "gauge", "The same for a step, on average.");
  const double steps = std::max(static_cast<double>(stats.steps), 1.0);
  page.Value("read_bytes_per_step", stats.weight_bytes / steps, ",kind=\"weights\"");
  page.Value("read_bytes_per_step", stats.kv_bytes / steps, ",kind=\"kv\"");
  page.Counter("steps_total", static_cast<double>(stats.steps), "Steps of the engine.");
  page.Counter("step_tokens_total", static_cast<double>(stats.rows),
               "Tokens that steps computed, of prompts and answers.");
  page.Counter("prefix_cache_request_hits_total", static_cast<double>(stats.prefix_hits),
               "Sequences that began with pages of the prefix cache.");
  page.Counter("prefix_cache_hits_total", static_cast<double>(stats.cached_tokens),
               "Prompt tokens taken from the prefix cache.");
  if (stats.speculates) AddSpeculation(stats, page);
}

void AddSteps(const MetricsInput& input, double read_bytes_per_s, Page& page) {
  if (input.steps != nullptr) {
    page.Add("step_time_seconds", input.steps->seconds, "Seconds of a step.");
    page.Add("iteration_tokens_total", input.steps->rows, "Tokens that a step computes.");
  }
  page.Gauge("read_bytes_per_second", read_bytes_per_s,
             "Bytes of weights, keys and values per second of the steps that ran last.");
  if (input.read_bandwidth <= 0) return;
  page.Gauge("read_bandwidth_bytes_per_second", input.read_bandwidth,
             "What this machine's memory gives, measured at the start.");
  page.Gauge("bandwidth_fraction", read_bytes_per_s / input.read_bandwidth,
             "The one as a share of the other.");
}

void AddConfig(const EnginePlan& plan, Page& page) {
  page.Head("cache_config_info", "gauge", "How the KV cache is laid out.");
  page.Value(
      "cache_config_info", 1,
      fmt::format(",block_size=\"{}\",num_gpu_blocks=\"0\",num_cpu_blocks=\"{}\","
                  "kv_tokens=\"{}\",max_model_len=\"{}\"",
                  kPageTokens, plan.kv_tokens / kPageTokens, plan.kv_tokens, plan.max_context));
}

void AddHttp(const MetricsInput& input, Page& page) {
  page.Gauge("http_connections", input.http.connections, "Open connections.");
  page.Counter("http_connections_total", static_cast<double>(input.http.accepted),
               "Connections that came.");
  page.Counter("http_connections_refused_total", static_cast<double>(input.http.refused),
               "Connections beyond the most that may be open.");
  page.Counter("http_clients_dropped_total", static_cast<double>(input.http.dropped),
               "Clients that did not read what they asked for.");
  page.Counter("http_timeouts_total", static_cast<double>(input.http.timeouts),
               "Heads and bodies of requests that did not come in time.");
  page.Gauge("http_body_bytes", static_cast<double>(input.http.body_bytes),
             "Bodies of requests that are held.");
}

}  // namespace

Metrics::Metrics()
    : time_to_first_token(kFirstTokenBounds),
      inter_token_latency(kTokenBounds),
      time_per_output_token(kTokenBounds),
      e2e_latency(kRequestBounds),
      queue_time(kRequestBounds),
      prefill_time(kRequestBounds),
      decode_time(kRequestBounds),
      prompt_tokens(kCountBounds),
      generation_tokens(kCountBounds),
      params_n(kChoiceBounds),
      params_max_tokens(kCountBounds),
      most_generation_tokens(kCountBounds),
      inference_time(kRequestBounds),
      computed_prompt_tokens(kCountBounds) {}

void Metrics::AddFinished(int choice, std::string_view reason, const Usage& usage, double e2e_s) {
  ++finished[std::string(reason)];
  e2e_latency.Add(e2e_s);
  queue_time.Add(usage.queue_s);
  prefill_time.Add(usage.prefill_s);
  decode_time.Add(usage.decode_s);
  inference_time.Add(usage.prefill_s + usage.decode_s);
  generation_tokens.Add(usage.generated_tokens);
  if (usage.generated_tokens > 1) {
    time_per_output_token.Add(usage.decode_s / (usage.generated_tokens - 1));
  }
  generation_tokens_total += static_cast<uint64_t>(usage.generated_tokens);
  decode_weight_bytes_total += usage.decode_weight_bytes;
  decode_kv_bytes_total += usage.decode_kv_bytes;
  decode_steps_total += static_cast<uint64_t>(usage.decode_steps);
  if (choice != 0) return;
  prompt_tokens.Add(usage.prompt_tokens);
  computed_prompt_tokens.Add(usage.prompt_tokens - usage.cached_prompt_tokens);
  prompt_tokens_total += static_cast<uint64_t>(usage.prompt_tokens);
  cached_prompt_tokens_total += static_cast<uint64_t>(usage.cached_prompt_tokens);
}

std::string MetricsText(const Metrics& m, const MetricsInput& input) {
  Page page(input.prefix, input.model);
  if (input.engine != nullptr) AddEngine(*input.engine, page);
  if (input.plan != nullptr) AddConfig(*input.plan, page);
  AddSteps(input, m.read_bytes_per_s, page);
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  page.Counter("prefix_cache_queries_total", number(m.prompt_tokens_total),
               "Prompt tokens that were looked for in the prefix cache.");
  page.Counter("prompt_tokens_total", number(m.prompt_tokens_total), "Prompt tokens.");
  page.Counter("prompt_tokens_cached_total", number(m.cached_prompt_tokens_total),
               "Prompt tokens that were not computed: from the prefix cache or another choice.");
  page.Counter("generation_tokens_total", number(m.generation_tokens_total), "Generated tokens.");
  page.Counters("request_success_total", "finished_reason", m.finished, "Sequences that ended.");
  page.Counters("requests_refused_total", "reason", m.refused, "Generations that were refused.");
  page.Counters("requests_by_key_total", "key", m.by_key, "Generations by the name of their key.");
  page.Counters("http_responses_total", "status", m.responses, "Responses by status.");
  page.Gauge("queued_tokens", static_cast<double>(input.queued_tokens),
             "Prompt tokens of requests whose answers have not begun.");
  page.Gauge("weight_bytes_per_step", static_cast<double>(input.weight_bytes_per_step),
             "Bytes of weights that a step reads.");
  page.Counter("decode_weight_bytes_total", m.decode_weight_bytes_total,
               "Bytes of weights behind generated tokens, as if each request had been alone.");
  page.Counter("decode_kv_bytes_total", m.decode_kv_bytes_total,
               "Bytes of keys and values read for generated tokens.");
  page.Counter("decode_steps_total", number(m.decode_steps_total),
               "Steps behind generated tokens, of all sequences.");
  page.Gauge("resident_bytes", static_cast<double>(input.resident_bytes),
             "Private memory of the process.");
  AddHttp(input, page);
  page.Add("time_to_first_token_seconds", m.time_to_first_token,
           "From a request to its first token.");
  page.Add("inter_token_latency_seconds", m.inter_token_latency, "Between two tokens.");
  page.Add("time_per_output_token_seconds", m.time_per_output_token,
           "Mean seconds per token behind the first, of a sequence.");
  page.Add("request_time_per_output_token_seconds", m.time_per_output_token,
           "The same under vLLM's later name.");
  page.Add("e2e_request_latency_seconds", m.e2e_latency, "From a request to its end.");
  page.Add("request_queue_time_seconds", m.queue_time, "From a request to its first step.");
  page.Add("request_prefill_time_seconds", m.prefill_time, "From there to the first token.");
  page.Add("request_inference_time_seconds", m.inference_time,
           "From its first step to its last token.");
  page.Add("request_decode_time_seconds", m.decode_time, "From there to the last token.");
  page.Add("request_prompt_tokens", m.prompt_tokens, "Tokens of a prompt.");
  page.Add("request_generation_tokens", m.generation_tokens, "Tokens of an answer.");
  page.Add("request_max_num_generation_tokens", m.most_generation_tokens,
           "Tokens of a prompt's longest answer.");
  page.Add("request_prefill_kv_computed_tokens", m.computed_prompt_tokens,
           "Prompt tokens that were computed.");
  page.Add("request_params_max_tokens", m.params_max_tokens, "max_tokens, where it is given.");
  page.Add("request_params_n", m.params_n, "Choices that a request asks for.");
  return page.Take();
}

}  // namespace nibble::server
