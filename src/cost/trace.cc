#include "cost/trace.h"

#include <algorithm>
#include <cmath>
#include <spanstream>
#include <utility>

#include "base/split_mix.h"
#include "cost/trace_reader.h"

namespace nibble {
namespace {

// Times from the earliest one on, in order.
void SortByArrival(Trace& trace) {
  const double first =
      std::ranges::min_element(trace.requests, {}, &TraceRequest::arrival_s)->arrival_s;
  for (TraceRequest& request : trace.requests) request.arrival_s -= first;
  std::ranges::stable_sort(trace.requests, {}, &TraceRequest::arrival_s);
}

}  // namespace

Result<Trace> ReadTrace(std::string_view text, const TraceOptions& options) {
  std::ispanstream in(std::span(text.data(), text.size()));
  NIBBLE_TRY(TraceReader reader, TraceReader::Open(in, options));
  Trace trace{.format = reader.format(), .has_arrivals = false, .requests = {}};
  while (true) {
    NIBBLE_TRY(auto request, reader.Next());
    if (!request) break;
    trace.requests.push_back(*std::move(request));
  }
  trace.has_arrivals = reader.has_arrivals();
  if (trace.requests.empty()) return BadInput("no requests");
  SortByArrival(trace);
  return trace;
}

void SetRate(Trace& trace, double rate, uint64_t seed) {
  std::vector<TraceRequest>& requests = trace.requests;
  const double span = requests.empty() ? 0 : requests.back().arrival_s;
  if (trace.has_arrivals && span > 0) {
    const double stretched = static_cast<double>(requests.size()) / rate;
    for (TraceRequest& request : requests) request.arrival_s *= stretched / span;
    return;
  }
  double now = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival_s = now;
    now -= std::log(UniformOf(SplitMixAt(SplitMix(seed + kSplitMixStep), i))) / rate;
  }
  trace.has_arrivals = true;
}

Trace SharedPrefixTrace(int count, int prefix, int suffix, int output, uint64_t seed) {
  Trace trace;
  for (int i = 0; i < count; ++i) {
    const uint64_t bits = SplitMixAt(SplitMix(seed), static_cast<uint64_t>(i));
    const int own = 1 + static_cast<int>(bits % static_cast<uint64_t>(suffix));
    TraceRequest request{.input_tokens = prefix + own, .output_tokens = output};
    for (int block = 0; block < prefix / kTraceBlockTokens; ++block) {
      request.blocks.push_back(block);
    }
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

std::vector<TokenId> TracePrompt(const TraceRequest& request, size_t index, int vocabulary,
                                 uint64_t seed) {
  std::vector<TokenId> prompt;
  prompt.reserve(static_cast<size_t>(request.input_tokens));
  const uint64_t own = SplitMix(SplitMix(seed + kSplitMixStep) + index);
  for (int i = 0; i < request.input_tokens; ++i) {
    const auto block = static_cast<size_t>(i / request.block_tokens);
    const bool shared = block < request.blocks.size();
    const uint64_t stream =
        shared ? SplitMix(SplitMix(seed) ^ static_cast<uint64_t>(request.blocks[block])) : own;
    const int at = shared ? i % request.block_tokens : i;
    const uint64_t bits = SplitMixAt(stream, static_cast<uint64_t>(at));
    prompt.emplace_back(static_cast<int32_t>(bits % static_cast<uint64_t>(vocabulary)));
  }
  return prompt;
}

}  // namespace nibble
