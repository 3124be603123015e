// Writes a GGUF file of a published shape with random weights, so that two programs can be compared
// on a size that nobody wants to download:
//   write_random tinyllama-1.1b q4_k_m TOKENIZER.gguf OUT.gguf
// The vocabulary is the donor's, cut or filled up to the shape's size. Norms are ones, so that
// activations keep their size from layer to layer; no two rows of a matrix are alike.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "model/config/format_mix.h"
#include "model/config/gguf_config.h"
#include "model/config/hf_config.h"
#include "model/config/random_model.h"

namespace nibble {
namespace {

// Only what GGUF's keys can say, and matrices that have block formats.
Status CheckShape(const ModelConfig& config) {
  const bool plain = config.norm == NormKind::kRms &&
                     (config.ropes.empty() || (config.ropes[0].scaling != RopeScaling::kLongRope &&
                                               config.ropes[0].scaling != RopeScaling::kLlama3));
  if (plain) return {};
  return BadInput(
      "{}: shapes with layer norms, or with llama3 or longrope rotation, cannot be "
      "written",
      config.architecture);
}

// What the donor says of its tokens, beside their texts; empty where it says nothing.
struct TokenLists {
  std::vector<int64_t> types;
  std::vector<float> scores;
};

Result<TokenLists> ReadLists(const GgufFile& donor, size_t tokens) {
  TokenLists lists;
  if (donor.Has("tokenizer.ggml.token_type")) {
    NIBBLE_TRY(lists.types, donor.GetInts("tokenizer.ggml.token_type"));
  }
  if (donor.Has("tokenizer.ggml.scores")) {
    NIBBLE_TRY(lists.scores, donor.GetFloats("tokenizer.ggml.scores"));
  }
  for (const auto& [key, count] :
       {std::pair{"token_type", lists.types.size()}, std::pair{"scores", lists.scores.size()}}) {
    if (count == 0 || count >= tokens) continue;
    return BadInput("tokenizer.ggml.{}: {} entries for {} tokens", key, count, tokens);
  }
  return lists;
}

// Those merges of which all parts are in a vocabulary.
Status WriteMerges(const GgufFile& donor, const std::set<std::string_view>& known,
                   GgufWriter& writer) {
  if (!donor.Has("tokenizer.ggml.merges")) return {};
  NIBBLE_TRY(auto merges, donor.GetStrings("tokenizer.ggml.merges"));
  std::erase_if(merges, [&](std::string_view merge) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) return true;
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    return !known.contains(left) || !known.contains(right) ||
           !known.contains(std::string(left) + std::string(right));
  });
  writer.SetStrings("tokenizer.ggml.merges", merges);
  return {};
}

// A prefix of the donor's vocabulary, filled up with tokens that no text contains. Ids of special
// tokens that are cut off become the last one's.
Status WriteTokenizer(const GgufFile& donor, int vocabulary, GgufWriter& writer) {
  constexpr int32_t kNormal = 1;
  constexpr int32_t kUnused = 5;
  constexpr float kNeverMerged = -1e9F;
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  NIBBLE_TRY(const auto donor_tokens, donor.GetStrings("tokenizer.ggml.tokens"));
  NIBBLE_TRY(const TokenLists lists, ReadLists(donor, donor_tokens.size()));
  std::vector<std::string> names;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::set<std::string_view> known;
  for (size_t i = 0; i < static_cast<size_t>(vocabulary); ++i) {
    const bool taken = i < donor_tokens.size();
    names.push_back(taken ? std::string(donor_tokens[i]) : fmt::format("<|filler {}|>", i));
    if (!taken) {
      types.push_back(kUnused);
      scores.push_back(kNeverMerged);
      continue;
    }
    types.push_back(lists.types.empty() ? kNormal : static_cast<int32_t>(lists.types[i]));
    scores.push_back(lists.scores.empty() ? 0 : lists.scores[i]);
    known.insert(donor_tokens[i]);
  }
  const std::vector<std::string_view> tokens(names.begin(), names.end());
  writer.SetStrings("tokenizer.ggml.tokens", tokens);
  writer.SetInt32s("tokenizer.ggml.token_type", types);
  if (!lists.scores.empty()) writer.SetFloat32s("tokenizer.ggml.scores", scores);
  NIBBLE_RETURN_IF_ERROR(WriteMerges(donor, known, writer));
  for (const GgufEntry& entry : donor.metadata()) {
    if (!entry.key.starts_with(kPrefix)) continue;
    if (entry.type == GgufType::kArray) continue;  // one entry per token, or merges: done above
    int64_t id = 0;
    const bool is_id = entry.key.ends_with("_token_id");
    if (is_id) {
      NIBBLE_TRY(id, donor.GetInt(entry.key));
    }
    if (is_id && (id < 0 || id >= vocabulary)) {
      writer.SetUint32(entry.key, static_cast<uint32_t>(vocabulary - 1));
    } else {
      NIBBLE_RETURN_IF_ERROR(writer.Copy(entry));
    }
  }
  return {};
}

