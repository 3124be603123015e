#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace nibble {

// Files of requests that somebody's service was asked, as they are published: lengths and times, no
// texts. Times become seconds after the earliest one.
enum class TraceFormat : uint8_t {
  kAzure,       // CSV: TIMESTAMP (a date), ContextTokens, GeneratedTokens
  kVidur,       // CSV: arrived_at (s, may be missing), num_prefill_tokens, num_decode_tokens
  kServingSim,  // CSV: arrival_time_ns, input_toks, output_toks
  kMooncake,    // JSON lines: timestamp (ms), input_length, output_length, hash_ids
  kJsonl,       // JSON lines: input_toks, output_toks; arrival_time_ns or arrival_time (s), or none
  kNibble,      // of `nibble serve --trace-log`: as jsonl, behind a line with the configuration
};
inline constexpr std::string_view kTraceFormatNames[] = {"azure",    "vidur", "servingsim",
                                                         "mooncake", "jsonl", "nibble"};
std::string_view TraceFormatName(TraceFormat format);

// What a log of our own server says beside lengths and times, so that a simulation can follow it.
struct ServedFacts {
  int priority = 0;
  int max_tokens = -1;            // that the request asked for; none: until the context was full
  int64_t order = -1;             // among all requests, as the scheduler got them; none: -1
  int64_t queued_step = -1;       // steps before it was queued; none: -1
  int64_t ended_step = -1;        // steps before it had ended; none: -1
  bool cancelled = false;         // behind ended_step
  std::vector<int> choices = {};  // lengths of its answers, where there are several
};

struct TraceRequest {
  double arrival_s = 0;
  int input_tokens = 0;   // 0 … kMostTraceTokens
  int output_tokens = 0;  // 0 … kMostTraceTokens
  // Names of the prompt's blocks of block_tokens tokens: prompts whose first names are equal begin
  // alike. Tokens behind the last name are the request's own.
  std::vector<int64_t> blocks = {};
  int block_tokens = 512;
  std::optional<ServedFacts> served = {};  // kNibble only
};

inline constexpr int kMostTraceTokens = 1 << 24;
inline constexpr int kTraceBlockTokens = 512;  // of files that do not say

struct Trace {
  TraceFormat format = TraceFormat::kJsonl;
  bool has_arrivals = false;           // else all arrive at 0
  std::vector<TraceRequest> requests;  // by arrival; equal ones in the order of the file
};

struct TraceOptions {
  std::optional<TraceFormat> format = {};  // none: told by the first line
  size_t limit = 0;                        // requests, from the file's beginning; 0: all
};

// Errors name line and column, what was expected and what was found. A file without requests is
// one, too.
Result<Trace> ReadTrace(std::string_view text, const TraceOptions& options = {});

// So many requests a second on average: the file's times are stretched, which keeps its bursts;
// where it has none, or one only, times between arrivals are exponential (a Poisson process).
// rate > 0, finite.
void SetRate(Trace& trace, double rate, uint64_t seed);

// The first of `count` requests and the others begin with the same `prefix` tokens (whole blocks);
// behind them each has 1 … `suffix` tokens of its own. All arrive at 0.
Trace SharedPrefixTrace(int count, int prefix, int suffix, int output, uint64_t seed);

// The prompt of a request as token ids 0 … vocabulary - 1: random, the same for the same names of
// blocks, seed and index.
std::vector<TokenId> TracePrompt(const TraceRequest& request, size_t index, int vocabulary,
                                 uint64_t seed);

}  // namespace nibble
