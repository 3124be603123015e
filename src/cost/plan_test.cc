#include "cost/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "cost/plan_json.h"

namespace nibble {
namespace {

Plan MakeTestPlan(const PlanArguments& arguments) {
  const PlanSources sources = TableSources();
  auto request = ReadPlanRequest(arguments, sources);
  EXPECT_TRUE(request) << request.error().message;
  auto plan = MakePlan(*std::move(request), sources);
  EXPECT_TRUE(plan) << plan.error().message;
  return *std::move(plan);
}

std::string Gigabytes(Bytes bytes) { return fmt::format("{:.2f}", bytes.value / 1e9); }
std::string Milliseconds(Seconds time, int digits) {
  return fmt::format("{:.{}f}", 1e3 * time.value, digits);
}

// The published figures of the cost model's source, to the last printed digit: Llama-3-8B on one
// H100, nominal bytes.
TEST(PlanFigures, BatchOneOver2048Tokens) {
  const Plan plan = MakeTestPlan({.kv = "bf16", .batch = "1", .context = "2048"});
  ASSERT_EQ(plan.rows.size(), 3U);
  const std::pair<const char*, const char*> expected[] = {
      {"6.201", "161"}, {"3.400", "294"}, {"2.000", "500"}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Milliseconds(plan.rows[i].cost.step, 3), expected[i].first);
    EXPECT_EQ(fmt::format("{:.0f}", plan.rows[i].rate().value), expected[i].second);
    EXPECT_EQ(plan.rows[i].cost.bound, Bound::kMemory);
  }
  EXPECT_EQ(Gigabytes(plan.rows[0].cost.weights), "15.01");
}

TEST(PlanFigures, TheWidget) {
  const Plan plan = MakeTestPlan({});
  ASSERT_EQ(plan.rows.size(), 6U);
  const PlanRow& row = plan.rows[0];
  EXPECT_EQ(Gigabytes(row.cost.weights), "15.01");
  EXPECT_EQ(Gigabytes(row.cost.kv), "8.59");
  EXPECT_EQ(Milliseconds(row.cost.step, 2), "9.31");
  EXPECT_EQ(fmt::format("{:.0f}", row.rate().value), "1719");
  EXPECT_EQ(fmt::format("{:.2f}", row.speedup()), "1.00");
  EXPECT_EQ(row.cost.bound, Bound::kMemory);
  EXPECT_EQ(Gigabytes(row.memory.weights), "16.06");
  EXPECT_EQ(Gigabytes(row.memory.kv), "8.59");
  EXPECT_EQ(Gigabytes(row.memory.total()), "24.65");
  EXPECT_EQ(row.memory.device.value, 80e9);
  EXPECT_TRUE(row.memory.fits());
  const char* steps[] = {"9.3", "7.7", "6.5", "4.9", "5.1", "3.5"};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(Milliseconds(plan.rows[i].cost.step, 1), steps[i]);
    EXPECT_EQ(Milliseconds(plan.pairs[i].cost.step, 1), steps[i]);
    EXPECT_EQ(plan.rows[i].was.step, row.cost.step);
  }
}

TEST(PlanFigures, BatchThirtyTwoOver8192Tokens) {
  const Plan plan = MakeTestPlan({.weights = "bf16,int8", .batch = "32", .context = "8192"});
  ASSERT_EQ(plan.rows.size(), 4U);
  EXPECT_EQ(Gigabytes(plan.rows[0].cost.kv), "34.36");
  EXPECT_EQ(Milliseconds(plan.rows[0].cost.step, 2), "18.92");
  EXPECT_EQ(Milliseconds(plan.rows[1].cost.step, 2), "12.51");
  EXPECT_EQ(Milliseconds(plan.rows[3].cost.step, 2), "9.71");
  for (const PlanRow& row : plan.rows) EXPECT_EQ(row.cost.bound, Bound::kMemory);
}

TEST(PlanFigures, Crossover) {
  const Plan plan = MakeTestPlan({});
  ASSERT_TRUE(plan.rows[0].crossover);
  EXPECT_DOUBLE_EQ(plan.rows[0].crossover->value, 7504658432.0 * 2 / 131072);
  EXPECT_EQ(fmt::format("{:.0f}", plan.rows[0].crossover->value / 1e3), "115");  // thousands
}

