#include "quantize/float_copy.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "container/gguf_writer.h"
#include "model/config/model_file.h"
#include "quantize/encode_tensor.h"
#include "tests/model/runner.h"
#include "tests/model/to_gguf.h"

namespace nibble::testing {
namespace {

namespace fs = std::filesystem;

// A model of ../shared/data/models/hf-320 as GGUF.
fs::path AsGgufFile(const TempDir& dir, const fs::path& folder, Format format) {
  const fs::path path = dir.path() / "model.gguf";
  const ModelFile file = ModelFile::Open(folder).value();
  WriteGguf(SafetensorsModel::Open(folder).value(), file.config(), path,
            [format](std::string_view) { return format; });
  return path;
}

Status Copy(const fs::path& from, const fs::path& to, const FloatCopyOptions& options = {},
            int threads = 2) {
  ThreadPool pool(threads);
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(from));
  return WriteFloatCopy(file, to, options, pool);
}

std::vector<float> RowOf(const SourceTensor& tensor, uint64_t row) {
  std::vector<float> out(tensor.cols());
  const FormatTraits& traits = TraitsOf(*tensor.format);
  traits.decode(tensor.bytes.data() + row * traits.RowBytes(out.size()), out.data(), out.size());
  return out;
}

class FloatCopy : public ::testing::TestWithParam<std::string> {};

// Biases, fused tensors, norms behind a layer, heads that share values, learned positions: each
// must take part, or the logits are another model's.
TEST_P(FloatCopy, ComputesTheSame) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/" + GetParam());
  const TempDir dir;
  const fs::path path = AsGgufFile(dir, folder, Format::kF32), copy = dir.path() / "copy.gguf";
  const Status copied = Copy(path, copy, {.seed = 3, .matrices = Format::kF32});
  ASSERT_TRUE(copied.has_value()) << copied.error().message;
  Ids ids;
  Runner original(path), permuted(copy);
  ASSERT_TRUE(original.ok() && permuted.ok());
  const int vocabulary = original.decoder().config().vocabulary;
  for (int i = 0; i < 100; ++i) ids.push_back((i * 29 + 5) % vocabulary);
  const std::vector<float> expected = original.Logits(ids), found = permuted.Logits(ids);
  ASSERT_EQ(expected.size(), found.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 2e-5F * largest) << "logit " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FloatCopy,
                         ::testing::Values("llama", "llama_tied_bias", "qwen2", "qwen3", "gemma2",
                                           "gemma3", "phi3", "gpt2", "smollm3"),
                         [](const auto& info) { return info.param; });

// Σ p ln(p / q) of two rows of logits.
double Divergence(std::span<const float> p, std::span<const float> q) {
  const auto log_sum = [](std::span<const float> row) { return row[0] - LogProbability(row, 0); };
  const double log_sum_p = log_sum(p), shift = log_sum(q) - log_sum_p;
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    sum += std::exp(double{p[i]} - log_sum_p) * (double{p[i]} - double{q[i]} + shift);
  }
  return sum;
}

// A real model of 4-bit weights. In f32 the copy's only loss is in the order of sums; in f16 it is
// that of the weights.
TEST(FloatCopyOfSmolLm2, DivergesByRoundingAlone) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const TempDir dir;
  Ids ids;
  for (int i = 0; i < 4; ++i) ids.push_back(i * 4111 + 17);
  Runner original(path);
  ASSERT_TRUE(original.ok());
  const std::vector<float> expected = original.Logits(ids);
  const int vocabulary = original.decoder().config().vocabulary;
  for (const auto& [format, bound] :
       {std::pair(Format::kF32, 1e-8), std::pair(Format::kF16, 1e-4)}) {
    const fs::path copy = dir.path() / "copy.gguf";
    ASSERT_TRUE(Copy(path, copy, {.matrices = format}).has_value());
    Runner permuted(copy);
    ASSERT_TRUE(permuted.ok());
    const std::vector<float> found = permuted.Logits(ids);
    for (int row = 0; row < 4; ++row) {
      EXPECT_LT(Divergence(Row(expected, row, vocabulary), Row(found, row, vocabulary)), bound)
          << TraitsOf(format).name << " row " << row;
    }
  }
}

