#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "cost/calibration.h"
#include "platform/cpu.h"

namespace nibble {

class ThreadPool;

struct CalibrateOptions {
  bool quick = false;  // about 20 seconds: fewer rows, one round
  // Called some times a second with what is being measured and the part done, 0 to 1; false: stop.
  std::function<bool(std::string_view stage, double part)> progress = {};
};

// Measures this machine with the pool's threads and one instruction set: bandwidths, every weight
// format's products, attention over every format of pages, overheads. Under a minute. Rates are
// medians over repeated rounds. Errors: kNoRoom for the buffers, kCancelled.
Result<Calibration> Calibrate(ThreadPool& pool, Isa isa, const CalibrateOptions& options);

}  // namespace nibble
