#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "container/output_file.h"
#include "cost/simulator.h"

namespace nibble {

// Steps and requests as a Chrome trace, for chrome://tracing and Perfetto: a track of steps,
// counters of sequences and pages, and for each request its waiting, its prompt and its answer.
class EventFile : public SimulationObserver {
 public:
  static Result<EventFile> Create(const std::filesystem::path& path);
  void OnStep(const SimulatedStep& step) override;
  void OnRequest(const SimulatedRequest& request) override;
  // Until here nothing is under the path. Errors: of any write before.
  Status Finish();

 private:
  explicit EventFile(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  std::string pending_;
  Status status_;
};

// A line of JSON for each request, in the order of their ends.
class RequestFile : public SimulationObserver {
 public:
  static Result<RequestFile> Create(const std::filesystem::path& path);
  void OnRequest(const SimulatedRequest& request) override;
  Status Finish();

 private:
  explicit RequestFile(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  std::string pending_;
  Status status_;
};

}  // namespace nibble
