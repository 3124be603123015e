#pragma once

#include <functional>

#include "advise/advice.h"
#include "base/result.h"
#include "kernels/activations.h"
#include "model/kv_groups.h"

namespace nibble {

class Decoder;
class ModelFile;
class ThreadPool;
struct KernelTable;

struct SpeedMeterInput {
  const ModelFile& file;
  Decoder& decoder;  // of it; room for `context` positions
  const KernelTable& kernels;
  ThreadPool& pool;
  Act act = Act::kInt8;
  KvFormats kv = {};
  int batch = 1;
  int context = 2048;
  std::function<bool()> keep_going = {};
};

// Times decode steps of `batch` sequences at the end of their context, and one prompt of the whole
// context alone: medians, with the spread of the repetitions, at least 3%, as their error. Errors:
// no memory for the pages (both figures), kCancelled.
Result<SpeedMeasurement> MeasureSpeed(const SpeedMeterInput& input);

// Steps that MeasureSpeed computes, for estimates of what it takes.
inline constexpr int kTimedSteps = 8;
inline constexpr int kTimedRounds = 4;  // one warms up

}  // namespace nibble
