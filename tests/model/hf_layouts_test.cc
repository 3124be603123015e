#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <ostream>
#include <random>
#include <string>

#include "container/hf_folder_writer.h"
#include "container/hf_scheme.h"
#include "format/small_float.h"
#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({"model_type":"llama","architectures":["LlamaForCausalLM"],
"vocab_size":96,"hidden_size":128,"num_hidden_layers":2,"num_attention_heads":4,
"num_key_value_heads":2,"head_dim":32,"intermediate_size":192,"max_position_embeddings":256,
"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":false})";

struct Wanted {
  std::string name;
  int rows;
  int cols;  // 0: a vector
  bool linear;
};

std::vector<Wanted> TensorsOfModel() {
  std::vector<Wanted> out = {{"model.embed_tokens.weight", 96, 128, false}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    out.push_back({p + "input_layernorm.weight", 128, 0, false});
    out.push_back({p + "post_attention_layernorm.weight", 128, 0, false});
    out.push_back({p + "self_attn.q_proj.weight", 128, 128, true});
    out.push_back({p + "self_attn.k_proj.weight", 64, 128, true});
    out.push_back({p + "self_attn.v_proj.weight", 64, 128, true});
    out.push_back({p + "self_attn.o_proj.weight", 128, 128, true});
    out.push_back({p + "mlp.gate_proj.weight", 192, 128, true});
    out.push_back({p + "mlp.up_proj.weight", 192, 128, true});
    out.push_back({p + "mlp.down_proj.weight", 128, 192, true});
  }
  out.push_back({"model.norm.weight", 128, 0, false});
  out.push_back({"lm_head.weight", 96, 128, false});
  return out;
}

std::vector<float> RandomWeights(const Wanted& tensor, std::mt19937& engine) {
  std::normal_distribution<float> normal(0, tensor.cols == 0 ? 0.1F : 0.08F);
  std::vector<float> w(static_cast<size_t>(tensor.rows) *
                       static_cast<size_t>(std::max(tensor.cols, 1)));
  for (float& value : w) value = normal(engine) + (tensor.cols == 0 ? 1.0F : 0.0F);
  return w;
}

// Round to nearest by the scheme, and what that stands for.
GroupedMatrix Quantise(const HfScheme& scheme, const Wanted& t, std::vector<float>& w,
                       std::mt19937& engine) {
  GroupedMatrix m;
  m.rows = t.rows;
  m.cols = t.cols;
  m.bits = scheme.bits;
  m.group = scheme.group == 0 ? t.cols : scheme.group;
  m.symmetric = scheme.symmetric;
  const auto cols = static_cast<size_t>(t.cols);
  std::vector<int32_t> group_of(cols);
  for (size_t c = 0; c < cols; ++c) group_of[c] = static_cast<int32_t>(c) / m.group;
  if (scheme.act_order) {
    std::ranges::shuffle(group_of, engine);
    m.group_of = group_of;
  }
  const float top = static_cast<float>((1 << m.bits) - 1);
  for (size_t r = 0; r < static_cast<size_t>(t.rows); ++r) {
    float* row = w.data() + r * cols;
    for (int g = 0; g < m.groups(); ++g) {
      float min = 0;
      float max = 0;
      for (size_t c = 0; c < cols; ++c) {
        if (group_of[c] != g) continue;
        min = std::min(min, row[c]);
        max = std::max(max, row[c]);
      }
      if (scheme.symmetric) max = std::max(max, -min);
      const float step = scheme.symmetric ? 2 * max / top : (max - min) / top;
      m.scales.push_back(RoundHfScale(scheme, step));
      const float zero = scheme.symmetric ? (top + 1) / 2 : std::nearbyint(-min / m.scales.back());
      m.zeros.push_back(static_cast<uint8_t>(std::clamp(zero, 0.0F, top)));
    }
    for (size_t c = 0; c < cols; ++c) {
      const size_t i = r * static_cast<size_t>(m.groups()) + static_cast<size_t>(group_of[c]);
      const float code = std::nearbyint(row[c] / m.scales[i]) + static_cast<float>(m.zeros[i]);
      m.codes.push_back(static_cast<uint8_t>(std::clamp(code, 0.0F, top)));
      row[c] = static_cast<float>(m.codes.back() - m.zeros[i]) * m.scales[i];
    }
  }
  return m;
}

