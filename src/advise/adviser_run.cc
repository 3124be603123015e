#include <fmt/format.h>

#include <algorithm>

#include "advise/adviser.h"
#include "advise/speed_meter.h"
#include "kernels/kernel_table.h"
#include "model/decoder.h"
#include "platform/clock.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr double kPackingShare = 0.1;  // of the read bandwidth: how fast weights are packed

// An average that forgets: how much longer things take than expected.
void Learn(double& factor, double expected, double seconds) {
  if (expected <= 0) return;
  factor = std::clamp(factor * (1 + 2 * seconds / expected) / 3, 0.05, 50.0);
}

}  // namespace

double Adviser::MakeSeconds(int weights) const {
  const auto at = static_cast<size_t>(weights);
  return made_[at].empty() ? encode_s_[at] * make_factor_ : 0;
}

double Adviser::LoadSeconds(int weights) const {
  if (loaded_.weights == weights && loaded_.decoder) return 0;
  const auto& priced = setup_.weights[static_cast<size_t>(weights)].priced;
  const double rate = setup_.here->Bandwidth().value * kPackingShare;
  return WeightBytes(setup_.shape, priced) / rate;
}

double Adviser::WindowSeconds(GridPlace /*at*/) const { return window_unit_s_ * window_factor_; }

double Adviser::BaseSeconds() const { return base_unit_s_ * base_factor_; }

double Adviser::CostOf(GridPlace at, Measuring what) const {
  double seconds = MakeSeconds(at.weights) + LoadSeconds(at.weights);
  if (what == Measuring::kQuality) {
    const QualitySums* sums = grid_.QualityOf(at);
    const int window = sums == nullptr ? 0 : sums->windows;
    // The base has to be loaded, which puts the candidate out of memory.
    if (!meter_->HasBase(window)) seconds += BaseSeconds() + LoadSeconds(0);
    return seconds + WindowSeconds(at);
  }
  const PlacePrior& prior = grid_.PriorOf(at);
  const double steps = kTimedRounds * kTimedSteps * prior.tpot_s;
  return seconds + (steps + 2 * prior.ttft_s) * speed_factor_;
}

Status Adviser::Load(int weights) {
  if (loaded_.weights == weights && loaded_.decoder) return {};
  loaded_ = {};
  const auto at = static_cast<size_t>(weights);
  if (made_[at].empty()) {
    const double expected = encode_s_[at];
    const double started = MonotonicSeconds();
    NIBBLE_TRY(made_[at], setup_.make(setup_.weights[at]));
    Learn(make_factor_, expected * make_factor_, MonotonicSeconds() - started);
  }
  if (weights != 0) {
    NIBBLE_TRY(loaded_.file, ModelFile::Open(made_[at]));
  }
  loaded_.weights = weights;
  LoadOptions options{.act = setup_.act, .max_context = setup_.load.context};
  options.max_rows = std::max(options.max_rows, setup_.load.concurrency);
  NIBBLE_TRY(loaded_.decoder, Decoder::Load(FileOf(weights), options, setup_.kernels, setup_.pool));
  if (!setup_.device.here) return {};
  // As the server plans it; the loaded model knows whether a stored output is the embedding again.
  LoadOptions server{.act = setup_.act, .max_context = setup_.load.context};
  server.max_rows = setup_.load.options.max_rows;
  NIBBLE_TRY(MemoryPlan plan, Decoder::Plan(FileOf(weights), server, setup_.pool));
  plan.weight_bytes = loaded_.decoder->plan().weight_bytes;
  for (int kv = 0; kv < static_cast<int>(grid_.kvs.size()); ++kv) {
    PlacePrior& prior = grid_.PriorOf({weights, kv});
    if (prior.exact_memory) continue;
    NIBBLE_TRY(const EngineOptions served,
               ServedOptions(setup_.load, setup_.model.config(), FormatsOf(kv), prior.batch));
    NIBBLE_TRY(prior.memory, ServedMemory(setup_.model.config(), plan, served, setup_.pool.size(),
                                          static_cast<double>(plan.weight_bytes)));
    prior.exact_memory = true;
  }
  return {};
}