// Every row holds the same weights in another order, and no block of 32 is one block of the
// original; the first and the last matrix of a layer, and what no order touches.
TEST(FloatCopyOrder, StrewsEveryBlock) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/llama");
  const TempDir dir;
  const fs::path path = AsGgufFile(dir, folder, Format::kF32), copy = dir.path() / "copy.gguf";
  ASSERT_TRUE(Copy(path, copy, {.matrices = Format::kF32}).has_value());
  const ModelFile before = ModelFile::Open(path).value(), after = ModelFile::Open(copy).value();
  ASSERT_EQ(before.source().tensors().size(), after.source().tensors().size());
  const auto sorted = [](std::vector<float> values) {
    std::ranges::sort(values);
    return values;
  };
  for (const std::string_view name : {"token_embd.weight", "blk.0.attn_q.weight"}) {
    const SourceTensor& x = *before.source().Find(name);
    const SourceTensor& y = *after.source().Find(name);
    for (uint64_t row = 0; row < x.rows(); ++row) {
      const std::vector<float> a = RowOf(x, row), b = RowOf(y, row);
      ASSERT_EQ(sorted(a), sorted(b)) << name << " row " << row;  // rows stay
      for (size_t i = 0; i + 32 <= a.size(); i += 32) {
        for (size_t j = 0; j + 32 <= b.size(); j += 32) {
          std::vector<float> kept;
          std::ranges::set_intersection(sorted({a.begin() + i, a.begin() + i + 32}),
                                        sorted({b.begin() + j, b.begin() + j + 32}),
                                        std::back_inserter(kept));
          ASSERT_LE(kept.size(), 16u) << name << " row " << row << " blocks " << i << ", " << j;
        }
      }
    }
  }
  // Rows of the values move, but within their KV head.
  const auto head = static_cast<uint64_t>(before.config().head_dim);
  const SourceTensor& v = *before.source().Find("blk.0.attn_v.weight");
  const SourceTensor& w = *after.source().Find("blk.0.attn_v.weight");
  int moved = 0;
  for (uint64_t row = 0; row < v.rows(); ++row) {
    const std::vector<float> wanted = sorted(RowOf(w, row));
    uint64_t from = 0;
    while (from < v.rows() && sorted(RowOf(v, from)) != wanted) ++from;
    EXPECT_EQ(from / head, row / head) << row;
    moved += from != row;
  }
  EXPECT_GT(moved, static_cast<int>(v.rows()) / 2);
}

// The least of several matrices. Not attn_output: a head of these models is one block of 32, whose
// weights stay together.
double LossIn(const ModelFile& file, Format format) {
  ThreadPool pool(1);
  double least = 1;
  for (const std::string_view name : {"blk.0.attn_q.weight", "blk.1.attn_v.weight",
                                      "blk.1.ffn_up.weight", "blk.0.ffn_down.weight"}) {
    const SourceTensor* tensor = file.source().Find(name);
    const auto loss = EncodeTensor(
        {.name = std::string(name), .tensor = tensor}, {.format = format}, pool,
        [](std::span<const std::byte>) { return Status(); }, [](uint64_t) {});
    least = std::min(least, loss.value().RelativeError());
  }
  return least;
}

// What the copy is for: weights that were on a format's grid are off it, so that rounding to that
// format costs what it costs a float model.
TEST(FloatCopyGrid, RoundingToTheOldFormatCostsAgain) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/llama");
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kQ4_1}) {
    const TempDir dir;
    const fs::path path = AsGgufFile(dir, folder, format), copy = dir.path() / "copy.gguf";
    ASSERT_TRUE(Copy(path, copy).has_value());
    const double once = LossIn(ModelFile::Open(path).value(), format);
    const double again = LossIn(ModelFile::Open(copy).value(), format);
    // A quarter of the bound on what the format loses of weights that it never held.
    EXPECT_GT(again, TraitsOf(format).relative_error / 4) << TraitsOf(format).name;
    EXPECT_LT(once, again / 20) << TraitsOf(format).name;
  }
}

TEST(FloatCopyFile, SameBytesForAnyThreadsAndOthersForAnotherSeed) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/gemma3");
  const TempDir dir;
  const fs::path path = AsGgufFile(dir, folder, Format::kQ8_0);
  ASSERT_TRUE(Copy(path, dir.path() / "a.gguf", {}, 1).has_value());
  ASSERT_TRUE(Copy(path, dir.path() / "b.gguf", {}, 3).has_value());
  ASSERT_TRUE(Copy(path, dir.path() / "c.gguf", {.seed = 2}, 3).has_value());
  EXPECT_TRUE(ReadFile(dir.path() / "a.gguf") == ReadFile(dir.path() / "b.gguf"));
  EXPECT_FALSE(ReadFile(dir.path() / "a.gguf") == ReadFile(dir.path() / "c.gguf"));
}

TEST(FloatCopyFile, NamesAWeightThatIsNoF16) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/llama");
  const TempDir dir;
  const fs::path path = AsGgufFile(dir, folder, Format::kF32);
  uint64_t at = 0;
  {
    const ModelFile file = ModelFile::Open(path).value();
    const SourceTensor& tensor = *file.source().Find("blk.1.ffn_up.weight");
    at = static_cast<uint64_t>(tensor.bytes.data() - file.files()[0].bytes().data()) +
         (2 * tensor.cols() + 5) * sizeof(float);
  }
  std::string bytes = ReadFile(path);
  const float large = 70000;
  std::copy_n(reinterpret_cast<const char*>(&large), sizeof large, bytes.begin() + long(at));
  {
    OutputFile out = OutputFile::Create(path).value();
    ASSERT_TRUE(out.Write(bytes).has_value() && out.Commit().has_value());
  }
  const Status copied = Copy(path, dir.path() / "copy.gguf");
  ASSERT_FALSE(copied.has_value());
  EXPECT_NE(copied.error().message.find("'blk.1.ffn_up.weight' row 2 column 5"), std::string::npos)
      << copied.error().message;
  EXPECT_FALSE(fs::exists(dir.path() / "copy.gguf"));
}

TEST(FloatCopyFile, RefusesWhatIsNoGguf) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/llama");
  const TempDir dir;
  const Status copied = Copy(folder, dir.path() / "copy.gguf");
  ASSERT_FALSE(copied.has_value());
  EXPECT_NE(copied.error().message.find("expected a GGUF file"), std::string::npos);
}

}  // namespace
}  // namespace nibble::testing
