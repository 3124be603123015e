#include "tests/model/to_gguf.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "container/gguf_writer.h"
#include "model/config/gguf_config.h"
#include "model/rope_frequencies.h"

namespace nibble::testing {
namespace {

// Names of llama.cpp's gguf-py/gguf/tensor_mapping.py.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"model.embed_tokens.", "token_embd."},
    {"model.norm.", "output_norm."},
    {"lm_head.", "output."},
    {"transformer.wte.", "token_embd."},
    {"transformer.wpe.", "position_embd."},
    {"transformer.ln_f.", "output_norm."},
    {"input_layernorm.", "attn_norm."},
    {"ln_1.", "attn_norm."},
    {"ln_2.", "ffn_norm."},
    {"self_attn.q_proj.", "attn_q."},
    {"self_attn.k_proj.", "attn_k."},
    {"self_attn.v_proj.", "attn_v."},
    {"self_attn.o_proj.", "attn_output."},
    {"self_attn.qkv_proj.", "attn_qkv."},
    {"attn.c_attn.", "attn_qkv."},
    {"attn.c_proj.", "attn_output."},
    {"self_attn.q_norm.", "attn_q_norm."},
    {"self_attn.k_norm.", "attn_k_norm."},
    {"mlp.gate_proj.", "ffn_gate."},
    {"mlp.up_proj.", "ffn_up."},
    {"mlp.gate_up_proj.", "ffn_up."},
    {"mlp.down_proj.", "ffn_down."},
    {"mlp.c_fc.", "ffn_up."},
    {"mlp.c_proj.", "ffn_down."},
    {"pre_feedforward_layernorm.", "ffn_norm."},
    {"post_feedforward_layernorm.", "post_ffw_norm."},
};

std::string GgufName(std::string_view hf, bool post_norms) {
  std::string prefix;
  for (const std::string_view layers : {"model.layers.", "transformer.h."}) {
    if (!hf.starts_with(layers)) continue;
    const size_t dot = hf.find('.', layers.size());
    prefix = "blk." + std::string(hf.substr(layers.size(), dot - layers.size())) + ".";
    hf.remove_prefix(dot + 1);
  }
  if (hf.starts_with("post_attention_layernorm.")) {
    return prefix + (post_norms ? "post_attention_norm.weight" : "ffn_norm.weight");
  }
  for (const auto& [from, to] : kNames) {
    if (hf.starts_with(from)) return prefix + std::string(to) + std::string(hf.substr(from.size()));
  }
  ADD_FAILURE() << "no GGUF name for " << hf;
  return {};
}

struct Values {
  std::vector<uint64_t> shape;
  std::vector<float> data;
};

Values Decode(const SourceTensor& tensor) {
  Values values{.shape = {tensor.shape.begin(), tensor.shape.begin() + tensor.rank},
                .data = std::vector<float>(tensor.elements())};
  TraitsOf(tensor.format.value())
      .decode(tensor.bytes.data(), values.data.data(), values.data.size());
  return values;
}

void Transpose(Values& values) {
  const size_t rows = values.shape[0];
  const size_t cols = values.shape[1];
  std::vector<float> out(values.data.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = values.data[r * cols + c];
  }
  values = {.shape = {cols, rows}, .data = std::move(out)};
}

// Row i of a head's first half becomes row 2i, of its second half row 2i + 1.
void Permute(Values& values, size_t head_dim) {
  const size_t cols = values.shape.size() == 2 ? values.shape[1] : 1;
  const std::vector<float> from = values.data;
  for (size_t row = 0; row < values.shape[0]; ++row) {
    const size_t in_head = row % head_dim;
    const size_t half = head_dim / 2;
    const size_t to = row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    for (size_t c = 0; c < cols; ++c) values.data[to * cols + c] = from[row * cols + c];
  }
}

// What llama.cpp's converter stores for Llama 3.1: how much each frequency is divided by.
std::vector<float> Llama3Factors(const RopeConfig& rope) {
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const std::vector<float> base = ComputeRopeFrequencies(plain, 0).inv_freq;
  const std::vector<float> scaled = ComputeRopeFrequencies(rope, 0).inv_freq;
  std::vector<float> factors;
  for (size_t i = 0; i < base.size(); ++i) factors.push_back(base[i] / scaled[i]);
  return factors;
}

Values Convert(const SourceTensor& tensor, const std::string& name, const ModelConfig& config) {
  Values values = Decode(tensor);
  const bool gpt2 = config.architecture == "gpt2";
  const bool embedding = name.find("_embd.") != std::string::npos;
  if (gpt2 && values.shape.size() == 2 && !embedding) Transpose(values);
  const bool permuted = config.architecture == "llama" || config.architecture == "smollm3";
  const bool rotated =
      name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos;
  if (permuted && rotated) Permute(values, static_cast<size_t>(config.head_dim));
  if (config.norm_plus_one && name.find("norm.weight") != std::string::npos) {
    for (float& value : values.data) value += 1;
  }
  return values;
}

}  // namespace

void WriteGguf(const SafetensorsModel& model, const ModelConfig& config,
               const std::filesystem::path& path, const FormatOf& format_of) {
  GgufWriter writer;
  WriteGgufConfig(config, writer);
  std::vector<std::vector<std::byte>> bytes;
  if (!config.ropes.empty() && config.ropes[0].scaling == RopeScaling::kLlama3) {
    const std::vector<float> factors = Llama3Factors(config.ropes[0]);
    const auto raw = std::as_bytes(std::span(factors));
    bytes.emplace_back(raw.begin(), raw.end());
    const std::vector<uint64_t> shape = {factors.size()};
    ASSERT_TRUE(writer.AddTensor("rope_freqs.weight", Format::kF32, shape));
  }
  for (const SourceTensor& tensor : model.tensors().tensors()) {
    const std::string name = GgufName(tensor.name, config.post_norms);
    const Values values = Convert(tensor, name, config);
    const Format format = values.shape.size() == 2 ? format_of(name) : Format::kF32;
    const FormatTraits& traits = TraitsOf(format);
    std::vector<std::byte>& encoded = bytes.emplace_back(traits.RowBytes(values.data.size()));
    traits.encode(values.data.data(), encoded.data(), values.data.size());
    const Status added = writer.AddTensor(name, format, values.shape);
    ASSERT_TRUE(added) << added.error().message;
  }
  auto stream = writer.Begin(path);
  ASSERT_TRUE(stream) << stream.error().message;
  for (const std::vector<std::byte>& tensor : bytes) {
    ASSERT_TRUE(stream->Append(tensor));
  }
  const Status finished = stream->Finish();
  ASSERT_TRUE(finished) << finished.error().message;
}

}  // namespace nibble::testing
