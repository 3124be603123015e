#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "engine/step_record.h"
#include "server/histogram.h"
#include "server/line_file.h"

namespace nibble::server {

// Watches the engine's steps: for /metrics, for whoever looks at the last ones, and for
// --trace-steps. All but OnStep may be called from any thread.
class StepMeter : public StepObserver {
 public:
  // steps: a line for each, or null. Outlives this.
  explicit StepMeter(LineFile* steps = nullptr, double start_s = 0);

  void OnStep(const StepRecord& step) override;

  struct Histograms {
    Histogram seconds;
    Histogram rows;
  };
  Histograms histograms() const;
  // At most `most` steps, the newest last.
  std::vector<StepRecord> Last(size_t most) const;

 private:
  LineFile* steps_;
  double start_s_;
  mutable std::mutex mutex_;
  Histograms histograms_;
  std::deque<StepRecord> last_;
};

// The line of --trace-steps.
std::string StepLine(const StepRecord& step, double start_s);

}  // namespace nibble::server