// The tensor's bytes with its blocks in an order of chance: as made, tensors of one format are the
// same short pattern over and over.
std::vector<std::byte> Shuffled(const SourceTensor& tensor, uint64_t& state) {
  if (tensor.rank == 1) {
    const std::vector<float> ones(tensor.elements(), 1.0F);
    const auto bytes = std::as_bytes(std::span(ones));
    return {bytes.begin(), bytes.end()};
  }
  const auto block = static_cast<size_t>(TraitsOf(*tensor.format).block_bytes);
  const size_t blocks = tensor.bytes.size() / block;
  std::vector<std::byte> bytes(tensor.bytes.size());
  for (size_t i = 0; i < blocks; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const size_t from = (state >> 33) % blocks;
    std::memcpy(bytes.data() + i * block, tensor.bytes.data() + from * block, block);
  }
  return bytes;
}

Result<std::string> ReadShape(const std::string& shape) {
  if (!shape.ends_with(".json")) return ShapeByName(shape);
  std::ifstream file(shape);
  if (!file) return IoError("{}: cannot open", shape);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

Status Write(const std::string& shape, const std::string& format, const std::string& donor_path,
             const std::string& out) {
  NIBBLE_TRY(std::string text, ReadShape(shape));
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(text)));
  NIBBLE_TRY(const HfConfig hf, ReadHfConfig(document.root()));
  NIBBLE_RETURN_IF_ERROR(CheckShape(hf.config));
  NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(format));
  NIBBLE_TRY(const GgufFile donor, GgufFile::Open(donor_path));
  NIBBLE_TRY(const RandomTensors random, MakeRandomTensors(hf.config, hf.architecture->gguf, mix));
  GgufWriter writer;
  WriteGgufConfig(hf.config, writer);
  writer.SetString("general.name", "random weights");
  NIBBLE_RETURN_IF_ERROR(WriteTokenizer(donor, hf.config.vocabulary, writer));
  for (const SourceTensor& tensor : random.source.tensors()) {
    const std::span<const uint64_t> shape_of(tensor.shape.data(), static_cast<size_t>(tensor.rank));
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor(tensor.name, *tensor.format, shape_of));
  }
  NIBBLE_TRY(TensorStream stream, writer.Begin(out));
  uint64_t state = 1;
  for (const SourceTensor& tensor : random.source.tensors()) {
    NIBBLE_RETURN_IF_ERROR(stream.Append(Shuffled(tensor, state)));
  }
  return stream.Finish();
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: write_random SHAPE|config.json FORMAT TOKENIZER.gguf OUT.gguf\n");
    return 2;
  }
  const nibble::Status status = nibble::Write(argv[1], argv[2], argv[3], argv[4]);
  if (status) return 0;
  fmt::print(stderr, "write_random: {}\n", status.error().message);
  return 2;
}
