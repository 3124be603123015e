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
#include <vector>

#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "model/config/format_mix.h"
#include "model/config/hf_config.h"
#include "model/config/random_model.h"

namespace nibble {
namespace {

void WriteShape(const ModelConfig& config, GgufWriter& writer) {
  const std::string prefix = config.architecture + ".";
  const auto set = [&](const char* key, int value) {
    writer.SetUint32(prefix + key, static_cast<uint32_t>(value));
  };
  writer.SetString("general.architecture", config.architecture);
  writer.SetString("general.name", "random weights");
  set("block_count", static_cast<int>(config.layers.size()));
  set("context_length", config.context_length);
  set("embedding_length", config.width);
  set("feed_forward_length", config.ffn_width);
  set("attention.head_count", config.heads);
  set("attention.head_count_kv", config.kv_heads);
  set("attention.key_length", config.head_dim);
  set("attention.value_length", config.head_dim);
  set("rope.dimension_count", config.ropes[0].dims);
  set("vocab_size", config.vocabulary);
  writer.SetFloat32(prefix + "attention.layer_norm_rms_epsilon", config.norm_eps);
  writer.SetFloat32(prefix + "rope.freq_base", static_cast<float>(config.ropes[0].theta));
}

// Only what the keys above can say.
Status CheckShape(const ModelConfig& config) {
  bool plain = config.norm == NormKind::kRms && !config.post_norms && config.ropes.size() == 1 &&
               config.ropes[0].scaling == RopeScaling::kNone;
  for (const LayerConfig& layer : config.layers) plain = plain && layer.window == 0;
  if (plain) return {};
  return BadInput("{}: only shapes like llama's and qwen's can be written", config.architecture);
}

// A prefix of the donor's vocabulary, with those merges whose result is in it.
Status WriteTokenizer(const GgufFile& donor, int vocabulary, GgufWriter& writer) {
  NIBBLE_TRY(const auto donor_tokens, donor.GetStrings("tokenizer.ggml.tokens"));
  NIBBLE_TRY(const auto donor_types, donor.GetInts("tokenizer.ggml.token_type"));
  std::vector<std::string> names;
  std::vector<int32_t> types;
  std::set<std::string_view> known;
  for (size_t i = 0; i < static_cast<size_t>(vocabulary); ++i) {
    constexpr int32_t kUnused = 5;
    const bool taken = i < donor_tokens.size();
    names.push_back(taken ? std::string(donor_tokens[i]) : fmt::format("<unused{}>", i));
    types.push_back(taken ? static_cast<int32_t>(donor_types[i]) : kUnused);
    if (taken) known.insert(donor_tokens[i]);
  }
  const std::vector<std::string_view> tokens(names.begin(), names.end());
  writer.SetStrings("tokenizer.ggml.tokens", tokens);
  writer.SetInt32s("tokenizer.ggml.token_type", types);
  if (donor.Has("tokenizer.ggml.merges")) {
    NIBBLE_TRY(auto merges, donor.GetStrings("tokenizer.ggml.merges"));
    std::erase_if(merges, [&](std::string_view merge) {
      const size_t space = merge.find(' ', 1);
      const std::string_view left = merge.substr(0, space);
      const std::string_view right = merge.substr(space + 1);
      return !known.contains(left) || !known.contains(right) ||
             !known.contains(std::string(left) + std::string(right));
    });
    writer.SetStrings("tokenizer.ggml.merges", merges);
  }
  for (const char* key : {"model", "pre", "bos_token_id", "eos_token_id", "unknown_token_id",
                          "padding_token_id", "add_bos_token", "add_space_prefix"}) {
    const GgufEntry* entry = donor.Find(std::string("tokenizer.ggml.") + key);
    if (entry != nullptr) NIBBLE_RETURN_IF_ERROR(writer.Copy(*entry));
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
  if (!shape.ends_with(".json")) {
    NIBBLE_TRY(const std::string_view config, ShapeByName(shape));
    return std::string(config);
  }
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
  WriteShape(hf.config, writer);
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