TEST(PlanFigures, WeightsOfRoundModels) {
  const std::tuple<const char*, double, double, double> expected[] = {{"70b", 140e9, 70e9, 35e9},
                                                                      {"13b", 26e9, 13e9, 6.5e9}};
  for (const auto& [model, bf16, int8, int4] : expected) {
    const Plan plan =
        MakeTestPlan({.model = model, .device = "rtx-4060-ti-16gb", .kv = "bf16", .batch = "1"});
    EXPECT_EQ(plan.rows[0].memory.weights.value, bf16);
    EXPECT_EQ(plan.rows[1].memory.weights.value, int8);
    EXPECT_EQ(plan.rows[2].memory.weights.value, int4);
    EXPECT_FALSE(plan.rows[0].memory.fits());
    EXPECT_EQ(plan.rows[0].max_batch, 0);
    EXPECT_EQ(plan.rows[2].memory.fits(), std::string_view(model) == "13b");
  }
}

TEST(PlanFigures, MatmulWeightsOfLlama) {
  const auto shape = ModelShapeByName("llama-3-8b");
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->Weights(WeightUse::kEveryStep), 7504658432.0);
  EXPECT_EQ(shape->TotalWeights(), 8030261248.0);
}

// What the pages of the models say; shapes that nibble runs have a test of their own.
TEST(ModelShapes, CountWhatTheModelsPagesSay) {
  const std::pair<const char*, double> published[] = {
      {"mixtral-8x7b", 46702792704},     {"mixtral-8x22b", 140630071296},
      {"qwen3-30b-a3b", 30532122624},    {"deepseek-v2", 235741434880},
      {"deepseek-v2-lite", 15706484224}, {"gpt-oss-20b", 20914757184},
      {"gpt-oss-120b", 116829156672},    {"qwen2.5-7b", 7615616512},
      {"gemma3-270m", 268098176},        {"smollm2-135m", 134515008},
      {"phi-3-mini", 3821079552},        {"gemma2-9b", 9241705984}};
  for (const auto& [name, parameters] : published) {
    const auto shape = ModelShapeByName(name);
    ASSERT_TRUE(shape) << shape.error().message;
    EXPECT_EQ(shape->TotalWeights(), parameters) << name;
  }
  for (const std::string_view name : ModelShapeNames()) {
    EXPECT_TRUE(ModelShapeByName(name)) << name;
  }
}

TEST(ModelShapes, LatentCacheOfDeepSeek) {
  const auto shape = ModelShapeByName("deepseek-v2");
  const auto choice = ParseKvChoice("bf16");
  ASSERT_TRUE(shape && choice);
  const auto cost = KvCost::Create(*shape, *choice, Counting::kNominal);
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->PerToken().value, 60 * 2 * (512 + 64));  // layers, bytes, latent and rope
}

TEST(CostModelParts, ExpertsReadByABatch) {
  EXPECT_EQ(ExpertsRead(8, 2, 1), 0.25);
  // Counted out: the chance that one of 8 experts is none of 2 chosen, twice.
  EXPECT_DOUBLE_EQ(ExpertsRead(8, 2, 2), 1 - 0.75 * 0.75);
  EXPECT_EQ(ExpertsRead(0, 0, 5), 0);
  EXPECT_NEAR(ExpertsRead(8, 2, 1000), 1, 1e-12);
}

// Every device has a source for every number that it states.
TEST(DeviceShapes, HaveSources) {
  ASSERT_GE(DeviceShapeNames().size(), 10U);
  for (const std::string_view name : DeviceShapeNames()) {
    const auto device = DeviceShapeByName(name);
    ASSERT_TRUE(device);
    const auto has = [&](std::string_view field) {
      for (const auto& source : device->sources) {
        if (source.field == field && !source.text.empty()) return true;
      }
      return false;
    };
    for (const char* field :
         {"memory_bytes", "bandwidth", "bandwidth_efficiency", "bf16_flops", "overhead_s"}) {
      EXPECT_TRUE(has(field)) << name << " " << field;
    }
    EXPECT_EQ(has("int8_flops"), device->int8.value > 0) << name;
    EXPECT_EQ(has("fp8_flops"), device->fp8.value > 0) << name;
    EXPECT_EQ(has("link_bandwidth"), device->link.value > 0) << name;
  }
}