Fp8Matrix QuantiseF8(const HfScheme& scheme, const Wanted& t, std::vector<float>& w) {
  Fp8Matrix m{.rows = t.rows, .cols = t.cols, .codes = {}, .scales = {}};
  const auto cols = static_cast<size_t>(t.cols);
  const size_t block = scheme.tensor_scale ? w.size() : cols;
  for (size_t begin = 0; begin < w.size(); begin += block) {
    float largest = 0;
    for (size_t i = begin; i < begin + block; ++i) largest = std::max(largest, std::fabs(w[i]));
    m.scales.push_back(RoundHfScale(scheme, largest / 448));
    for (size_t i = begin; i < begin + block; ++i) {
      m.codes.push_back(F32ToF8E4M3Saturating(w[i] / m.scales.back()));
      w[i] = F8E4M3ToF32(m.codes.back()) * m.scales.back();
    }
  }
  return m;
}

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// Writes the same random model quantised by a scheme, and in floats with the weights that the
// codes stand for.
class LayoutModel {
 public:
  // cache_scale: of keys and values, 0: none.
  explicit LayoutModel(const HfScheme& scheme, bool static_scale = false, float cache_scale = 0)
      : scheme_(scheme), static_scale_(static_scale), cache_scale_(cache_scale) {
    auto quantised = HfFolderWriter::Create(this->quantised());
    auto floats = HfFolderWriter::Create(twin());
    Add(*quantised, *floats);
    Check(quantised->Begin());
    Check(floats->Begin());
    Write(*quantised, *floats);
    const std::vector<std::string> kept = {"lm_head"};
    std::string config = HfConfigWithQuantization(kConfig, scheme, kept).value();
    if (static_scale_) {
      const std::string dynamic =
          R"("strategy":"token","group_size":null,"block_structure":null,"dynamic":true)";
      const size_t at = config.find(dynamic);
      EXPECT_NE(at, std::string::npos);
      config.replace(at, dynamic.size(), R"("strategy":"tensor","dynamic":false)");
    }
    if (cache_scale_ > 0) {
      const std::string none = R"("kv_cache_scheme":null)";
      const size_t at = config.find(none);
      EXPECT_NE(at, std::string::npos);
      config.replace(at, none.size(), R"("kv_cache_scheme":{"type":"float","num_bits":8})");
    }
    Check(quantised->WriteText("config.json", config));
    Check(floats->WriteText("config.json", kConfig));
    for (auto* writer : {&*quantised, &*floats}) {
      Check(writer->Finish());
      Check(writer->Commit());
    }
  }
  fs::path quantised() const { return dir_.path() / "quantised"; }
  fs::path twin() const { return dir_.path() / "floats"; }

 private:
  static void Check(const Status& status) { ASSERT_TRUE(status) << status.error().message; }
  static std::string Module(const std::string& name) {
    return name.substr(0, name.size() - std::string(".weight").size());
  }

  // "model.layers.0.self_attn." behind a layer's v_proj; empty behind others.
  static std::string Attention(const Wanted& t) {
    const std::string last = "v_proj.weight";
    return t.name.ends_with(last) ? t.name.substr(0, t.name.size() - last.size()) : "";
  }

  void Add(HfFolderWriter& quantised, HfFolderWriter& floats) {
    for (const Wanted& t : TensorsOfModel()) {
      std::vector<uint64_t> shape = {static_cast<uint64_t>(t.rows)};
      if (t.cols > 0) shape.push_back(static_cast<uint64_t>(t.cols));
      Check(floats.AddTensor({t.name, "F32", shape}));
      if (!t.linear) {
        Check(quantised.AddTensor({t.name, "F32", shape}));
        continue;
      }
      for (const HfTensor& tensor : HfLinearTensors(scheme_, Module(t.name), t.rows, t.cols)) {
        Check(quantised.AddTensor(tensor));
      }
      if (static_scale_) Check(quantised.AddTensor({Module(t.name) + ".input_scale", "F32", {1}}));
      if (const auto attention = Attention(t); cache_scale_ > 0 && !attention.empty()) {
        Check(quantised.AddTensor({attention + "k_scale", "F32", {1}}));
        Check(quantised.AddTensor({attention + "v_scale", "F32", {}}));
      }
    }
  }
  void Write(HfFolderWriter& quantised, HfFolderWriter& floats) {
    std::mt19937 engine(9);
    for (const Wanted& t : TensorsOfModel()) {
      std::vector<float> w = RandomWeights(t, engine);
      if (t.linear) {
        const auto bytes = scheme_.layout == HfLayout::kFloatQuantized
                               ? EncodeHfLinear(scheme_, QuantiseF8(scheme_, t, w))
                               : EncodeHfLinear(scheme_, Quantise(scheme_, t, w, engine));
        ASSERT_TRUE(bytes) << bytes.error().message;
        for (const auto& tensor : *bytes) Check(quantised.Append(tensor));
        if (static_scale_) Check(quantised.Append(BytesOf({0.05F})));
        if (cache_scale_ > 0 && !Attention(t).empty()) {
          Check(quantised.Append(BytesOf({cache_scale_, cache_scale_})));
        }
      } else {
        Check(quantised.Append(BytesOf(w)));
      }
      Check(floats.Append(BytesOf(w)));
    }
  }

