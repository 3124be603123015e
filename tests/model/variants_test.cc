#include <string>

#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

// Models of hf-320 under other configurations, against transformers: what the shared goldens do not
// reach (Mistral's window, LongRoPE, YaRN's attention factors, the 4.x form of configs, …).
// tools/make_variant_golden.py makes the golden.
TEST(Variants, EqualTransformers) {
  NIBBLE_SHARED_OR_SKIP(data, "models/hf-320");
  const auto golden = SourcePath("tests/model/golden/variants.json");
  const JsonDocument document = JsonDocument::ReadFile(golden.string()).value();
  const JsonArray variants = document.root().Get("variants").value().AsArray().value();
  ASSERT_GE(variants.size(), 16U);
  for (const JsonValue variant : variants) {
    SCOPED_TRACE(variant.GetString("name").value());
    const auto base = data / std::string(variant.GetString("base").value());
    LinkedFolder folder;
    folder.Link(base / "model.safetensors", "model.safetensors");
    folder.Write("config.json", variant.Get("config").value().ToString());
    const JsonDocument plain = JsonDocument::ReadFile((base / "golden.json").string()).value();
    const Ids ids = ReadIds(plain.root().Get("ids").value());
    const std::vector<double> expected = ReadDoubles(variant.Get("next_logprob").value());
    RunnerOptions options;
    options.max_context = static_cast<int>(variant.GetInt("max_context").value());
    Runner runner(folder.path(), options);
    ASSERT_TRUE(runner.ok());
    // Chunks, because LongRoPE in transformers depends on the length so far: the golden is whole.
    runner.Visit(ids, 100, [&](int position, std::span<const float> logits) {
      const auto i = static_cast<size_t>(position);
      if (i == expected.size()) return;
      ASSERT_NEAR(LogProbability(logits, ids[i + 1]), expected[i], 1e-4) << "position " << i;
    });
  }
}

}  // namespace
}  // namespace nibble::testing
