#include "advise/speed_meter.h"

#include <algorithm>
#include <cmath>

#include "advise/bench.h"
#include "advise/model_work.h"
#include "base/statistics.h"
#include "base/text.h"
#include "model/config/model_file.h"
#include "model/decoder.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// What two runs of the same on a quiet machine differ by.
constexpr double kLeastError = 0.03;
constexpr double kPromptSeconds = 1;  // of repetitions
constexpr int kMostPrompts = 3;

struct MedianError {
  double median = 0;
  double error = 0;
};

MedianError MedianOf(std::vector<double> seconds) {
  const double median = Median(seconds);
  double squares = 0;
  for (const double s : seconds) squares += (s - median) * (s - median);
  const double deviation = std::sqrt(squares / static_cast<double>(seconds.size()));
  return {.median = median, .error = std::max(deviation, kLeastError * median)};
}

Status CheckRoom(const SpeedMeterInput& input) {
  NIBBLE_TRY(const std::vector<KvGroup> groups, MakeKvGroups(input.decoder.config(), input.kv));
  const BenchCase test{.gen = input.context, .batch = input.batch};
  const double needed = ModelBench::KvBytes(groups, test);
  const auto free = static_cast<double>(ReadTopology().memory_available);
  if (needed <= 0.9 * free) return {};
  return Fail(ErrorKind::kNoRoom, "{} sequences of {} tokens need {} of cache, and {} are free",
              input.batch, input.context, FormatBytes(needed), FormatBytes(free));
}

Result<ModelBench> BenchOf(const SpeedMeterInput& input, const ModelWork& work, int batch) {
  return ModelBench::Create(input.decoder, input.kernels, work,
                            {.formats = input.kv,
                             .act = input.act,
                             .batch = batch,
                             .tokens = input.context,
                             .nodes = input.pool.nodes()});
}

}  // namespace

Result<SpeedMeasurement> MeasureSpeed(const SpeedMeterInput& input) {
  NIBBLE_RETURN_IF_ERROR(CheckRoom(input));
  const ModelWork work = ComputeWork(input.file, input.act);
  SpeedMeasurement result;
  {
    NIBBLE_TRY(ModelBench bench, BenchOf(input, work, input.batch));
    const int steps = std::min(kTimedSteps, input.context);
    const BenchCase test{.test = BenchTest::kGenerate,
                         .gen = steps,
                         .batch = input.batch,
                         .depth = input.context - steps};
    const BenchRow row = bench.Run(test, kTimedRounds - 1);
    const MedianError one = MedianOf(row.seconds);
    result.tpot_s = one.median / steps;
    result.tpot_error = one.error / steps;
  }
  NIBBLE_TRY(ModelBench bench, BenchOf(input, work, 1));
  const BenchCase prompt{.test = BenchTest::kPrompt, .prompt = input.context};
  std::vector<double> seconds;
  double all = 0;
  while (all < kPromptSeconds && std::ssize(seconds) < kMostPrompts) {
    if (input.keep_going && !input.keep_going()) return Fail(ErrorKind::kCancelled, "stopped");
    seconds.push_back(bench.Run(prompt, 1).seconds.front());
    all += seconds.back();
  }
  const MedianError one = MedianOf(seconds);
  result.ttft_s = one.median;
  result.ttft_error = one.error;
  return result;
}

}  // namespace nibble
