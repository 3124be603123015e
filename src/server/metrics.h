#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/histogram.h"
#include "server/http_server.h"
#include "server/recent_latencies.h"
#include "server/step_meter.h"

namespace nibble::server {

// What a server counts, for one thread. Names and buckets are vLLM's where it has them.
struct Metrics {
  Metrics();

  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram time_per_output_token;  // mean of a request
  Histogram e2e_latency;
  Histogram queue_time;
  Histogram prefill_time;
  Histogram decode_time;
  Histogram prompt_tokens;
  Histogram generation_tokens;
  Histogram params_n;
  Histogram params_max_tokens;
  Histogram most_generation_tokens;  // of a request's longest answer
  Histogram inference_time;
  Histogram computed_prompt_tokens;

  uint64_t prompt_tokens_total = 0;
  uint64_t cached_prompt_tokens_total = 0;
  uint64_t generation_tokens_total = 0;
  double decode_weight_bytes_total = 0;
  double decode_kv_bytes_total = 0;
  uint64_t decode_steps_total = 0;
  double read_bytes_per_s = 0;  // while steps ran, over the last second in which any did
  std::map<std::string, uint64_t> finished;   // by reason
  std::map<std::string, uint64_t> refused;    // generations, by reason
  std::map<std::string, uint64_t> by_key;     // generations, by the name of their key
  std::map<std::string, uint64_t> responses;  // by status

  RecentLatencies recent_first_token;
  RecentLatencies recent_inter_token;

  // A choice that has ended. tokens: of its prompt, counted with its first choice.
  void AddFinished(int choice, std::string_view reason, const Usage& usage, double e2e_s);
};

struct MetricsInput {
  std::string prefix;  // "nibble" or "vllm"
  std::string model;
  const EngineStats* engine = nullptr;  // null while loading
  const EnginePlan* plan = nullptr;
  const StepMeter::Histograms* steps = nullptr;
  double read_bandwidth = 0;  // bytes per second that the machine reads; 0: not measured
  size_t weight_bytes_per_step = 0;
  int64_t queued_tokens = 0;
  HttpCounters http = {};
  size_t resident_bytes = 0;
};
// The page in Prometheus's text format 0.0.4.
std::string MetricsText(const Metrics& metrics, const MetricsInput& input);

}  // namespace nibble::server
