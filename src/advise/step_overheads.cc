#include "advise/step_overheads.h"

#include <algorithm>
#include <cmath>

#include "advise/bench.h"
#include "advise/calibration_cases.h"
#include "advise/rate_meters.h"
#include "base/statistics.h"
#include "cost/step_predictor.h"
#include "kernels/kernel_table.h"
#include "model/config/format_mix.h"
#include "model/config/model_file.h"
#include "model/decoder.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr int kSteps = 8;  // of one round

// The fitted terms, in the order of the unknowns.
constexpr double StepOverheads::* kTerms[] = {&StepOverheads::step_s, &StepOverheads::layer_s};

struct MeasuredStep {
  double seconds = 0;
  double known = 0;             // by the other terms
  std::vector<double> factors;  // of each term
};

double Total(const ModelShape& shape, const WeightFormat& weights, const KvChoice& kv,
             const Calibration& calibration, int batch) {
  const auto predictor =
      StepPredictor::Create({.shape = shape,
                             .calibration = std::make_shared<const Calibration>(calibration),
                             .weights = weights,
                             .kv = kv});
  if (!predictor) return 0;
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const StepSequence all{.first = step, .count = batch};
    sum += predictor->Predict({&all, 1}).total().value;
  }
  return sum / kSteps;
}

// Steps are linear in the overheads, so that a term's factor is what one second of it adds.
MeasuredStep Explain(const ModelShape& shape, const Calibration& calibration, int batch,
                     double seconds) {
  const WeightFormat own{.name = "own", .mix = {}};
  const KvChoice kv{.name = "f16", .formats = {}};
  Calibration one = calibration;
  for (const auto term : kTerms) one.overheads.*term = 0;
  MeasuredStep step{.seconds = seconds, .known = Total(shape, own, kv, one, batch), .factors = {}};
  for (const auto term : kTerms) {
    one.overheads.*term = 1;
    step.factors.push_back(Total(shape, own, kv, one, batch) - step.known);
    one.overheads.*term = 0;
  }
  return step;
}

Result<double> TimeSteps(MeterBench& bench, Decoder& decoder, const ModelWork& work, int batch,
                         int rounds) {
  NIBBLE_TRY(ModelBench model,
             ModelBench::Create(decoder, bench.kernels(), work,
                                {.formats = {}, .batch = batch, .tokens = kSteps}));
  model.Run({.test = BenchTest::kGenerate, .gen = kSteps, .batch = batch}, 1);
  StateSamples samples;
  bench.Time(samples, rounds, 1.0 / kSteps, 0, [&] {
    for (int step = 0; step < kSteps; ++step) model.RunPiece(0);
  });
  return samples.NearAt(bench.UsualState()).typical();
}

StepOverheads Fit(const std::vector<MeasuredStep>& steps, StepOverheads out) {
  std::vector<std::vector<double>> a;
  std::vector<double> b;
  for (const MeasuredStep& step : steps) {  // relative errors count
    std::vector<double> row;
    for (const double factor : step.factors) row.push_back(factor / step.seconds);
    a.push_back(std::move(row));
    b.push_back((step.seconds - step.known) / step.seconds);
  }
  const std::vector<double> x = LeastSquaresPositive(a, b);
  for (size_t i = 0; i < std::size(kTerms); ++i) out.*kTerms[i] = x[i];
  std::vector<double> left;
  for (size_t row = 0; row < a.size(); ++row) {
    double residual = b[row];
    for (size_t i = 0; i < x.size(); ++i) residual -= a[row][i] * x[i];
    left.push_back(std::abs(residual));
  }
  out.spread = Median(left);
  return out;
}

}  // namespace

std::vector<double> LeastSquaresPositive(std::span<const std::vector<double>> a,
                                         std::span<const double> b) {
  constexpr int kSweeps = 20000;
  const size_t unknowns = a.empty() ? 0 : a[0].size();
  std::vector<double> x(unknowns);
  std::vector<double> residual(b.begin(), b.end());
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t j = 0; j < unknowns; ++j) {
      double along = 0;
      double square = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        along += a[i][j] * residual[i];
        square += a[i][j] * a[i][j];
      }
      if (square == 0) continue;
      const double next = std::max(0.0, x[j] + along / square);
      for (size_t i = 0; i < a.size(); ++i) residual[i] -= a[i][j] * (next - x[j]);
      x[j] = next;
    }
  }
  return x;
}

Result<StepOverheads> FitOverheads(MeterBench& bench, const Calibration& calibration, int rounds,
                                   const std::function<bool(double part)>& progress) {
  using namespace calibration_cases;
  NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(kSmallFormat));
  std::vector<MeasuredStep> steps;
  double done = 0;
  for (const SmallModel& small : kSmallModels) {
    NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(small.config)));
    NIBBLE_TRY(const ModelFile file, ModelFile::Random(document.root(), mix));
    const ModelShape shape = ShapeOfFile(file, std::string(small.name));
    LoadOptions options;
    options.max_rows = 64;
    options.max_context = kSteps;
    NIBBLE_TRY(const auto decoder, Decoder::Load(file, options, bench.kernels(), bench.pool()));
    const ModelWork work = ComputeWork(file, Act::kInt8);
    for (const int batch : kSmallBatches) {
      if (!progress(done)) return Fail(ErrorKind::kCancelled, "stopped");
      NIBBLE_TRY(const double seconds, TimeSteps(bench, *decoder, work, batch, rounds));
      steps.push_back(Explain(shape, calibration, batch, seconds));
      done += 1.0 / static_cast<double>(std::size(kSmallModels) * std::size(kSmallBatches));
    }
  }
  return Fit(steps, calibration.overheads);
}

}  // namespace nibble
