#include "server/step_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nibble::server {
namespace {

constexpr size_t kMostLast = 64;
constexpr double kStepBounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                  0.02,   0.03,    0.05,   0.075, 0.1,    0.15,  0.25,
                                  0.5,    1,       2.5,    5,     10};
constexpr double kRowBounds[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

}  // namespace

StepMeter::StepMeter(LineFile* steps, double start_s)
    : steps_(steps),
      start_s_(start_s),
      histograms_{.seconds = Histogram(kStepBounds), .rows = Histogram(kRowBounds)} {}

void StepMeter::OnStep(const StepRecord& step) {
  if (steps_ != nullptr) steps_->Add(StepLine(step, start_s_));
  const std::scoped_lock lock(mutex_);
  histograms_.seconds.Add(step.seconds);
  histograms_.rows.Add(step.rows);
  if (last_.size() == kMostLast) last_.pop_front();
  last_.push_back(step);
}

StepMeter::Histograms StepMeter::histograms() const {
  const std::scoped_lock lock(mutex_);
  return histograms_;
}

std::vector<StepRecord> StepMeter::Last(size_t most) const {
  const std::scoped_lock lock(mutex_);
  const size_t count = std::min(most, last_.size());
  return {last_.end() - static_cast<ptrdiff_t>(count), last_.end()};
}

std::string StepLine(const StepRecord& step, double start_s) {
  int prompt_rows = 0;
  for (const StepRecord::Span& span : step.spans) prompt_rows += span.answer ? 0 : span.rows;
  return fmt::format(
      R"({{"step":{},"begin_ns":{:.0f},"seconds":{:.9f},"price_s":{:.9f},"rows":{},)"
      R"("prompt_rows":{},"sequences":{},"accepted":{},"admitted":{},"preempted":{},)"
      R"("cancelled":{},"running":{},"waiting":{},"weight_bytes":{:.0f},"kv_bytes":{:.0f},)"
      R"("drafted":{},"drafted_right":{}}})",
      step.number, std::max((step.begin_s - start_s) * 1e9, 0.0), step.seconds, step.price_s,
      step.rows, prompt_rows, step.spans.size(), step.sampled, step.admitted, step.preempted,
      step.cancelled, step.running, step.waiting, step.weight_bytes, step.kv_bytes, step.drafted,
      step.accepted);
}

}  // namespace nibble::server
