#include <string>

#include "model/config/model_file.h"
#include "tests/model/runner.h"
#include "tests/model/to_gguf.h"

namespace nibble::testing {
namespace {

std::filesystem::path Converted(const TempDir& dir, const std::filesystem::path& folder,
                                const FormatOf& format_of) {
  const std::filesystem::path path = dir.path() / "model.gguf";
  const ModelFile file = ModelFile::Open(folder).value();
  WriteGguf(SafetensorsModel::Open(folder).value(), file.config(), path, format_of);
  return path;
}

// A model of ../shared/data/models/hf-320 gives the same log-probabilities as a GGUF file.
class AsGguf : public ::testing::TestWithParam<std::string> {};

TEST_P(AsGguf, EqualsTransformers) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/" + GetParam());
  const TempDir dir;
  const auto path = Converted(dir, folder, [](std::string_view) { return Format::kF32; });
  const JsonDocument golden = JsonDocument::ReadFile((folder / "golden.json").string()).value();
  const Ids ids = ReadIds(golden.root().Get("ids").value());
  const std::vector<double> expected = ReadDoubles(golden.root().Get("next_logprob").value());
  Runner runner(path);
  ASSERT_TRUE(runner.ok());
  runner.Visit(ids, 512, [&](int position, std::span<const float> logits) {
    const auto i = static_cast<size_t>(position);
    if (i == expected.size()) return;
    ASSERT_NEAR(LogProbability(logits, ids[i + 1]), expected[i], 1e-4) << "position " << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Models, AsGguf,
                         ::testing::Values("llama", "llama_rope_linear", "llama_rope_yarn",
                                           "llama_rope_llama3", "llama_tied_bias", "qwen2", "qwen3",
                                           "gemma2", "gemma3", "phi3", "gpt2", "smollm3"),
                         [](const auto& info) { return info.param; });

// Integer arithmetic: the same bits whatever shares the step, however the prompt is cut, with any
// number of threads. hf-320 itself is F32, so its weights are quantised first.
struct QuantisedCase {
  std::string model;
  Act act;
  KvFormat kv;
};

class QuantisedBits : public ::testing::TestWithParam<QuantisedCase> {};

Format MixedFormat(std::string_view name) {
  if (name.find("_embd") != std::string_view::npos) return Format::kQ8_0;
  if (name.find("attn_q") != std::string_view::npos) return Format::kQ5_1;
  if (name.find("attn_k") != std::string_view::npos) return Format::kQ5_0;
  if (name.find("attn_v") != std::string_view::npos) return Format::kF16;
  if (name.find("attn_output") != std::string_view::npos) return Format::kIq4Nl;
  if (name.find("ffn_gate") != std::string_view::npos) return Format::kQ4_1;
  if (name.find("ffn_down") != std::string_view::npos) return Format::kMxfp4;
  return Format::kQ4_0;
}

TEST_P(QuantisedBits, WholeChunkedBatchedThreaded) {
  const QuantisedCase& param = GetParam();
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/" + param.model);
  const TempDir dir;
  const auto path = Converted(dir, folder, MixedFormat);
  const JsonDocument golden = JsonDocument::ReadFile((folder / "golden.json").string()).value();
  const Ids ids = ReadIds(golden.root().Get("ids").value());
  Runner one(path, {.act = param.act, .kv = {param.kv, param.kv}, .threads = 1, .max_rows = 800});
  Runner four(path, {.act = param.act, .kv = {param.kv, param.kv}, .threads = 4, .max_rows = 800});
  ASSERT_TRUE(one.ok() && four.ok());
  const std::vector<float> whole = one.Logits(ids);
  EXPECT_TRUE(whole == four.Logits(ids)) << "4 threads";
  for (const int chunk : {1, 7, 32}) {
    EXPECT_TRUE(whole == four.Logits(ids, chunk)) << "4 threads, chunks of " << chunk;
  }
  EXPECT_TRUE(whole == one.Logits(ids, 7)) << "chunks of 7";
  const std::vector<Ids> together = {Ids(ids.begin() + 5, ids.begin() + 200), ids, Ids(150, ids[3]),
                                     ids};
  const std::vector<int> chunks = {13, 32, 150, 7};
  const auto batched = four.LogitsTogether(together, chunks);
  EXPECT_TRUE(whole == batched[1]) << "with others, chunks of 32";
  EXPECT_TRUE(whole == batched[3]) << "with others, chunks of 7";
  EXPECT_TRUE(one.Logits(together[0]) == batched[0]) << "the others";
}

std::vector<QuantisedCase> QuantisedCases() {
  std::vector<QuantisedCase> cases;
  for (const std::string model : {"llama", "gemma3", "phi3"}) {
    cases.push_back({.model = model, .act = Act::kInt8, .kv = KvFormat::kF16});
  }
  cases.push_back({.model = "gemma2", .act = Act::kInt8, .kv = KvFormat::kF32});
  cases.push_back({.model = "gemma3", .act = Act::kF32, .kv = KvFormat::kF16});
  cases.push_back({.model = "gpt2", .act = Act::kF32, .kv = KvFormat::kF32});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, QuantisedBits, ::testing::ValuesIn(QuantisedCases()),
                         [](const auto& info) {
                           return info.param.model +
                                  (info.param.act == Act::kF32 ? "_f32" : "_int8") +
                                  (info.param.kv == KvFormat::kF32 ? "_kv32" : "_kv16");
                         });

}  // namespace
}  // namespace nibble::testing
