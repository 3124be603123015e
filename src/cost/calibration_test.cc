#include "cost/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cost/cost_model.h"
#include "cost/step_predictor.h"

namespace nibble {
namespace {

// A machine whose numbers are simple and not like any that exists.
Calibration InventedMachine() {
  Calibration c;
  c.machine = {.processor = "invented, family 1", .processors = 4, .last_level_cache = 1 << 20};
  c.isa = Isa::kScalar;
  c.threads = 4;
  c.memory_bytes = 64e9;
  c.read_bandwidth = 20e9;
  c.int4_macs = 4e11;
  c.int8_macs = 2e11;
  c.f32_macs = 5e10;
  c.thread_bandwidth = {{1, 10e9}, {4, 20e9}};
  c.cache_bandwidth = {{1e6, 80e9}, {8e6, 50e9}, {128e6, 20e9}};
  for (const FormatTraits& traits : AllFormats()) {
    for (const bool integer : {true, false}) {
      if (integer && traits.activation_group == 0) continue;
      c.kernels.push_back({.format = traits.format,
                           .integer = integer,
                           .isa = Isa::kScalar,
                           .gemv_bandwidth = 18e9,
                           .gemm_macs = 1e11,
                           .unpack_s_per_weight = 5e-12,
                           .row_s_per_weight = 1e-12,
                           .overlap_p = 2,
                           .rows = {{1, 6e-12, 2}, {8, 13e-12, 1.5}, {64, 69e-12, 3}}});
    }
  }
  for (const KvFormatTraits& traits : AllKvFormats()) {
    for (const bool integer : {true, false}) {
      if (integer && !traits.integer) continue;
      for (const int head_dim : {64, 128}) {
        for (const int group : {1, 8}) {
          c.attention.push_back({.kv = traits.format,
                                 .integer = integer,
                                 .head_dim = head_dim,
                                 .group = group,
                                 .page_s = 1e-9 * head_dim * (1 + group),
                                 .unit_s = 1e-7,
                                 .overlap_p = 3});
        }
      }
    }
  }
  c.barrier_s = 1e-7;
  c.region_s = 2e-7;
  c.overheads = {.step_s = 1e-5,
                 .layer_s = 3e-6,
                 .row_value_s = 1e-9,
                 .place_value_s = 2e-9,
                 .gate_value_s = 3e-9,
                 .logit_value_s = 1e-10};
  return c;
}

Result<Calibration> Reread(std::string text) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(text)));
  return ReadCalibration(document.root());
}

StepPredictor MakePredictor(const std::string& model, const std::string& weights,
                            const std::string& kv, const Calibration& calibration) {
  return *StepPredictor::Create({.shape = *ModelShapeByName(model),
                                 .calibration = std::make_shared<Calibration>(calibration),
                                 .weights = *ParseWeightFormat(weights),
                                 .kv = *ParseKvChoice(kv)});
}

double Predict(const StepPredictor& predictor, const StepSequence& one) {
  return predictor.Predict({&one, 1}).total().value;
}

TEST(Overlap, IsTheInverseOfOverlapped) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> number(0.1, 10);
  for (int i = 0; i < 1000; ++i) {
    const double memory = number(engine);
    const double cpu = number(engine);
    const double p = 0.8 + number(engine);
    const double both = Overlapped(memory, cpu, p);
    EXPECT_GE(both, std::max(memory, cpu));
    EXPECT_NEAR(Overlapped(memory, cpu, OverlapOf(memory, cpu, both)), both, 1e-9 * both);
  }
  EXPECT_EQ(OverlapOf(1, 1, 0.5), kMostOverlap);  // faster than either: noise
  EXPECT_EQ(OverlapOf(1, 1, 9), kLeastOverlap);
  EXPECT_DOUBLE_EQ(Overlapped(3, 0, 1.5), 3);
  EXPECT_DOUBLE_EQ(Overlapped(0, 0, 1.5), 0);
}

