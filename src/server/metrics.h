#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/http_server.h"
#include "server/recent_latencies.h"

namespace nibble::server {

// Counts of values up to ascending bounds, as Prometheus has them.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void Add(double value);
  std::span<const double> bounds() const { return bounds_; }
  std::span<const uint64_t> counts() const { return counts_; }  // the last: above all bounds
  double sum() const { return sum_; }
  uint64_t count() const { return count_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

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

  uint64_t prompt_tokens_total = 0;
  uint64_t cached_prompt_tokens_total = 0;
  uint64_t generation_tokens_total = 0;
  double decode_weight_bytes_total = 0;
  double decode_kv_bytes_total = 0;
  uint64_t decode_steps_total = 0;
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
  size_t weight_bytes_per_step = 0;
  int64_t queued_tokens = 0;
  HttpCounters http = {};
  size_t resident_bytes = 0;
};
// The page in Prometheus's text format 0.0.4.
std::string MetricsText(const Metrics& metrics, const MetricsInput& input);

}  // namespace nibble::server
