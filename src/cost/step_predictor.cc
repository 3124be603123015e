#include "cost/step_predictor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/math.h"
#include "cost/cost_model.h"
#include "kv/storage/kv_storage.h"

namespace nibble {
namespace {

// How the kernels cut their work (kernels/matmul.cc, kernels/attention.cc).
constexpr int kPanel = 16;                  // rows of a weight matrix
constexpr int kFewRows = 8;                 // more rows share units of two panels
constexpr int kBlockRows = 8;               // query rows that share a page
constexpr int kSplit = 16;                  // pages of a split
constexpr int kWave = 4;                    // splits of a wave and thread
constexpr double kTile = 8;                 // rows that are prepared together
constexpr double kFewValues = 8192;         // up to so many one thread does all
constexpr double kFewMultiplies = 1 << 15;  // up to so many one thread does all

// ⌈units / threads⌉ · threads / units: what the busiest thread has, as a share of the mean.
double Imbalance(double units, int threads) {
  if (units <= 0) return 1;
  return std::ceil(units / threads) * threads / units;
}

// Matrices that share one parallel region.
int RegionOf(TensorRole role) {
  switch (role) {
    case TensorRole::kAttnQuery:
    case TensorRole::kAttnKey:
    case TensorRole::kAttnValue:
      return 0;
    case TensorRole::kAttnOutput:
      return 1;
    case TensorRole::kFfnGate:
    case TensorRole::kFfnUp:
      return 2;
    default:
      return 3;
  }
}

bool IsFront(TensorRole role) { return RegionOf(role) == 0; }

double PanelsOf(const WeightGroup& group) {
  return group.place.cols > 0 ? std::ceil(group.weights / group.place.cols / kPanel) : 0;
}

Result<AttentionRates> RatesOf(const Calibration& calibration, const KvLayout& layout,
                               bool weight_only, int rows) {
  const auto side = [&](KvFormat format) {
    const bool integer = TraitsOf(format).integer && !weight_only;
    return calibration.AttentionOf(format, integer, layout.head_dim, rows);
  };
  NIBBLE_TRY(AttentionRates k, side(layout.k));
  if (layout.v == layout.k) return k;
  NIBBLE_TRY(const AttentionRates v, side(layout.v));
  k.page_s = (k.page_s + v.page_s) / 2;
  k.unit_s = (k.unit_s + v.unit_s) / 2;
  k.overlap_p = (k.overlap_p + v.overlap_p) / 2;
  return k;
}

struct PageCounts {
  double sealed = 0;
  double open = 0;
  double splits = 0;
};

// Of one query at `position`.
PageCounts PagesAt(int position, int window, int unit_pages) {
  const int end = position / kPageTokens + 1;
  const int begin = window == 0 ? 0 : std::max(0, position - window + 1) / kPageTokens;
  const int border = unit_pages == 0 ? 0 : (end - 1) / unit_pages * unit_pages;
  PageCounts pages;
  pages.sealed = std::max(0, border - begin);
  pages.open = end - begin - pages.sealed;
  const int splits = (end - 1) / kSplit - begin / kSplit + 1;
  pages.splits = splits;
  return pages;
}

// The mean over the rows of a sequence, by a few of them.
PageCounts MeanPages(const StepSequence& s, int window, int unit_pages) {
  constexpr int kSamples = 16;
  const int samples = std::min(kSamples, s.rows);
  PageCounts sum;
  for (int i = 0; i < samples; ++i) {
    const auto at = static_cast<int>((i + 0.5) * s.rows / samples);
    const PageCounts one = PagesAt(s.first + at, window, unit_pages);
    sum.sealed += one.sealed / samples;
    sum.open += one.open / samples;
    sum.splits += one.splits / samples;
  }
  return sum;
}

// The sequence as the model's last layer has it: rows with logits only.
StepSequence LastRows(const StepSequence& s) {
  return {.first = s.first + s.rows - s.logit_rows,
          .rows = s.logit_rows,
          .logit_rows = s.logit_rows,
          .count = s.count};
}

}  // namespace

struct StepPredictor::Sum {
  double cpu = 0;  // seconds of one thread
  double units = 0;
  double tasks = 0;
  double most_splits = 0;
  double multiplies = 0;
  double bytes = 0;
  double overlap = 0;  // weighted with cpu
};

Result<StepPredictor> StepPredictor::Create(const Setup& setup) {
  const ModelShape& shape = setup.shape;
  if (!setup.weights.mix && !shape.has_file) {
    return BadInput(
        "'own': {} is a shape without a file, so its weights have no format of their own",
        shape.name);
  }
  const Flops plain(4.0 * shape.config.heads * shape.config.head_dim);
  if (shape.attention_per_key != plain) {
    return BadInput("{}: its attention is none that a machine is calibrated for", shape.name);
  }
  StepPredictor out;
  out.calibration_ = setup.calibration;
  out.config_ = shape.config;
  out.experts_ = shape.experts;
  out.experts_per_token_ = shape.experts_per_token;
  NIBBLE_RETURN_IF_ERROR(out.AddMatrices(setup));
  NIBBLE_RETURN_IF_ERROR(out.AddLayers(setup));
  const ModelConfig& c = shape.config;
  const double query = static_cast<double>(c.heads) * c.head_dim;
  const double keys = static_cast<double>(c.kv_heads) * c.head_dim;
  out.front_values_ = c.width;
  out.back_values_ = query + c.width;
  out.place_values_ = query + 2 * keys;
  out.gate_values_ = c.ffn_width;
  return out;
}

Status StepPredictor::AddMatrices(const Setup& setup) {
  const Calibration& calibration = *setup.calibration;
  std::map<std::tuple<int, int>, double> panels;  // by layer and region
  const auto region = [](const WeightGroup& group) {
    const bool output = group.place.role == TensorRole::kOutput;
    return std::tuple(output ? -1 : group.place.layer, RegionOf(group.place.role));
  };
  for (const WeightGroup& group : setup.shape.groups) {
    const bool multiplied = group.use == WeightUse::kEveryStep || group.use == WeightUse::kExpert;
    if (multiplied) panels[region(group)] += PanelsOf(group);
  }
  const int last = static_cast<int>(config_.layers.size()) - 1;
  for (const WeightGroup& group : setup.shape.groups) {
    const bool table = group.use == WeightUse::kLookup || group.place.role == TensorRole::kOutput;
    const std::optional<Format> format =
        setup.weights.mix ? setup.weights.mix->For(group.place) : group.own_format;
    if (!format) continue;  // norms and biases of a file
    const double bytes = group.weights * TraitsOf(*format).BitsPerWeight() / 8;
    if (table && group.weights > 0 && embedding_row_.value == 0) {
      embedding_row_ = Bytes(bytes * config_.width / group.weights);
    }
    if (group.use != WeightUse::kEveryStep && group.use != WeightUse::kExpert) continue;
    const bool integer = !setup.weight_only && TraitsOf(*format).activation_group > 0;
    const KernelRates* kernel = calibration.KernelOf(*format, integer);
    if (kernel == nullptr) {
      return BadInput("{} weights with {} activations were not calibrated; run nibble calibrate",
                      TraitsOf(*format).name, integer ? "int8" : "f32");
    }
    const bool logits = group.place.role == TensorRole::kOutput ||
                        (group.place.layer == last && !IsFront(group.place.role));
    const bool experts = group.use == WeightUse::kExpert;
    auto same = std::ranges::find_if(matrices_, [&](const Matrices& one) {
      return one.kernel == kernel && one.experts == experts && one.logit_rows_only == logits;
    });
    if (same == matrices_.end()) {
      same =
          matrices_.insert(same, {.kernel = kernel, .experts = experts, .logit_rows_only = logits});
    }
    const double shared = panels[region(group)];
    same->bytes += bytes;
    same->few_weights += group.weights * Imbalance(shared, calibration.threads);
    same->many_weights += group.weights * Imbalance(std::ceil(shared / 2), calibration.threads);
  }
  return {};
}

Status StepPredictor::AddLayers(const Setup& setup) {
  NIBBLE_TRY(std::vector<KvGroup> groups, MakeKvGroups(config_, setup.kv.formats));
  const int last = static_cast<int>(config_.layers.size()) - 1;
  for (KvGroup& group : groups) {
    Layers layers;
    layers.last = std::ranges::find(group.layers, last) != group.layers.end() ? 1 : 0;
    layers.all = static_cast<int>(group.layers.size()) - layers.last;
    for (int rows = 1; rows <= kBlockRows; ++rows) {
      const auto at = static_cast<size_t>(rows);
      NIBBLE_TRY(layers.rates.sealed[at],
                 RatesOf(*calibration_, group.sealed, setup.weight_only, rows));
      NIBBLE_TRY(layers.rates.open[at],
                 RatesOf(*calibration_, group.layout, setup.weight_only, rows));
    }
    layers.group = std::move(group);
    layers_.push_back(std::move(layers));
  }
  return {};
}

double StepPredictor::KvBytes(const Layers& layers, const StepSequence& s) const {
  const double all = KvBytesRead({&layers.group, 1}, s.first + s.rows - 1);
  return all / static_cast<double>(layers.group.layers.size());
}

void StepPredictor::AddSequence(const Layers& layers, const StepSequence& s, Sum& sum) const {
  if (s.rows == 0) return;
  const KvGroup& group = layers.group;
  const int heads = config_.heads / config_.kv_heads;
  const PageCounts pages = MeanPages(s, group.window, group.two_forms() ? group.unit_pages() : 0);
  const int query_rows = s.rows * heads;
  const double kv_heads = static_cast<double>(config_.kv_heads) * s.count;
  const auto add = [&](int rows, double blocks) {
    if (blocks == 0 || rows == 0) return;
    const AttentionRates& sealed = layers.rates.sealed[static_cast<size_t>(rows)];
    const AttentionRates& open = layers.rates.open[static_cast<size_t>(rows)];
    const double in_sealed = pages.sealed * sealed.page_s;
    const double in_open = pages.open * open.page_s;
    const double cpu = kv_heads * blocks * (open.unit_s * pages.splits + in_sealed + in_open);
    sum.cpu += cpu;
    sum.overlap += cpu * (in_sealed > in_open ? sealed.overlap_p : open.overlap_p);
    sum.units += kv_heads * blocks;
    sum.tasks += kv_heads * blocks * pages.splits;
    sum.multiplies +=
        2 * (pages.sealed + pages.open) * kPageTokens * rows * blocks * config_.head_dim * kv_heads;
  };
  const int whole_blocks = query_rows / kBlockRows;
  add(kBlockRows, whole_blocks);
  add(query_rows % kBlockRows, 1);
  sum.most_splits = std::max(sum.most_splits, pages.splits);
  sum.bytes += KvBytes(layers, s) * s.count;
}

void StepPredictor::Attend(const Layers& layers, std::span<const StepSequence> sequences,
                           double bandwidth, StepCost& cost) const {
  const int threads = calibration_->threads;
  for (const bool last : {false, true}) {
    const int count = last ? layers.last : layers.all;
    if (count == 0) continue;
    Sum sum;
    for (const StepSequence& s : sequences) AddSequence(layers, last ? LastRows(s) : s, sum);
    if (sum.cpu <= 0) continue;
    const bool waves = sum.units < 4.0 * threads && sum.most_splits > 1;
    double cpu = sum.cpu;
    double waiting = 0;
    if (threads > 1 && sum.multiplies > kFewMultiplies) {
      cpu *= Imbalance(waves ? sum.tasks : sum.units, threads) / threads;
      if (waves) waiting = std::ceil(sum.tasks / (kWave * threads)) * calibration_->barrier_s;
    }
    const double work = calibration_->WorkSeconds(sum.bytes, bandwidth, cpu, sum.overlap / sum.cpu);
    cost.attention += Seconds((work + waiting) * count);
    cost.cpu += Seconds(cpu * count);
    cost.kv += Bytes(sum.bytes * count);
  }
}

StepCost StepPredictor::Predict(std::span<const StepSequence> sequences) const {
  double rows = 0;
  double logit_rows = 0;
  double kv_bytes = 0;
  for (const StepSequence& s : sequences) {
    rows += static_cast<double>(s.rows) * s.count;
    logit_rows += static_cast<double>(s.logit_rows) * s.count;
    for (const Layers& layers : layers_) {
      kv_bytes += KvBytes(layers, s) * s.count * (layers.all + layers.last);
    }
  }
  StepCost cost;
  if (rows == 0) return cost;
  const double read = ExpertsRead(experts_, experts_per_token_, static_cast<int>(rows));
  double weight_bytes = embedding_row_.value * rows;
  for (const Matrices& one : matrices_) {
    if (one.logit_rows_only && logit_rows == 0) continue;
    weight_bytes += one.bytes * (one.experts ? read : 1);
  }
  cost.weights = Bytes(weight_bytes);
  const double bandwidth = calibration_->BandwidthOf(weight_bytes + kv_bytes);
  for (const Matrices& one : matrices_) {
    double passing = one.logit_rows_only ? logit_rows : rows;
    if (passing == 0) continue;
    double part = 1;
    if (one.experts) {
      part = read;
      passing = std::max(1.0, passing * experts_per_token_ / experts_ / read);
    }
    const RowRate rate = one.kernel->At(passing);
    const double cpu =
        part * rate.cpu_s * (passing <= kFewRows ? one.few_weights : one.many_weights);
    cost.matmul +=
        Seconds(calibration_->WorkSeconds(part * one.bytes, bandwidth, cpu, rate.overlap));
    cost.cpu += Seconds(cpu);
  }
  for (const Layers& layers : layers_) Attend(layers, sequences, bandwidth, cost);
  cost.memory = (cost.weights + cost.kv) / BytesPerSecond(bandwidth);
  AddRows(rows, logit_rows, cost);
  return cost;
}

void StepPredictor::AddRows(double rows, double logit_rows, StepCost& cost) const {
  const StepOverheads& o = calibration_->overheads;
  const int threads = calibration_->threads;
  const auto layers = static_cast<double>(config_.layers.size());
  // Of the busiest thread: rows are prepared for products in tiles of 8, the rest row by row where
  // there is enough of it (kernels/activations.cc, elementwise.cc).
  const auto tiled = [&](double count) {
    return std::min(count, std::ceil(std::ceil(count / kTile) / threads) * kTile);
  };
  const bool few = rows * place_values_ <= kFewValues;
  const double placed = few ? rows : std::ceil(rows / threads);
  const double prepared = tiled(rows) * (layers * front_values_ + (layers - 1) * back_values_) +
                          tiled(logit_rows) * (back_values_ + config_.width);
  const double gated = gate_values_ * (tiled(rows) * (layers - 1) + tiled(logit_rows));
  cost.rows = Seconds(o.row_value_s * prepared + o.place_value_s * placed * layers * place_values_ +
                      o.gate_value_s * gated + o.logit_value_s * logit_rows * config_.vocabulary);
  cost.overhead = Seconds(o.step_s + o.layer_s * layers);
}

}  // namespace nibble
