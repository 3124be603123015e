#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "advise/advice.h"
#include "advise/advise_journal.h"
#include "advise/kv_layers.h"
#include "advise/next_measurement.h"
#include "advise/place_priors.h"
#include "advise/quality_meter.h"
#include "cost/cost_model.h"
#include "model/config/model_file.h"
#include "model/decoder.h"

namespace nibble {

class ThreadPool;
class Tokenizer;
struct KernelTable;

// A format that the weights may get.
struct WeightsCandidate {
  std::string to;                     // of quantize, or "own"
  WeightFormat priced;                // as the cost model knows it
  bool weight_only = false;           // stored so, computed in 16 bits
  std::optional<FormatMix> mix = {};  // none: own
};

// Where speed is predicted.
struct AdviseDevice {
  DeviceShape shape;
  bool here = true;  // speed is measured as well
  int devices = 1;
};

struct AdviserSetup {
  const ModelFile& model;
  const Tokenizer& tokenizer;
  std::string text;                         // UTF-8
  ModelShape shape;                         // of the model
  std::shared_ptr<const DeviceShape> here;  // calibrated
  AdviseDevice device;
  ServedLoad load;
  AdviceLimits limits;
  std::vector<WeightsCandidate> weights;  // [0]: own
  std::vector<KvChoice> kvs;              // [0]: f16
  Act act = Act::kInt8;
  ThreadPool& pool;
  const KernelTable& kernels;
  std::filesystem::path folder;  // scratch
  double deadline = 0;           // of MonotonicSeconds
  // Divergence that a cache may cost beside f16: those that cost more are measured layer by layer,
  // and come once more with so many layers in f16. 0: none.
  double kv_target = 0;

  // The file of the model in a format. Reports its own progress.
  std::function<Result<std::filesystem::path>(const WeightsCandidate&)> make;
  std::function<bool()> keep_going;
  // What is done next, and the seconds that it is expected to take.
  std::function<void(const std::string& what, double seconds)> announce;
  // The table has changed.
  std::function<void(const std::vector<AdviceRow>& rows)> changed;
  AdviseJournal* journal = nullptr;
};

// A cache's costs layer by layer, and what is skipped for the target.
struct KvLayerAdvice {
  std::string kv;
  KvLayers costs;
  SkipChoice skip;
};

// Measures the grid until the deadline, or until nothing is left to measure.
class Adviser {
 public:
  // Predicts every place; measures the formats' errors on a sample of the weights. Errors: a text
  // that is too short (both numbers), memory below what the smallest place needs (which, and how
  // much).
  static Result<std::unique_ptr<Adviser>> Create(AdviserSetup setup);
  ~Adviser();

  // Error: kCancelled when keep_going said so; what was measured stays. Candidates that cannot be
  // made or run are left out of the table, and refused() says why.
  Status Run();

  const AdviceGrid& grid() const { return grid_; }
  const std::vector<AdviceRow>& rows() const { return rows_; }
  const std::vector<KvLayerAdvice>& kv_layers() const { return kv_layers_; }
  int window_tokens() const { return meter_->context(); }
  int windows() const { return meter_->windows(); }
  const AdviserSetup& setup() const { return setup_; }
  // Formats and what is wrong with them.
  std::vector<std::string> refused() const;
  // The options of the server that a row is about.
  Result<EngineOptions> OptionsOf(const AdviceRow& row) const;

 private:
  explicit Adviser(AdviserSetup setup) : setup_(std::move(setup)) {}

  struct Loaded {
    int weights = -1;
    std::optional<ModelFile> file;  // none: the source
    std::unique_ptr<Decoder> decoder;
  };

  Status ChooseWindows(std::vector<TokenId> ids);
  Status SampleErrors();
  Status AddPlace(GridPlace at);
  Status CheckMemory() const;
  void TakeJournal();
  void Refresh();
  double TimeLeft() const;
  double CostOf(GridPlace at, Measuring what) const;
  double MakeSeconds(int weights) const;
  double LoadSeconds(int weights) const;
  double WindowSeconds(GridPlace at) const;
  double BaseSeconds() const;
  Result<CostModel> ModelOf(GridPlace at, const DeviceShape& device, int devices) const;
  Status Load(int weights);
  Status Perform(const GridMeasurement& next);
  Status MeasureQualityAt(GridPlace at);
  Status MeasureSpeedAt(GridPlace at);
  Status AddSkips();
  Status AddSkipsOf(int kv);
  KvLayersInput LayersInput(int kv) const;
  int LayerWindow() const;
  JournalPlace PlaceOf(GridPlace at) const;
  KvFormats FormatsOf(int kv) const;
  const ModelFile& FileOf(int weights) const;
  std::string Describe(const GridMeasurement& next) const;

  AdviserSetup setup_;
  AdviceGrid grid_;
  std::vector<AdviceRow> rows_;
  std::vector<KvLayerAdvice> kv_layers_;
  std::optional<QualityMeter> meter_;
  MemoryPlan memory_plan_;                   // of the model as it is, as a server loads it
  std::vector<std::filesystem::path> made_;  // by weights; empty: not yet
  std::vector<double> encode_s_;             // expected seconds to make, by weights
  double window_unit_s_ = 0;                 // of the own weights' window, as predicted
  double base_unit_s_ = 0;
  // How much longer things took than expected, learnt as they are done.
  double window_factor_ = 1, base_factor_ = 1, make_factor_ = 2, speed_factor_ = 1;
  Loaded loaded_;
  std::vector<int> skips_tried_;  // caches
};

}  // namespace nibble
