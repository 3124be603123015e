#include "cost/serving_report.h"

#include <algorithm>
#include <numeric>

namespace nibble {

Summary Summarise(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double fraction) {
    const double place = fraction * static_cast<double>(values.size() - 1);
    const auto low = static_cast<size_t>(place);
    const size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
  };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), at(0.5), at(0.9), at(0.99)};
}

ServingReport MakeServingReport(const std::vector<RequestTimes>& requests) {
  ServingReport report;
  std::vector<double> ttft, tpot, itl, e2e;
  double first = 0, last = 0;
  for (const RequestTimes& request : requests) {
    first = report.requests == 0 ? request.arrival_s : std::min(first, request.arrival_s);
    ++report.requests;
    report.rejected += request.rejected ? 1 : 0;
    if (!request.finished) continue;
    ++report.finished;
    report.prompt_tokens += request.prompt_tokens;
    const std::vector<double>& tokens = request.token_s;
    report.generated_tokens += static_cast<int64_t>(tokens.size());
    if (tokens.empty()) continue;
    last = std::max(last, tokens.back());
    ttft.push_back(tokens.front() - request.arrival_s);
    e2e.push_back(tokens.back() - request.arrival_s);
    for (size_t i = 1; i < tokens.size(); ++i) itl.push_back(tokens[i] - tokens[i - 1]);
    if (tokens.size() > 1) {
      tpot.push_back((tokens.back() - tokens.front()) / static_cast<double>(tokens.size() - 1));
    }
  }
  report.duration_s = std::max(0.0, last - first);
  if (report.duration_s > 0) {
    report.throughput_tok_s = static_cast<double>(report.generated_tokens) / report.duration_s;
  }
  report.ttft_s = Summarise(std::move(ttft));
  report.tpot_s = Summarise(std::move(tpot));
  report.itl_s = Summarise(std::move(itl));
  report.e2e_s = Summarise(std::move(e2e));
  return report;
}

}  // namespace nibble
