#include "advise/validate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "advise/bench.h"
#include "advise/calibration_cases.h"
#include "advise/state_loop.h"
#include "base/statistics.h"
#include "cost/step_predictor.h"
#include "kernels/kernel_table.h"
#include "model/config/format_mix.h"
#include "model/config/model_file.h"
#include "model/config/random_model.h"
#include "model/decoder.h"
#include "platform/bandwidth.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using calibration_cases::kValidatedModels;
using calibration_cases::kValidatedPoints;
using calibration_cases::ValidatedPoint;

constexpr int kCaseSteps = 4;    // of the measured case
constexpr double kPiece = 0.01;  // seconds of it between two rounds of the limits' loops
constexpr int kPieces = 5;       // that are wanted of a row
constexpr int kMostPieces = 15;
constexpr double kChanged = 0.2;  // of the rates: drops a piece
constexpr double kMostKvBytes = 2e9;

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    out.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

class Validating {
 public:
  Validating(ThreadPool& pool, std::shared_ptr<const Calibration> calibration,
             const ValidateOptions& options)
      : pool_(pool), calibration_(std::move(calibration)), options_(options) {
    for (const auto& model : kValidatedModels) {
      all_ += static_cast<double>(SplitList(model.weights).size() * std::size(kValidatedPoints));
    }
  }

  Result<std::vector<ValidationRow>> Run() {
    NIBBLE_TRY(probe_, ReadProbe::OfMemory(pool_));
    NIBBLE_TRY(loop_, StateLoop::Create(pool_, calibration_->isa));
    const KernelRates* kernel = calibration_->KernelOf(StateLoop::kFormat, true);
    if (kernel == nullptr) return BadInput("the calibration lacks q8_0");
    usual_cpu_s_ = kernel->At(StateLoop::kRows).cpu_s * loop_->weights() + calibration_->region_s;
    for (const auto& model : kValidatedModels) {
      for (const std::string& weights : SplitList(model.weights)) {
        NIBBLE_RETURN_IF_ERROR(RunModel(std::string(model.shape), weights));
      }
    }
    return std::move(rows_);
  }

 private:
  Status Report(const ValidationRow* row) const {
    if (!options_.progress || options_.progress(done_ / all_, row)) return {};
    return Fail(ErrorKind::kCancelled, "stopped");
  }

