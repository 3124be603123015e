#include "advise/adviser.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/format_errors.h"
#include "base/check.h"
#include "base/text.h"
#include "cost/calibration.h"
#include "kernels/kernel_table.h"
#include "model/decoder.h"
#include "platform/clock.h"
#include "platform/thread_pool.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr int kShortestWindow = 256;  // caches seal in units of up to 128 tokens
// A first divergence within so many seconds, and a window of every format within half the budget.
constexpr double kFirstFigure = 15;
constexpr int kWantedWindows = 10;
constexpr int kDeviceRows = 2048;  // vLLM's step

// Prediction errors that calibrations do not state.
constexpr double kCalibratedError = 0.15;
constexpr double kDataSheetError = 0.3;

ResidualPrior SpeedPrior(const DeviceShape& device) {
  if (!device.calibration) return {.common = kDataSheetError, .weights = 0, .kv = 0, .place = 0.1};
  const Calibration& calibration = *device.calibration;
  double kernel = 0;
  for (const KernelRates& rates : calibration.kernels) kernel = std::max(kernel, rates.spread);
  double attention = 0;
  for (const AttentionRates& rates : calibration.attention) {
    attention = std::max(attention, rates.spread);
  }
  const double common = std::max(calibration.overheads.spread, kCalibratedError);
  return {.common = common,
          .weights = std::clamp(kernel, 0.05, 0.3),
          .kv = std::clamp(attention, 0.05, 0.3),
          .place = 0.05};
}

// Rows that a window scores, the last half.
int ScoredRows(int context) { return context - 1 - context / 2; }

}  // namespace

Adviser::~Adviser() = default;

double Adviser::TimeLeft() const { return setup_.deadline - MonotonicSeconds(); }

KvFormats Adviser::FormatsOf(int kv) const { return setup_.kvs[static_cast<size_t>(kv)].formats; }

const ModelFile& Adviser::FileOf(int weights) const {
  return loaded_.weights == weights && loaded_.file ? *loaded_.file : setup_.model;
}

JournalPlace Adviser::PlaceOf(GridPlace at) const {
  const GridFormat& kv = grid_.kvs[static_cast<size_t>(at.kv)];
  return {.weights = grid_.weights[static_cast<size_t>(at.weights)].name,
          .kv = kv.name,
          .skip_layers = kv.skip_layers};
}

Result<CostModel> Adviser::ModelOf(GridPlace at, const DeviceShape& device, int devices) const {
  const WeightsCandidate& weights = setup_.weights[static_cast<size_t>(at.weights)];
  const KvChoice kv{.name = grid_.kvs[static_cast<size_t>(at.kv)].name,
                    .formats = FormatsOf(at.kv)};
  return CostModel::Create({.shape = setup_.shape,
                            .device = device,
                            .devices = devices,
                            .counting = Counting::kTrue,
                            .weight_only = weights.weight_only || setup_.act == Act::kF32},
                           weights.priced, kv);
}

Result<EngineOptions> Adviser::OptionsOf(const AdviceRow& row) const {
  return ServedOptions(setup_.load, setup_.model.config(), FormatsOf(row.place.kv), row.batch);
}

// What a place is expected to do; batch: as many as the memory holds.
Status Adviser::AddPlace(GridPlace at) {
  PlacePrior& prior = grid_.PriorOf(at);
  const auto model = ModelOf(at, setup_.device.shape, setup_.device.devices);
  if (!model) {
    if (at.weights == 0) return std::unexpected(model.error());
    grid_.weights[static_cast<size_t>(at.weights)].refused = model.error().message;
    return {};
  }
  const ServedLoad& load = setup_.load;
  const WeightsCandidate& weights = setup_.weights[static_cast<size_t>(at.weights)];
  const double bytes = static_cast<double>(memory_plan_.weight_bytes) +
                       WeightBytes(setup_.shape, weights.priced) -
                       WeightBytes(setup_.shape, setup_.weights[0].priced);
  Status failed;
  // Of this machine the server's own plan counts; of others the cost model.
  const auto memory = [&](int batch) -> double {
    if (!setup_.device.here) {
      return model->Memory({.batch = batch, .context = load.context}).total().value;
    }
    const auto options = ServedOptions(load, setup_.model.config(), FormatsOf(at.kv), batch);
    if (!options) return failed = std::unexpected(options.error()), 1e300;
    const auto total =
        ServedMemory(setup_.model.config(), memory_plan_, *options, setup_.pool.size(), bytes);
    if (!total) return failed = std::unexpected(total.error()), 1e300;
    return *total;
  };
  const int batch = LargestBatch(load.concurrency, load.memory, memory);
  if (!failed) return failed;
  prior.fits = batch > 0;
  prior.batch = std::max(batch, 1);
  prior.memory = memory(prior.batch);
  prior.tpot_s = StepSeconds(*model, prior.batch, load.context);
  prior.ttft_s =
      PromptSeconds(*model, load.context, setup_.device.here ? load.options.max_rows : kDeviceRows);
  return {};
}

