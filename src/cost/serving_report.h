#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nibble {

// What happened to one request of a trace. Times are seconds of the clock of its arrivals.
struct RequestTimes {
  double arrival_s = 0;              // as the trace says, not when it was taken
  bool rejected = false;             // refused: too long, or the queue was full
  std::vector<double> token_s = {};  // of every generated token
  bool finished = false;
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of those, from the prefix cache
};

struct Summary {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};
// Percentiles as numpy's default: linear between the two nearest values. Zeros for no values.
Summary Summarise(std::vector<double> values);

// What serving a trace took: measured by `bench --serve-trace`, predicted by a simulator.
struct ServingReport {
  int requests = 0;
  int finished = 0;
  int rejected = 0;
  int64_t prompt_tokens = 0;     // of finished requests
  int64_t generated_tokens = 0;  // of finished requests
  double duration_s = 0;         // from the first arrival to the last token
  double throughput_tok_s = 0;   // generated tokens over the duration
  Summary ttft_s;                // from arrival to the first token
  Summary tpot_s;                // of each answer: mean time between tokens after the first
  Summary itl_s;                 // every time between two tokens of an answer
  Summary e2e_s;                 // from arrival to the last token
  // Of the scheduler.
  int64_t preemptions = 0;
  int64_t steps = 0;
  int64_t prefix_hit_tokens = 0;
  int kv_peak_pages = 0;
  double wall_s = 0;   // that measuring or simulating took
  std::string source;  // "measured" or what predicted it
};

// All but what the scheduler knows.
ServingReport MakeServingReport(const std::vector<RequestTimes>& requests);

}  // namespace nibble
