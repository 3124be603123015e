// deps: cost
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "cost/arrivals.h"
#include "cost/served_config.h"
#include "cost/simulator.h"

// Whatever a log of our own server says: an error, or a simulation that ends with every request
// finished, cancelled or refused. data[0]: follow the log's steps or its times.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::istringstream first(text), second(text);
  const TraceOptions format{.format = TraceFormat::kNibble, .limit = 64};
  const auto survey = SurveyTrace(first, format);
  if (!survey) return 0;
  auto served = ReadServedConfig(survey->head);
  if (!served) return 0;
  SimulatorOptions& options = served->options;
  options.by_step = (data[0] & 1) != 0;
  // Long requests cost time, not paths.
  options.max_context = std::min(options.max_context, 4096);
  int64_t steps = 0;
  options.progress = [&](int64_t /*done*/) { return ++steps < 64; };
  const auto stream = TraceStream::Open(second, format, *survey, {.as_queued = options.by_step});
  if (!stream) std::abort();
  PriceTimer timer(options.price);
  const auto result = Simulate(**stream, timer, options);
  if (!result) return 0;
  const ServingReport& report = result->report;
  if (report.finished + report.rejected + result->cancelled != report.requests) std::abort();
  return 0;
}