// Random points: more bytes never take less time, true bytes are not fewer than nominal ones, the
// sum and the largest sizes agree with what is asked of them.
TEST(PlanProperties, Random) {
  std::mt19937 random(7);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  const std::vector<std::string_view> models = ModelShapeNames(), devices = DeviceShapeNames();
  const char* kv_names[] = {"bf16", "f32", "fp8", "int8", "int4", "kivi4", "kivi2", "int8/kivi2"};
  const char* weight_names[] = {"bf16", "fp8", "int8", "int4", "q4_k_m", "q6_k", "mxfp4"};
  for (int i = 0; i < 400; ++i) {
    PlanArguments arguments{
        .model =
            std::string(models[static_cast<size_t>(pick(0, static_cast<int>(models.size()) - 1))]),
        .device = std::string(
            devices[static_cast<size_t>(pick(0, static_cast<int>(devices.size()) - 1))]),
        .weights = weight_names[pick(0, 6)],
        .kv = kv_names[pick(0, 7)],
        .batch = std::to_string(pick(1, 300)),
        .context = std::to_string(pick(0, 40000)),
        .counting = "nominal",
        .price_per_hour = "2.5"};
    const PlanRow nominal = MakeTestPlan(arguments).rows[0];
    arguments.counting = "true";
    const Plan plan = MakeTestPlan(arguments);
    const PlanRow& row = plan.rows[0];
    EXPECT_LE(nominal.cost.weights, row.cost.weights);
    EXPECT_LE(nominal.cost.kv.value, row.cost.kv.value * (1 + 1e-12));
    EXPECT_LE(nominal.memory.kv, row.memory.kv);
    EXPECT_EQ(row.memory.fits(), row.max_batch >= row.point.batch);
    EXPECT_TRUE(!row.memory.fits() || row.max_context >= row.point.context);
    EXPECT_NEAR(*row.cost_per_million_tokens * row.rate().value, 2.5 / 3600 * 1e6, 1e-6);
    const auto model = CostModel::Create(
        {.shape = plan.request.model, .device = plan.request.device, .counting = Counting::kTrue},
        plan.request.weights[0], plan.request.kv[0]);
    ASSERT_TRUE(model);
    DecodePoint more = row.point;
    more.batch += pick(1, 50);
    const DecodeCost larger = model->Decode(more);
    EXPECT_GE(larger.step, row.cost.step);
    EXPECT_GE(larger.bytes(), row.cost.bytes());
    if (row.max_batch > 0 && row.max_batch < CostModel::kMostBatch) {
      EXPECT_TRUE(model->Memory({row.max_batch, row.point.context}).fits());
      EXPECT_FALSE(model->Memory({row.max_batch + 1, row.point.context}).fits());
    }
    if (row.max_context > 0 && row.max_context < CostModel::kMostContext) {
      EXPECT_TRUE(model->Memory({row.point.batch, row.max_context}).fits());
      EXPECT_FALSE(model->Memory({row.point.batch, row.max_context + 1}).fits());
    }
  }
}

// Where windows end a layer's growth the crossover is where the sums meet.
TEST(PlanProperties, CrossoverWithWindows) {
  const auto shape = ModelShapeByName("gemma3-1b");
  const auto choice = ParseKvChoice("bf16");
  ASSERT_TRUE(shape && choice);
  const auto cost = KvCost::Create(*shape, *choice, Counting::kNominal);
  ASSERT_TRUE(cost);
  for (const double weights : {1e5, 1e7, 1e9}) {
    for (const int batch : {1, 7}) {
      const auto at = cost->Crossover(Bytes(weights), batch);
      ASSERT_TRUE(at);
      const int each = static_cast<int>(at->value / batch);
      EXPECT_LE(cost->Held(each).value * batch, weights);
      EXPECT_GE(cost->Held(each + 1).value * batch, weights);
    }
  }
  ModelShape windowed = *shape;
  for (LayerConfig& layer : windowed.config.layers) layer.window = 128;
  const auto bounded = KvCost::Create(windowed, *choice, Counting::kNominal);
  ASSERT_TRUE(bounded);
  EXPECT_FALSE(bounded->Crossover(Bytes(1e12), 1));
}

