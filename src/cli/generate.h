#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/event_stream.h"

namespace nibble::cli {

// While it lives, Ctrl-C sets a flag instead of ending the program.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // True once per Ctrl-C.
  static bool Take();
};

// Runs one request to its end. on_text gets pieces as they come; Ctrl-C cancels the request (the
// answer so far is returned with kCancelled).
Result<Answer> Generate(Engine& engine, Request request,
                        const std::function<void(std::string_view)>& on_text);

// Speed and bytes of one answer, for people and for --json.
struct RunStats {
  Usage usage;
  double prefill_tok_s = 0;
  double decode_tok_s = 0;
  double weight_bytes_per_step = 0;
  double kv_bytes_per_step = 0;
  double achieved_bandwidth = 0;  // bytes per second while generating
};
RunStats MakeRunStats(const Engine& engine, const Usage& usage);

// "136 tokens/s, 98.4 MB per token, 13.4 GB/s: 61% of this machine's read bandwidth".
// read_bandwidth 0: not measured, the fraction is left out.
std::string DescribeSpeed(const RunStats& stats, double read_bandwidth);

// "speculation: 120 of 200 guesses right, 2.4 tokens a step; right at 1, 2 …: 80%, 61%".
std::string DescribeSpeculation(const Usage& usage);

// Read bandwidth of this machine with as many threads as the engine has, measured now for a third
// of a second; 0 when there is no memory for the buffer.
double MeasureReadBandwidth(const Engine& engine);

}  // namespace nibble::cli