TEST(CalibrationFile, ReadsWhatItWrites) {
  const Calibration c = InventedMachine();
  const std::string text = CalibrationJson(c);
  const auto again = Reread(text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(CalibrationJson(*again), text);
  EXPECT_EQ(again->machine, c.machine);
  EXPECT_EQ(again->kernels.size(), c.kernels.size());
  // It is a device as well.
  const auto document = JsonDocument::Parse(text);
  const auto device = ReadDeviceShape(document->root());
  ASSERT_TRUE(device) << device.error().message;
  ASSERT_TRUE(device->calibration);
  EXPECT_EQ(device->bandwidth.value, c.read_bandwidth);
  EXPECT_EQ(device->bf16.value, 2 * c.f32_macs);
}

TEST(CalibrationFile, RefusesWhatIsBroken) {
  const std::string text = CalibrationJson(InventedMachine());
  const auto error_of = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    const auto read = Reread(changed);
    return read ? std::string("read") : read.error().message;
  };
  EXPECT_NE(error_of("\"nibble_calibration\": 1", "\"nibble_calibration\": 7")
                .find("expected version 1, found 7; run nibble calibrate"),
            std::string::npos);
  EXPECT_NE(error_of("\"threads\": 4", "\"threads\": -4").find("'threads'"), std::string::npos);
  EXPECT_NE(error_of("\"isa\": \"scalar\"", "\"isa\": \"vax\"").find("'vax'"), std::string::npos);
  EXPECT_NE(error_of("\"barrier_s\"", "\"carrier_s\"").find("'barrier_s' is missing"),
            std::string::npos);
  EXPECT_NE(error_of("\"format\": \"f32\"", "\"format\": \"f33\"").find("'kernels' entry 0"),
            std::string::npos);
  EXPECT_NE(error_of("\"rows\": 8,", "\"rows\": 1,").find("ascending by rows"), std::string::npos);
  EXPECT_NE(error_of("\"cpu_s\": ", "\"cpu_s\": -").find("'cpu_s'"), std::string::npos);
  EXPECT_FALSE(Reread("[]"));
  EXPECT_FALSE(Reread("{}"));
}

TEST(CalibrationFile, IsRefusedOnAnotherMachine) {
  const Calibration c = InventedMachine();
  EXPECT_TRUE(CheckMachine(c, c.machine));
  Machine other = c.machine;
  other.processors = 8;
  const Status status = CheckMachine(c, other);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("4 processors"), std::string::npos);
  EXPECT_NE(status.error().message.find("8 processors"), std::string::npos);
  EXPECT_NE(status.error().message.find("run nibble calibrate"), std::string::npos);
}

TEST(CalibrationCurves, InterpolateBetweenWhatWasMeasured) {
  const Calibration c = InventedMachine();
  EXPECT_DOUBLE_EQ(c.BandwidthOf(1), 80e9);
  EXPECT_DOUBLE_EQ(c.BandwidthOf(8e6), 50e9);
  EXPECT_DOUBLE_EQ(c.BandwidthOf(32e6), 35e9);  // half way over the logarithm
  EXPECT_DOUBLE_EQ(c.BandwidthOf(1e12), 20e9);
  const KernelRates& kernel = *c.KernelOf(Format::kQ8_0, true);
  EXPECT_DOUBLE_EQ(kernel.At(1).cpu_s, 6e-12);
  EXPECT_DOUBLE_EQ(kernel.At(36).cpu_s, 41e-12);
  EXPECT_DOUBLE_EQ(kernel.At(128).cpu_s, 138e-12);
  EXPECT_EQ(c.KernelOf(Format::kF16, true), nullptr);
  const auto rates = c.AttentionOf(KvFormat::kF16, false, 96, 4.5);
  ASSERT_TRUE(rates);
  EXPECT_DOUBLE_EQ(rates->page_s, 1e-9 * 96 * 5.5);
  EXPECT_DOUBLE_EQ(c.AttentionOf(KvFormat::kF16, false, 256, 8)->page_s, 2e-9 * 128 * 9);
}

// One matrix format, no cache worth counting: the sum is what a hand computes.
TEST(StepPredictions, EqualTheFormula) {
  Calibration c = InventedMachine();
  c.overheads = {};
  const StepPredictor predictor = MakePredictor("llama-3-8b", "q8_0", "f16", c);
  const StepSequence one{.first = 0};
  const StepCost cost = predictor.Predict({&one, 1});
  const ModelShape shape = *ModelShapeByName("llama-3-8b");
  const double weights = shape.Weights(WeightUse::kEveryStep);
  const double row = 8.5 / 8 * shape.config.width;
  EXPECT_NEAR(cost.weights.value, weights * 8.5 / 8 + row, 1);
  const double memory = weights * 8.5 / 8 / 20e9;
  const double beyond = memory - weights * 8.5 / 8 / 80e9;  // the near cache's rate
  EXPECT_NEAR(cost.matmul.value, std::max(memory, Overlapped(beyond, weights * 6e-12, 2)),
              1e-9 * memory);
  EXPECT_EQ(cost.rows.value + cost.overhead.value, 0);
  EXPECT_LT(cost.attention.value, 1e-3 * cost.matmul.value);
}