  HfScheme scheme_;
  bool static_scale_;
  float cache_scale_;
  TempDir dir_;
};

Ids SomeIds() {
  Ids ids;
  for (int i = 0; i < 70; ++i) ids.push_back((i * i * 5 + i * 11 + 3) % 96);
  return ids;
}

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

struct LayoutCase {
  const char* name;
  HfScheme scheme;
  friend void PrintTo(const LayoutCase& c, std::ostream* out) { *out << c.name; }
};

std::vector<LayoutCase> Cases() {
  using L = HfLayout;
  using A = HfActivations;
  return {
      {"gptq_w4g32", {.layout = L::kGptq, .group = 32}},
      {"gptq_w4g64_asym", {.layout = L::kGptq, .group = 64, .symmetric = false}},
      {"gptq_w4g32_order", {.layout = L::kGptq, .group = 32, .act_order = true}},
      {"gptq_w4_row", {.layout = L::kGptq, .group = 0}},
      {"gptq_w8g32", {.layout = L::kGptq, .bits = 8, .group = 32, .symmetric = false}},
      {"gptq_w3g32", {.layout = L::kGptq, .bits = 3, .group = 32, .symmetric = false}},
      {"gptq_w2g16_decoded", {.layout = L::kGptq, .bits = 2, .group = 16, .symmetric = false}},
      {"gptq_v2_w4g32", {.layout = L::kGptqV2, .group = 32, .symmetric = false}},
      {"awq_w4g64", {.layout = L::kAwq, .group = 64, .symmetric = false}},
      {"pack_w4g32", {.layout = L::kPackQuantized, .group = 32, .bf16_scales = true}},
      {"pack_w4g64_asym", {.layout = L::kPackQuantized, .group = 64, .symmetric = false}},
      {"pack_w4g32_order", {.layout = L::kPackQuantized, .group = 32, .act_order = true}},
      {"pack_w8g64", {.layout = L::kPackQuantized, .bits = 8, .group = 64}},
      {"int8_row", {.layout = L::kIntQuantized, .bits = 8, .group = 0, .bf16_scales = true}},
      {"f8_row", {.layout = L::kFloatQuantized, .bf16_scales = true}},
      {"f8_tensor", {.layout = L::kFloatQuantized, .tensor_scale = true}},
      {"int8_token",
       {.layout = L::kIntQuantized, .bits = 8, .group = 0, .activations = A::kInt8Token}},
      {"f8_token", {.layout = L::kFloatQuantized, .activations = A::kFp8Token}},
      {"llm_int8", {.layout = L::kLlmInt8, .bits = 8, .group = 0, .outlier_threshold = 2.5}},
  };
}

class HfLayouts : public ::testing::TestWithParam<LayoutCase> {};