Status Adviser::MeasureQualityAt(GridPlace at) {
  const QualitySums* seen = grid_.QualityOf(at);
  const int window = seen == nullptr ? 0 : seen->windows;
  const auto measure = [&]() -> Result<QualitySums> {
    if (!meter_->HasBase(window)) {
      loaded_ = {};
      const double started = MonotonicSeconds();
      NIBBLE_RETURN_IF_ERROR(meter_->ComputeBase(window));
      Learn(base_factor_, BaseSeconds(), MonotonicSeconds() - started);
    }
    NIBBLE_RETURN_IF_ERROR(Load(at.weights));
    const double started = MonotonicSeconds();
    auto one = meter_->Measure(*loaded_.decoder, FormatsOf(at.kv), window);
    Learn(window_factor_, WindowSeconds(at), MonotonicSeconds() - started);
    return one;
  };
  NIBBLE_TRY(const QualitySums one, measure());
  grid_.AddWindow(at, one);
  if (setup_.journal == nullptr) return {};
  return setup_.journal->Add(JournalQuality{
      .place = PlaceOf(at), .context = meter_->context(), .window = window, .sums = one});
}

Status Adviser::MeasureSpeedAt(GridPlace at) {
  NIBBLE_RETURN_IF_ERROR(Load(at.weights));
  const PlacePrior& prior = grid_.PriorOf(at);
  const double expected = CostOf(at, Measuring::kSpeed);
  const double started = MonotonicSeconds();
  NIBBLE_TRY(const SpeedMeasurement speed, MeasureSpeed({.file = FileOf(at.weights),
                                                         .decoder = *loaded_.decoder,
                                                         .kernels = setup_.kernels,
                                                         .pool = setup_.pool,
                                                         .act = setup_.act,
                                                         .kv = FormatsOf(at.kv),
                                                         .batch = prior.batch,
                                                         .context = setup_.load.context,
                                                         .keep_going = setup_.keep_going}));
  Learn(speed_factor_, expected, MonotonicSeconds() - started);
  grid_.speeds[{at.weights, at.kv}] = speed;
  if (setup_.journal == nullptr) return {};
  return setup_.journal->Add(JournalSpeed{
      .place = PlaceOf(at), .batch = prior.batch, .context = setup_.load.context, .speed = speed});
}

// Tokens that single layers are compared on: at most 512, and fewer where there is no time.
int Adviser::LayerWindow() const {
  constexpr int kMost = 512;
  constexpr int kLeast = 160;  // a sealed unit of 128 and rows that see it
  const auto layers = static_cast<double>(setup_.model.config().layers.size());
  const double token_s = WindowSeconds({}) / meter_->context();
  int tokens = std::min(kMost, meter_->context());
  while (tokens / 2 >= kLeast && (2 * layers + 10) * token_s * tokens > TimeLeft() / 4) tokens /= 2;
  return tokens;
}

KvLayersInput Adviser::LayersInput(int kv) const {
  std::vector<TokenId> ids = meter_->Ids(0);
  ids.resize(static_cast<size_t>(LayerWindow()));
  return {.decoder = *loaded_.decoder,
          .kernels = setup_.kernels,
          .ids = std::move(ids),
          .formats = FormatsOf(kv),
          .folder = setup_.folder,
          .keep_going = setup_.keep_going};
}

Status Adviser::AddSkipsOf(int kv) {
  NIBBLE_RETURN_IF_ERROR(Load(0));
  const KvLayersInput input = LayersInput(kv);
  NIBBLE_TRY(KvLayers costs, MeasureKvLayers(input));
  NIBBLE_TRY(SkipChoice skip, FindSkipLayers(input, costs, setup_.kv_target));
  const GridFormat& all = grid_.kvs[static_cast<size_t>(kv)];
  const bool some = !skip.layers.empty() && skip.layers.size() < costs.layers.size();
  if (some) {
    const double left = costs.all.mean > 0 ? skip.measured.mean / costs.all.mean : 0;
    grid_.kvs.push_back(
        {.name = all.name, .squared_error = all.squared_error * left, .skip_layers = skip.layers});
    setup_.kvs.push_back(setup_.kvs[static_cast<size_t>(kv)]);
    setup_.kvs.back().formats.skip_layers = skip.layers;
    const auto added = static_cast<int>(grid_.kvs.size()) - 1;
    for (int w = 0; w < static_cast<int>(grid_.weights.size()); ++w) {
      grid_.priors[static_cast<size_t>(w)].emplace_back();
      NIBBLE_RETURN_IF_ERROR(AddPlace({w, added}));
    }
    TakeJournal();
  }
  kv_layers_.push_back({.kv = setup_.kvs[static_cast<size_t>(kv)].name,
                        .costs = std::move(costs),
                        .skip = std::move(skip)});
  return {};
}