Status Adviser::CheckMemory() const {
  const PlacePrior* least = nullptr;
  GridPlace where;
  for (int w = 0; w < static_cast<int>(grid_.weights.size()); ++w) {
    for (int kv = 0; kv < static_cast<int>(grid_.kvs.size()); ++kv) {
      if (!grid_.weights[static_cast<size_t>(w)].refused.empty()) continue;
      const PlacePrior& prior = grid_.PriorOf({w, kv});
      if (prior.fits) return {};
      if (least != nullptr && least->memory <= prior.memory) continue;
      least = &prior;
      where = {w, kv};
    }
  }
  NIBBLE_CHECK(least != nullptr);  // the model as it is
  return BadInput(
      "--memory: {} are allowed, and the least that one sequence of {} tokens needs is {} ({} "
      "weights with a {} cache)",
      FormatBytes(setup_.load.memory), setup_.load.context, FormatBytes(least->memory),
      grid_.weights[static_cast<size_t>(where.weights)].name,
      grid_.kvs[static_cast<size_t>(where.kv)].name);
}

Status Adviser::SampleErrors() {
  std::vector<FormatMix> mixes;
  for (const WeightsCandidate& one : setup_.weights) {
    if (one.mix) mixes.push_back(*one.mix);
  }
  const double quantised = setup_.shape.TotalWeights();
  NIBBLE_TRY(const std::vector<SampledMix> samples, SampleMixes(setup_.model, mixes, setup_.pool));
  encode_s_.assign(setup_.weights.size(), 0);
  size_t next = 0;
  for (size_t w = 0; w < setup_.weights.size(); ++w) {
    if (!setup_.weights[w].mix) continue;
    const SampledMix& sample = samples[next++];
    grid_.weights[w].squared_error = sample.squared_error;
    encode_s_[w] = sample.seconds_per_weight * quantised;
  }
  for (size_t kv = 0; kv < grid_.kvs.size(); ++kv) {
    const KvFormats formats = setup_.kvs[kv].formats;
    const int head = setup_.model.config().head_dim;
    grid_.kvs[kv].squared_error =
        (KvSquaredError(formats.k, head) + KvSquaredError(formats.v, head)) / 2;
  }
  return {};
}

// The window: the context, or a half, a quarter, … of it where a first figure would take too long.
Status Adviser::ChooseWindows(std::vector<TokenId> ids) {
  const DeviceShape& here = *setup_.here;
  NIBBLE_TRY(const CostModel own, ModelOf({0, 0}, here, 1));
  const WeightFormat floats{.name = "own", .mix = {}};
  const auto in_floats = CostModel::Create(
      {.shape = setup_.shape, .device = here, .counting = Counting::kTrue, .weight_only = true},
      floats, {.name = "f32", .formats = {.k = KvFormat::kF32, .v = KvFormat::kF32}});
  if (!in_floats) return std::unexpected(in_floats.error());
  int context = std::min(setup_.load.context, setup_.model.config().context_length);
  const auto begun = [&] {
    return setup_.journal != nullptr &&
           std::ranges::find(setup_.journal->qualities(), context, &JournalQuality::context) !=
               setup_.journal->qualities().end();
  };
  while (true) {
    window_unit_s_ = PromptSeconds(own, context, 512, ScoredRows(context));
    base_unit_s_ = PromptSeconds(*in_floats, context, 512, ScoredRows(context));
    const double first = base_unit_s_ + window_unit_s_;
    const double all = base_unit_s_ + kWantedWindows * window_unit_s_;
    const bool short_text = std::ssize(ids) < int64_t{2} * context;
    if (context / 2 < kShortestWindow || begun()) break;
    if (first <= kFirstFigure && all <= TimeLeft() / 2 && !short_text) break;
    context /= 2;
  }
  auto meter = QualityMeter::Create({.base = setup_.model,
                                     .tokenizer = setup_.tokenizer,
                                     .ids = std::move(ids),
                                     .context = context,
                                     .pool = setup_.pool,
                                     .kernels = setup_.kernels,
                                     .folder = setup_.folder,
                                     .keep_going = setup_.keep_going});
  if (!meter) return std::unexpected(meter.error());
  meter_.emplace(*std::move(meter));
  return {};
}