// Weights that are codes times scales give the logits of the floats they stand for. What differs is
// the rounding of f32 sums; where the inputs are rounded too, half a step of 1/127 or 1/8, which
// two layers of random weights pass on.
TEST_P(HfLayouts, EqualsItsTwinInFloats) {
  const HfScheme& scheme = GetParam().scheme;
  const LayoutModel model(scheme);
  // For tools/check_compressed_tensors.py.
  if (const char* keep = std::getenv("NIBBLE_KEEP_LAYOUTS")) {
    fs::copy(model.quantised().parent_path(), fs::path(keep) / GetParam().name,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  Runner quantised(model.quantised());
  Runner twin(model.twin());
  ASSERT_TRUE(quantised.ok() && twin.ok());
  const double error = RelativeError(quantised.Logits(SomeIds()), twin.Logits(SomeIds()));
  double bound = 2e-6;
  if (scheme.activations == HfActivations::kInt8Token) bound = 0.05;
  if (scheme.activations == HfActivations::kFp8Token) bound = 0.16;
  if (scheme.layout == HfLayout::kLlmInt8) bound = 0.05;
  EXPECT_LT(error, bound);
  if (bound > 2e-6) {
    EXPECT_GT(error, 1e-4) << "the inputs are not rounded";
  }
  Runner int8(model.quantised(), {.act = Act::kInt8});
  ASSERT_TRUE(int8.ok());
  EXPECT_LT(RelativeError(int8.Logits(SomeIds()), twin.Logits(SomeIds())), 0.16);
}

TEST_P(HfLayouts, SameBitsWhateverTheBatchAndThreads) {
  const LayoutModel model(GetParam().scheme);
  for (const Act act : {Act::kInt8, Act::kF32}) {
    Runner one(model.quantised(), {.act = act, .threads = 1});
    Runner two(model.quantised(), {.act = act, .threads = 2});
    ASSERT_TRUE(one.ok() && two.ok());
    const Ids ids = SomeIds();
    const std::vector<float> whole = one.Logits(ids);
    EXPECT_EQ(two.Logits(ids), whole);
    EXPECT_EQ(two.Logits(ids, 1), whole);
    const Ids other(ids.rbegin(), ids.rend());
    const std::vector<Ids> together = {other, ids};
    const std::vector<int> chunks = {7, 11};
    EXPECT_EQ(one.LogitsTogether(together, chunks)[1], whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, HfLayouts, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// FP8 with a scale for 48 outputs x 32 inputs (DeepSeek's are 128 x 128): stays packed, and gives
// the bits of the floats that the codes stand for.
class BlockScaledModel {
 public:
  BlockScaledModel() {
    auto quantised = HfFolderWriter::Create(folder("quantised"));
    auto floats = HfFolderWriter::Create(folder("floats"));
    std::mt19937 engine(9);
    std::vector<std::vector<std::byte>> codes;
    std::vector<std::vector<float>> values;
    for (const Wanted& t : TensorsOfModel()) {
      const auto rows = static_cast<uint64_t>(t.rows);
      const auto cols = static_cast<uint64_t>(t.cols);
      const std::vector<uint64_t> shape = t.cols > 0 ? std::vector{rows, cols} : std::vector{rows};
      values.push_back(RandomWeights(t, engine));
      Check(floats->AddTensor({t.name, "F32", shape}));
      Check(quantised->AddTensor({t.name, t.linear ? "F8_E4M3" : "F32", shape}));
      codes.push_back(Bytes(BytesOf(values.back())));
      if (!t.linear) continue;
      const auto [f8, scales] = Encode(t, values.back());
      codes.back() = Bytes(std::as_bytes(std::span(f8)));
      Check(quantised->AddTensor(
          {t.name + "_scale_inv", "F32", {(rows + 47) / 48, (cols + 31) / 32}}));
      codes.push_back(Bytes(BytesOf(scales)));
    }
    Check(quantised->Begin());
    Check(floats->Begin());
    for (const auto& bytes : codes) Check(quantised->Append(bytes));
    for (const auto& bytes : values) Check(floats->Append(BytesOf(bytes)));
    std::string config = kConfig;
    config.insert(config.rfind('}'),
                  R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[48,32]})");
    Check(quantised->WriteText("config.json", config));
    Check(floats->WriteText("config.json", kConfig));
    for (auto* writer : {&*quantised, &*floats}) {
      Check(writer->Finish());
      Check(writer->Commit());
    }
  }
  fs::path folder(const char* name) const { return dir_.path() / name; }

 private:
  static void Check(const Status& status) { ASSERT_TRUE(status) << status.error().message; }
  static std::vector<std::byte> Bytes(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
  }
  // w becomes what the codes stand for.
  static std::pair<std::vector<uint8_t>, std::vector<float>> Encode(const Wanted& t,
                                                                    std::vector<float>& w) {
    const int across = (t.cols + 31) / 32;
    std::vector<float> scales(static_cast<size_t>((t.rows + 47) / 48 * across), 1e-9F);
    const auto scale_of = [&](size_t i) -> float& {
      const int at = static_cast<int>(i);
      return scales[static_cast<size_t>(at / t.cols / 48 * across + at % t.cols / 32)];
    };
    for (size_t i = 0; i < w.size(); ++i) {
      scale_of(i) = std::max(scale_of(i), std::fabs(w[i]) / 448);
    }
    std::vector<uint8_t> codes;
    for (size_t i = 0; i < w.size(); ++i) {
      codes.push_back(F32ToF8E4M3Saturating(w[i] / scale_of(i)));
      w[i] = F8E4M3ToF32(codes.back()) * scale_of(i);
    }
    return {codes, scales};
  }

  TempDir dir_;
};

TEST(HfInputs, Fp8InBlocksRunsPacked) {
  const BlockScaledModel model;
  Runner quantised(model.folder("quantised"));
  Runner twin(model.folder("floats"));
  ASSERT_TRUE(quantised.ok() && twin.ok());
  EXPECT_EQ(quantised.Logits(SomeIds()), twin.Logits(SomeIds()));
  Runner fast(model.folder("quantised"), {.act = Act::kInt8, .threads = 2});
  ASSERT_TRUE(fast.ok());
  EXPECT_EQ(fast.Logits(SomeIds(), 1),
            Runner(model.folder("floats"), {.act = Act::kInt8}).Logits(SomeIds()));
}

// Checkpoints that NumPy wrote: tools/quantise_checkpoint.py, one folder of them per layout.
TEST(HfInputs, EqualsTheTwinsOfNumpysCheckpoints) {
  const char* folder = std::getenv("NIBBLE_LAYOUT_CHECKPOINTS");
  if (folder == nullptr) GTEST_SKIP() << "skipped: NIBBLE_LAYOUT_CHECKPOINTS is not set";
  int checked = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    Runner quantised(entry.path() / "quantised");
    Runner twin(entry.path() / "floats");
    ASSERT_TRUE(quantised.ok() && twin.ok()) << entry.path();
    const double error = RelativeError(quantised.Logits(SomeIds()), twin.Logits(SomeIds()));
    // LLM.int8() rounds its inputs; the others compute in floats.
    const bool rounded = entry.path().filename() == "llm-int8";
    EXPECT_LT(error, rounded ? 0.05 : 2e-6) << entry.path();
    printf("%s: relative error %.3g\n", entry.path().filename().c_str(), error);
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

TEST(HfInputs, StaticScalesClampTheInput) {
  for (const HfLayout layout : {HfLayout::kIntQuantized, HfLayout::kFloatQuantized}) {
    const bool floats = layout == HfLayout::kFloatQuantized;
    const LayoutModel model(
        {.layout = layout,
         .bits = 8,
         .group = 0,
         .activations = floats ? HfActivations::kFp8Token : HfActivations::kInt8Token},
        true);
    Runner quantised(model.quantised());
    Runner twin(model.twin());
    ASSERT_TRUE(quantised.ok() && twin.ok());
    const double error = RelativeError(quantised.Logits(SomeIds()), twin.Logits(SomeIds()));
    EXPECT_GT(error, 1e-4);
    EXPECT_LT(error, 0.1);
  }
}

// The scales of a checkpoint's own FP8 cache count under --kv fp8, and only there.
TEST(HfInputs, ScalesOfTheCache) {
  const HfScheme scheme = {.layout = HfLayout::kIntQuantized, .bits = 8, .group = 0};
  const auto logits = [&](float scale, KvFormat kv) {
    const LayoutModel model(scheme, false, scale);
    Runner runner(model.quantised(), {.kv = {.k = kv, .v = kv}});
    EXPECT_TRUE(runner.ok());
    return runner.Logits(SomeIds());
  };
  const std::vector<float> exact = logits(0, KvFormat::kF32);
  EXPECT_EQ(logits(0.01F, KvFormat::kF32), exact);
  const double own = RelativeError(logits(0, KvFormat::kFp8), exact);
  const double fitting = RelativeError(logits(0.01F, KvFormat::kFp8), exact);
  const double clipping = RelativeError(logits(0.0002F, KvFormat::kFp8), exact);
  EXPECT_GT(fitting, 0);
  EXPECT_NE(fitting, own);
  EXPECT_LT(fitting, 2 * own);
  EXPECT_GT(clipping, 2 * own);
}

// LLM.int8() with a threshold that every value passes is the float model, and one that none does
// rounds all.
TEST(HfInputs, OutliersStayFloats) {
  const auto error_at = [](double threshold) {
    const LayoutModel model(
        {.layout = HfLayout::kLlmInt8, .bits = 8, .group = 0, .outlier_threshold = threshold});
    Runner quantised(model.quantised(), {.act = Act::kInt8});
    Runner twin(model.twin());
    EXPECT_TRUE(quantised.ok() && twin.ok());
    return RelativeError(quantised.Logits(SomeIds()), twin.Logits(SomeIds()));
  };
  const double all = error_at(1e-30);
  const double some = error_at(1.5);
  const double none = error_at(0);
  EXPECT_LT(all, 1e-5);
  EXPECT_LT(some, none);
  EXPECT_GT(some, 1e-4);
}

}  // namespace
}  // namespace nibble::testing