// Caches that were found to cost more than the target.
Status Adviser::AddSkips() {
  if (setup_.kv_target <= 0) return {};
  for (int kv = 1; kv < static_cast<int>(grid_.kvs.size()); ++kv) {
    const GridFormat& format = grid_.kvs[static_cast<size_t>(kv)];
    if (!format.skip_layers.empty() || !format.refused.empty()) continue;
    if (std::ranges::find(skips_tried_, kv) != skips_tried_.end()) continue;
    for (int w = 0; w < static_cast<int>(grid_.weights.size()); ++w) {
      const auto [with, without] = grid_.Common({w, kv}, {w, 0});
      if (with.windows == 0) continue;
      skips_tried_.push_back(kv);
      if (with.Divergence().mean - without.Divergence().mean <= setup_.kv_target) break;
      const auto layers = static_cast<double>(setup_.model.config().layers.size());
      const double seconds =
          (2 * layers + 10) * WindowSeconds({}) * LayerWindow() / meter_->context();
      if (seconds > TimeLeft()) break;
      if (setup_.announce) {
        setup_.announce(format.name + " cache: keys and values of every layer alone", seconds);
      }
      NIBBLE_RETURN_IF_ERROR(AddSkipsOf(kv));
      Refresh();
      break;
    }
  }
  return {};
}

std::string Adviser::Describe(const GridMeasurement& next) const {
  std::string text = fmt::format(
      "{} weights, {} cache: ", grid_.weights[static_cast<size_t>(next.place.weights)].name,
      grid_.kvs[static_cast<size_t>(next.place.kv)].name);
  if (next.what == Measuring::kSpeed) {
    return text + fmt::format("{} steps of {} sequences and a prompt", kTimedRounds * kTimedSteps,
                              grid_.PriorOf(next.place).batch);
  }
  const QualitySums* sums = grid_.QualityOf(next.place);
  return text + fmt::format("window {} of {} tokens", sums == nullptr ? 1 : sums->windows + 1,
                            meter_->context());
}

// A format that cannot be made or run is left out; a user's stop, and a journal that cannot be
// written, end the run.
Status Adviser::Perform(const GridMeasurement& next) {
  const Status done =
      next.what == Measuring::kQuality ? MeasureQualityAt(next.place) : MeasureSpeedAt(next.place);
  if (done || done.error().kind == ErrorKind::kCancelled) return done;
  if (done.error().kind == ErrorKind::kIo) return done;
  loaded_ = {};
  if (next.what == Measuring::kSpeed && done.error().kind == ErrorKind::kNoRoom) {
    grid_.untimed.insert({next.place.weights, next.place.kv});  // it stays predicted
    return {};
  }
  if (next.place.weights == 0) {
    if (next.place.kv == 0) return done;  // the model itself does not run
    grid_.kvs[static_cast<size_t>(next.place.kv)].refused = done.error().message;
  } else {
    grid_.weights[static_cast<size_t>(next.place.weights)].refused = done.error().message;
  }
  return {};
}

Status Adviser::Run() {
  while (true) {
    if (setup_.keep_going && !setup_.keep_going()) return Fail(ErrorKind::kCancelled, "stopped");
    // First: all else may be known from a run before.
    NIBBLE_RETURN_IF_ERROR(AddSkips());
    const auto next =
        NextMeasurement({.grid = grid_,
                         .rows = rows_,
                         .limits = setup_.limits,
                         .cost = [&](GridPlace at, Measuring what) { return CostOf(at, what); },
                         .windows = meter_->windows(),
                         .seconds_left = TimeLeft()});
    if (!next) break;
    if (setup_.announce) setup_.announce(Describe(*next), next->seconds);
    NIBBLE_RETURN_IF_ERROR(Perform(*next));
    Refresh();
  }
  return {};
}

}  // namespace nibble
