#pragma once

#include <optional>
#include <string>

#include "advise/interference.h"
#include "advise/replay.h"
#include "cli/json_output.h"

namespace nibble::cli {

// {mean, p50, p90, p99}
Json SummaryJson(const Summary& summary);
// The keys that `simulate` has, too.
Json ServingReportJson(const ServingReport& report);

// "md", "csv", "json" or "jsonl" to standard output: rows as they come, json as one object at the
// end. The rows of one printer are of one kind.
class ServePrinter {
 public:
  ServePrinter(std::string output, std::string model);

  void Replay(const std::string& batching, const ServingReport& report);
  // The first request computes the prefix, the others find it.
  void SharedPrefix(const ReplayResult& result, int prefix);
  // max_step_ms: none is the default rule, 0 no limit.
  void Interfere(const std::optional<double>& max_step_ms, const Interference& measured);
  void Finish();

 private:
  // head: two lines of a table, printed before the first row.
  void Row(Json row, const std::string& head, const std::string& line);

  std::string output_;
  std::string model_;
  Json rows_ = Json::array();
};

}  // namespace nibble::cli