TEST(PlanArgumentErrors, NameTheArgument) {
  const std::pair<PlanArguments, const char*> wrong[] = {
      {{.model = "lama-3-8b"},
       "'model': there is no model 'lama-3-8b'; the nearest names are llama-3-8b"},
      {{.device = "h10"}, "'device': there is no device 'h10'; the nearest names are h100"},
      {{.devices = "0"}, "'devices': expected a whole number from 1 to 1024, found '0'"},
      {{.weights = "bf16,int5"}, "'weights': 'int5' is no weight format"},
      {{.weights = "own"}, "'weights': 'own': llama-3-8b is a shape without a file"},
      {{.kv = "bf16,,fp8"}, "'kv': expected names or numbers between commas"},
      {{.kv = "fp4"}, "'kv': expected one of bf16, f32"},
      {{.batch = "-1"}, "'batch': expected a whole number from 1"},
      {{.batch = ""}, "'batch': expected names or numbers"},
      {{.context = "4k"}, "'context': expected a whole number from 0"},
      {{.context = "99999999999999999999"}, "'context': expected a whole number"},
      {{.counting = "real"}, "'counting': expected nominal or true"},
      {{.price_per_hour = "nan"}, "'price_per_hour': expected a price"},
      {{.device = "m2-ultra", .devices = "2"}, "'devices': 2 devices: nothing is known of a link"}};
  const PlanSources sources = TableSources();
  for (const auto& [arguments, message] : wrong) {
    auto request = ReadPlanRequest(arguments, sources);
    std::string found = request ? "" : request.error().message;
    if (request) {
      const auto plan = MakePlan(*std::move(request), sources);
      ASSERT_FALSE(plan) << message;
      found = plan.error().message;
    }
    EXPECT_TRUE(found.starts_with(message)) << found;
  }
}

TEST(PlanArgumentErrors, RowsAreBounded) {
  PlanSources sources = TableSources();
  sources.max_rows = 11;
  auto request = ReadPlanRequest({.batch = "1,2"}, sources);
  ASSERT_TRUE(request);
  const auto plan = MakePlan(*std::move(request), sources);
  ASSERT_FALSE(plan);
  EXPECT_TRUE(plan.error().message.starts_with("'batch': ")) << plan.error().message;
}

TEST(PlanCounting, IsTrueWhereSomethingRealIsNamed) {
  EXPECT_EQ(MakeTestPlan({}).request.counting, Counting::kNominal);
  const Plan plan = MakeTestPlan({.weights = "q4_k_m,int8"});
  EXPECT_EQ(plan.request.counting, Counting::kTrue);
  EXPECT_NE(CountingText(plan.request).find("int8 is q8_0"), std::string::npos);
  EXPECT_EQ(MakeTestPlan({.weights = "q4_k_m", .counting = "nominal"}).request.counting,
            Counting::kNominal);
}

TEST(PlanJsonText, HasTheFixedKeys) {
  const auto json = PlanJson(MakeTestPlan({.price_per_hour = "3"}));
  for (const char* key : {"model",
                          "device",
                          "devices",
                          "weights",
                          "kv",
                          "batch",
                          "context",
                          "weight_bytes",
                          "kv_bytes",
                          "bytes",
                          "flops",
                          "step_s",
                          "tok_s",
                          "speedup",
                          "bound",
                          "memory_weights_bytes",
                          "memory_kv_bytes",
                          "memory_total_bytes",
                          "device_memory_bytes",
                          "fits",
                          "max_batch",
                          "max_context",
                          "cost_per_million_tokens",
                          "source"}) {
    EXPECT_TRUE(json["rows"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["rows"][0]["source"], "predicted");
  EXPECT_GT(json["crossover_tokens"].get<double>(), 114000);
  EXPECT_EQ(json["pairs"].size(), 6U);
}

}  // namespace
}  // namespace nibble
