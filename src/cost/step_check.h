#pragma once

#include <istream>
#include <string>

#include "base/result.h"
#include "cost/line_reader.h"
#include "cost/simulator.h"

namespace nibble {

// One line of `serve --trace-steps`, as far as a plan decides it.
struct LoggedStep {
  int64_t number = 0;
  double seconds = 0;
  double price_s = 0;
  int rows = 0;
  int prompt_rows = 0;
  int sequences = 0;
  int accepted = 0;
  int admitted = 0;
  int preempted = 0;
  int running = 0;
  int waiting = 0;
};
// Errors name the key, what was expected and what was found.
Result<LoggedStep> ReadLoggedStep(std::string_view line);

// Compares the steps of a simulation with those of a server, one after another.
class StepCheck : public SimulationObserver {
 public:
  // steps: of --trace-steps; outlives this.
  explicit StepCheck(std::istream& steps) : lines_(steps) {}
  void OnStep(const SimulatedStep& step) override;
  // What is left in the log counts as different. Errors: the log is broken.
  Status Finish();

  int64_t compared() const { return compared_; }
  int64_t different() const { return different_; }
  const std::string& first_difference() const { return first_; }  // empty: none

 private:
  void Differ(std::string what);

  LineReader lines_;
  Status status_;
  int64_t compared_ = 0;
  int64_t different_ = 0;
  std::string first_;
};

}  // namespace nibble
