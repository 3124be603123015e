// deps: cost
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cost/trace.h"

// Whatever the bytes are: an error, or requests in order with lengths and times that are numbers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  if (size < 2) return 0;
  TraceOptions options{.limit = data[1]};
  if (data[0] < std::size(kTraceFormatNames)) options.format = static_cast<TraceFormat>(data[0]);
  auto trace = ReadTrace({reinterpret_cast<const char*>(data) + 2, size - 2}, options);
  if (!trace) return 0;
  SetRate(*trace, 3, data[1]);
  double last = 0;
  for (const TraceRequest& request : trace->requests) {
    const bool lengths = request.input_tokens >= 0 && request.input_tokens <= kMostTraceTokens &&
                         request.output_tokens >= 0 && request.output_tokens <= kMostTraceTokens;
    if (!lengths || !(request.arrival_s >= last)) std::abort();
    last = request.arrival_s;
  }
  if (trace->requests[0].input_tokens < 5000) TracePrompt(trace->requests[0], 0, 7, 1);
  return 0;
}
