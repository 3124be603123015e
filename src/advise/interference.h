#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "cost/serving_report.h"
#include "engine/engine.h"

namespace nibble {

// What a long prompt does to answers that are being generated, and they to it.
struct Interference {
  int answers = 0;        // being generated
  int prompt = 0;         // tokens of the prompt
  Summary alone_s = {};   // time between two tokens of an answer, before and after the prompt
  Summary during_s = {};  // and from when it came until its first token
  int tokens_during = 0;  // that an answer got meanwhile
  double prompt_ttft_s = 0;
  double prompt_alone_ttft_s = 0;  // of another prompt of this length when nothing else runs

  double Slowdown() const { return alone_s.mean > 0 ? during_s.mean / alone_s.mean : 0; }
};

struct InterferenceOptions {
  int prompt = 8192;
  int answers = 1;
  int alone_tokens = 64;  // that answers are timed over before the prompt comes and after
  uint64_t seed = 0;
  std::function<bool()> keep_going = {};  // false: stop
};

// Errors: a context that does not hold the prompt, or kCancelled.
Result<Interference> MeasureInterference(Engine& engine, const InterferenceOptions& options);

}  // namespace nibble