TEST(StepPredictions, NeverFallWhenSomethingGrows) {
  const Calibration c = InventedMachine();
  std::mt19937 engine(2);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(engine);
  };
  for (const char* model : {"smollm2-135m", "gemma3-270m", "llama-3-8b"}) {
    for (const char* kv : {"f16", "int8", "kivi2", "fp8/int4"}) {
      const StepPredictor predictor = MakePredictor(model, "q4_k_m", kv, c);
      for (int i = 0; i < 100; ++i) {
        StepSequence s{.first = pick(0, 6000), .rows = pick(1, 200), .count = pick(1, 40)};
        const double before = Predict(predictor, s);
        ASSERT_GT(before, 0);
        StepSequence more = s;
        more.count += pick(1, 10);
        EXPECT_GE(Predict(predictor, more), before);
        more = s;
        // By whole units of pages: within one, sealing makes bytes fewer.
        more.first += 128 * pick(1, 10);
        EXPECT_GE(Predict(predictor, more), before * (1 - 1e-12));
      }
    }
  }
}

TEST(StepPredictions, MoreBytesOfWeightsNeverTakeLess) {
  Calibration c = InventedMachine();
  double before = 0;
  for (const char* format : {"q4_0", "q5_0", "q8_0"}) {
    const double seconds =
        Predict(MakePredictor("llama-3-8b", format, "f16", c), {.first = 100, .count = 3});
    EXPECT_GT(seconds, before);
    before = seconds;
  }
}

TEST(StepPredictions, AStepIsItsSequences) {
  const StepPredictor predictor = MakePredictor("smollm2-135m", "q4_0", "int8", InventedMachine());
  const StepSequence three[] = {{.first = 70}, {.first = 70}, {.first = 70}};
  const StepSequence counted{.first = 70, .count = 3};
  EXPECT_DOUBLE_EQ(predictor.Predict(three).total().value, Predict(predictor, counted));
  const StepSequence without{.first = 70, .rows = 8, .logit_rows = 0};
  StepSequence with = without;
  with.logit_rows = 1;
  EXPECT_GT(Predict(predictor, with), Predict(predictor, without));
  EXPECT_EQ(predictor.Predict({}).total().value, 0);
}

TEST(CalibratedPlans, TakeThePredictorsSteps) {
  const auto document = JsonDocument::Parse(CalibrationJson(InventedMachine()));
  const DeviceShape device = *ReadDeviceShape(document->root());
  const ModelShape shape = *ModelShapeByName("llama-3-8b");
  const WeightFormat weights = *ParseWeightFormat("q4_k_m");
  const KvChoice kv = *ParseKvChoice("int8");
  const auto step = [&](Counting counting) {
    return CostModel::Create({.shape = shape, .device = device, .counting = counting}, weights, kv)
        ->Decode({.batch = 5, .context = 1000});
  };
  const StepPredictor predictor = MakePredictor("llama-3-8b", "q4_k_m", "int8", InventedMachine());
  const DecodeCost counted = step(Counting::kTrue);
  EXPECT_DOUBLE_EQ(counted.step.value, Predict(predictor, {.first = 1000, .count = 5}));
  EXPECT_GE(counted.step.value, std::max(counted.memory_time.value, counted.compute_time.value));
  // Nominal plans stay the two bounds.
  const DecodeCost nominal = step(Counting::kNominal);
  EXPECT_DOUBLE_EQ(nominal.step.value,
                   std::max(nominal.memory_time.value, nominal.compute_time.value) + 1e-5);
  EXPECT_LE(nominal.bytes().value, counted.bytes().value);
}

TEST(StepPredictions, SayWhatWasNotCalibrated) {
  Calibration c = InventedMachine();
  std::erase_if(c.kernels, [](const KernelRates& one) { return one.format == Format::kQ4K; });
  const auto create = [&](const char* model, const char* weights) {
    const ModelShape shape = *ModelShapeByName(model);
    const auto made = StepPredictor::Create({.shape = shape,
                                             .calibration = std::make_shared<Calibration>(c),
                                             .weights = *ParseWeightFormat(weights),
                                             .kv = *ParseKvChoice("f16")});
    return made ? std::string("made") : made.error().message;
  };
  EXPECT_NE(create("llama-3-8b", "q4_k_m").find("q4_k weights with int8"), std::string::npos);
  EXPECT_NE(create("llama-3-8b", "own").find("'own'"), std::string::npos);
  EXPECT_NE(create("deepseek-v2", "q8_0").find("deepseek-v2"), std::string::npos);
  EXPECT_EQ(create("mixtral-8x7b", "q8_0"), "made");
}

}  // namespace
}  // namespace nibble