Result<std::unique_ptr<Adviser>> Adviser::Create(AdviserSetup setup) {
  auto adviser = std::unique_ptr<Adviser>(new Adviser(std::move(setup)));
  AdviserSetup& own = adviser->setup_;
  AdviceGrid& grid = adviser->grid_;
  for (const WeightsCandidate& one : own.weights) grid.weights.push_back({.name = one.to});
  for (const KvChoice& one : own.kvs) {
    grid.kvs.push_back({.name = one.name, .skip_layers = one.formats.skip_layers});
  }
  grid.priors.assign(grid.weights.size(), std::vector<PlacePrior>(grid.kvs.size()));
  grid.measures_speed = own.device.here;
  grid.speed_prior = SpeedPrior(own.device.shape);
  adviser->made_.resize(grid.weights.size());
  adviser->made_[0] = own.model.path();
  LoadOptions load{.act = own.act, .max_context = own.load.context};
  load.max_rows = own.load.options.max_rows;
  NIBBLE_TRY(adviser->memory_plan_, Decoder::Plan(own.model, load, own.pool));
  for (int w = 0; w < static_cast<int>(grid.weights.size()); ++w) {
    for (int kv = 0; kv < static_cast<int>(grid.kvs.size()); ++kv) {
      NIBBLE_RETURN_IF_ERROR(adviser->AddPlace({w, kv}));
    }
  }
  NIBBLE_RETURN_IF_ERROR(adviser->CheckMemory());
  NIBBLE_TRY(std::vector<TokenId> ids, own.tokenizer.Encode(own.text));
  NIBBLE_RETURN_IF_ERROR(adviser->ChooseWindows(std::move(ids)));
  adviser->Refresh();  // before the formats' errors are known
  NIBBLE_RETURN_IF_ERROR(adviser->SampleErrors());
  adviser->TakeJournal();
  adviser->Refresh();
  return adviser;
}

void Adviser::TakeJournal() {
  if (setup_.journal == nullptr) return;
  const int windows = meter_->windows();
  for (int w = 0; w < static_cast<int>(grid_.weights.size()); ++w) {
    for (int kv = 0; kv < static_cast<int>(grid_.kvs.size()); ++kv) {
      const JournalPlace place = PlaceOf({w, kv});
      grid_.qualities.erase({w, kv});
      grid_.windows.erase({w, kv});
      for (int window = 0; window < windows; ++window) {
        const auto found =
            std::ranges::find_if(setup_.journal->qualities(), [&](const JournalQuality& one) {
              return one.place == place && one.context == meter_->context() && one.window == window;
            });
        if (found == setup_.journal->qualities().end()) break;
        grid_.AddWindow({w, kv}, found->sums);
      }
      for (const JournalSpeed& one : setup_.journal->speeds()) {
        if (!setup_.device.here || one.place != place || one.context != setup_.load.context ||
            one.batch != grid_.PriorOf({w, kv}).batch) {
          continue;
        }
        grid_.speeds[{w, kv}] = one.speed;
      }
    }
  }
}

void Adviser::Refresh() {
  rows_ = EstimateRows(grid_);
  if (setup_.changed) setup_.changed(rows_);
}

std::vector<std::string> Adviser::refused() const {
  std::vector<std::string> out;
  for (const auto* formats : {&grid_.weights, &grid_.kvs}) {
    for (const GridFormat& format : *formats) {
      if (!format.refused.empty()) out.push_back(format.name + ": " + format.refused);
    }
  }
  return out;
}

}  // namespace nibble