  Status RunModel(const std::string& model, const std::string& weights) {
    NIBBLE_RETURN_IF_ERROR(Report(nullptr));
    const KernelTable& kernels = KernelsFor(calibration_->isa);
    NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(weights));
    NIBBLE_TRY(std::string config, ShapeByName(model));
    NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(config)));
    NIBBLE_TRY(const ModelFile file, ModelFile::Random(document.root(), mix));
    const ModelShape shape = ShapeOfFile(file, model);
    LoadOptions options;
    NIBBLE_TRY(const auto decoder, Decoder::Load(file, options, kernels, pool_));
    const ModelWork work = ComputeWork(file, Act::kInt8);
    for (const ValidatedPoint& point : kValidatedPoints) {
      done_ += 1;
      ValidationRow row{.model = model,
                        .weights = weights,
                        .kv = std::string(point.kv),
                        .batch = point.batch,
                        .context = point.context};
      NIBBLE_TRY(const bool measured, MeasureStep(*decoder, work, shape, row));
      if (!measured) continue;
      rows_.push_back(row);
      NIBBLE_RETURN_IF_ERROR(Report(&rows_.back()));
    }
    return {};
  }

  struct Rates {
    double read = 1;
    double cpu = 1;
  };
  // As shares of the calibrated ones.
  Rates RatesNow() {
    return {.read = probe_->Round() / calibration_->read_bandwidth,
            .cpu = usual_cpu_s_ / loop_->Seconds()};
  }
  static bool Changed(const Rates& a, const Rates& b) {
    return std::max(std::abs(std::log(a.read / b.read)), std::abs(std::log(a.cpu / b.cpu))) >
           kChanged;
  }

  // False: no room.
  Result<bool> MeasureStep(Decoder& decoder, const ModelWork& work, const ModelShape& shape,
                           ValidationRow& row) {
    NIBBLE_TRY(const KvChoice kv, ParseKvChoice(row.kv));
    const BenchCase test{
        .test = BenchTest::kGenerate, .gen = kCaseSteps, .batch = row.batch, .depth = row.context};
    NIBBLE_TRY(const std::vector<KvGroup> groups, MakeKvGroups(decoder.config(), kv.formats));
    const double room = static_cast<double>(ReadTopology().memory_available) / 2;
    if (test.TokensPerSequence() > decoder.max_context()) return false;
    if (ModelBench::KvBytes(groups, test) > std::min(room, kMostKvBytes)) return false;
    NIBBLE_TRY(ModelBench bench, ModelBench::Create(decoder, KernelsFor(calibration_->isa), work,
                                                    {.formats = kv.formats,
                                                     .batch = row.batch,
                                                     .tokens = test.TokensPerSequence(),
                                                     .nodes = pool_.nodes()}));
    bench.Run(test, 1);
    double pieces = 0;
    row.read = row.cpu = 0;
    Rates before = RatesNow();
    for (int tried = 0; tried < kMostPieces && pieces < kPieces; ++tried) {
      // Whole rounds of the case, so that every piece has the same contexts.
      BenchWork piece = bench.RunPiece(0);
      while (piece.steps % kCaseSteps != 0 || piece.seconds < kPiece) {
        const BenchWork more = bench.RunPiece(0);
        piece.seconds += more.seconds;
        piece.steps += more.steps;
      }
      const Rates after = RatesNow();
      const bool last = tried + 1 == kMostPieces && pieces == 0;
      if (last || !Changed(before, after)) {
        const Rates mean = {.read = (before.read + after.read) / 2,
                            .cpu = (before.cpu + after.cpu) / 2};
        NIBBLE_TRY(const double predicted, PredictStep(shape, row, mean));
        pieces += 1;
        row.measured_s += piece.seconds / static_cast<double>(piece.steps);
        row.predicted_s += predicted;
        row.read += mean.read;
        row.cpu += mean.cpu;
      }
      before = after;
    }
    for (double* sum : {&row.measured_s, &row.predicted_s, &row.read, &row.cpu}) *sum /= pieces;
    NIBBLE_TRY(row.calibrated_s, PredictStep(shape, row, {}));
    return true;
  }

  Result<double> PredictStep(const ModelShape& shape, const ValidationRow& row,
                             const Rates& rates) const {
    NIBBLE_TRY(const KvChoice kv, ParseKvChoice(row.kv));
    const WeightFormat own{.name = "own", .mix = {}};
    NIBBLE_TRY(const StepPredictor predictor,
               StepPredictor::Create({.shape = shape,
                                      .calibration = std::make_shared<const Calibration>(
                                          calibration_->Scaled(rates.read, rates.cpu)),
                                      .weights = own,
                                      .kv = kv}));
    double sum = 0;
    for (int step = 0; step < kCaseSteps; ++step) {
      const StepSequence all{.first = row.context + step, .count = row.batch};
      sum += predictor.Predict({&all, 1}).total().value;
    }
    return sum / kCaseSteps;
  }

  ThreadPool& pool_;
  std::shared_ptr<const Calibration> calibration_;
  const ValidateOptions& options_;
  std::vector<ValidationRow> rows_;
  std::optional<ReadProbe> probe_;
  std::optional<StateLoop> loop_;
  double usual_cpu_s_ = 0;
  double done_ = 0;
  double all_ = 0;
};

}  // namespace

Result<std::vector<ValidationRow>> Validate(ThreadPool& pool,
                                            std::shared_ptr<const Calibration> calibration,
                                            const ValidateOptions& options) {
  return Validating(pool, std::move(calibration), options).Run();
}

ValidationErrors Summarise(const std::vector<ValidationRow>& rows) {
  std::vector<double> errors;
  for (const ValidationRow& row : rows) errors.push_back(std::abs(row.residual()));
  std::ranges::sort(errors);
  if (errors.empty()) return {};
  const auto last = static_cast<double>(errors.size() - 1);
  return {.median = Median(errors), .p90 = errors[static_cast<size_t>(std::ceil(0.9 * last))]};
}

}  // namespace nibble
