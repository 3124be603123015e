#include "model/config/architecture.h"

#include <string>

namespace nibble {
namespace {

constexpr std::array<std::string_view, kLinears> kGgufLinears = {
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};
constexpr std::array<std::string_view, kNorms> kGgufNorms = {"attn_norm", "",         "",
                                                             "",          "ffn_norm", ""};

constexpr std::array<std::string_view, kLinears> kHfLinears = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
constexpr std::array<std::string_view, kNorms> kHfNorms = {"input_layernorm",          "", "", "",
                                                           "post_attention_layernorm", ""};

constexpr TensorNaming kGgufNaming = {.embedding = "token_embd",
                                      .positions = {},
                                      .output_norm = "output_norm",
                                      .output = "output",
                                      .layers = "blk.",
                                      .linears = kGgufLinears,
                                      .norms = kGgufNorms};
constexpr TensorNaming kHfNaming = {.embedding = "embed_tokens",
                                    .positions = {},
                                    .output_norm = "norm",
                                    .output = "lm_head",
                                    .layers = "layers.",
                                    .linears = kHfLinears,
                                    .norms = kHfNorms,
                                    .outer = "model."};

constexpr TensorNaming WithNorms(TensorNaming naming, std::array<std::string_view, kNorms> norms) {
  naming.norms = norms;
  return naming;
}

constexpr TensorNaming WithLinears(TensorNaming naming,
                                   std::array<std::string_view, kLinears> linears) {
  naming.linears = linears;
  return naming;
}

constexpr TensorNaming kHfGpt2 = {.embedding = "wte",
                                  .positions = "wpe",
                                  .output_norm = "ln_f",
                                  .output = "lm_head",
                                  .layers = "h.",
                                  .linears = {"attn.c_attn", "attn.c_attn", "attn.c_attn",
                                              "attn.c_proj", "", "mlp.c_fc", "mlp.c_proj"},
                                  .norms = {"ln_1", "", "", "", "ln_2", ""},
                                  .transposed = true,
                                  .outer = "transformer."};

constexpr TensorNaming Gpt2GgufNaming() {
  TensorNaming naming = WithLinears(
      kGgufNaming, {"attn_qkv", "attn_qkv", "attn_qkv", "attn_output", "", "ffn_up", "ffn_down"});
  naming.positions = "position_embd";
  return naming;
}

constexpr std::array<Architecture, 8> kArchitectures = {{
    {.name = "llama",
     .gguf = kGgufNaming,
     .hf = kHfNaming,
     .gguf_interleaved_rope = true,
     .gguf_window_pattern = 0},
    {.name = "qwen2", .gguf = kGgufNaming, .hf = kHfNaming},
    {.name = "qwen3",
     .gguf =
         WithNorms(kGgufNaming, {"attn_norm", "attn_q_norm", "attn_k_norm", "", "ffn_norm", ""}),
     .hf = WithNorms(kHfNaming, {"input_layernorm", "self_attn.q_norm", "self_attn.k_norm", "",
                                 "post_attention_layernorm", ""}),
     .qk_norm = true},
    {.name = "gemma2",
     .gguf = WithNorms(kGgufNaming,
                       {"attn_norm", "", "", "post_attention_norm", "ffn_norm", "post_ffw_norm"}),
     .hf = WithNorms(kHfNaming, {"input_layernorm", "", "", "post_attention_layernorm",
                                 "pre_feedforward_layernorm", "post_feedforward_layernorm"}),
     .gate = GateKind::kGeluTanh,
     .hf_norm_plus_one = true,
     .post_norms = true,
     .scaled_embedding = true,
     .attention_soft_cap = true,
     .hf_gate_key = "hidden_activation",
     .gguf_window_pattern = 2,
     .gguf_window = 4096,
     .gguf_wide_query_layers = 46},
    {.name = "gemma3",
     .gguf = WithNorms(kGgufNaming, {"attn_norm", "attn_q_norm", "attn_k_norm",
                                     "post_attention_norm", "ffn_norm", "post_ffw_norm"}),
     .hf = WithNorms(kHfNaming, {"input_layernorm", "self_attn.q_norm", "self_attn.k_norm",
                                 "post_attention_layernorm", "pre_feedforward_layernorm",
                                 "post_feedforward_layernorm"}),
     .gate = GateKind::kGeluTanh,
     .hf_norm_plus_one = true,
     .qk_norm = true,
     .post_norms = true,
     .scaled_embedding = true,
     .two_ropes = true,
     .hf_gate_key = "hidden_activation",
     .gguf_window_pattern = 6,
     .gguf_wide_query_layers = 62},
    {.name = "phi3",
     .gguf = WithLinears(kGgufNaming, {"attn_qkv", "attn_qkv", "attn_qkv", "attn_output", "ffn_up",
                                       "ffn_up", "ffn_down"}),
     .hf = WithLinears(
         kHfNaming, {"self_attn.qkv_proj", "self_attn.qkv_proj", "self_attn.qkv_proj",
                     "self_attn.o_proj", "mlp.gate_up_proj", "mlp.gate_up_proj", "mlp.down_proj"}),
     .gguf_window_pattern = 0},
    {.name = "smollm3",
     .gguf = kGgufNaming,
     .hf = kHfNaming,
     .gguf_interleaved_rope = true,
     .gguf_nope_interval = 4},
    {.name = "gpt2",
     .gguf = Gpt2GgufNaming(),
     .hf = kHfGpt2,
     .norm = NormKind::kLayer,
     .ffn = FfnKind::kPlain,
     .gate = GateKind::kGeluTanh,
     .learned_positions = true,
     .hf_gate_key = "activation_function"},
}};

// transformers' configuration classes (5.24).
constexpr HfDefaults kGemma3Defaults = {.vocabulary = 262208,
                                        .width = 2304,
                                        .ffn_width = 9216,
                                        .layers = 26,
                                        .heads = 8,
                                        .kv_heads = 4,
                                        .head_dim = 256,
                                        .context = 131072,
                                        .norm_eps = 1e-6,
                                        .theta = 1e6,
                                        .tied = true,
                                        .window_rule = WindowRule::kPattern,
                                        .window = 4096,
                                        .window_pattern = 6,
                                        .query_scalar = 256,
                                        .local_theta = 10000};

constexpr HfDefaults WithTextConfig(HfDefaults defaults) {
  defaults.text_config = true;
  return defaults;
}

constexpr std::array<HfModelType, 10> kHfModelTypes = {{
    {"llama",
     "LlamaForCausalLM",
     "llama",
     {.vocabulary = 32000,
      .width = 4096,
      .ffn_width = 11008,
      .layers = 32,
      .heads = 32,
      .kv_heads = 0,
      .head_dim = 0,
      .context = 2048,
      .norm_eps = 1e-6}},
    {"mistral",
     "MistralForCausalLM",
     "llama",
     {.vocabulary = 32000,
      .width = 4096,
      .ffn_width = 14336,
      .layers = 32,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 0,
      .context = 131072,
      .norm_eps = 1e-6,
      .window_rule = WindowRule::kEveryLayer,
      .window = 4096}},
    {"qwen2",
     "Qwen2ForCausalLM",
     "qwen2",
     {.vocabulary = 151936,
      .width = 4096,
      .ffn_width = 22016,
      .layers = 32,
      .heads = 32,
      .kv_heads = 32,
      .head_dim = 0,
      .context = 32768,
      .norm_eps = 1e-6,
      .window_rule = WindowRule::kUpper,
      .window = 4096}},
    {"qwen3",
     "Qwen3ForCausalLM",
     "qwen3",
     {.vocabulary = 151936,
      .width = 4096,
      .ffn_width = 22016,
      .layers = 32,
      .heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .context = 32768,
      .norm_eps = 1e-6,
      .window_rule = WindowRule::kUpper,
      .window = 4096}},
    {"gemma2",
     "Gemma2ForCausalLM",
     "gemma2",
     {.vocabulary = 256000,
      .width = 2304,
      .ffn_width = 9216,
      .layers = 26,
      .heads = 8,
      .kv_heads = 4,
      .head_dim = 256,
      .context = 8192,
      .norm_eps = 1e-6,
      .tied = true,
      .window_rule = WindowRule::kPattern,
      .window = 4096,
      .window_pattern = 2,
      .attention_cap = 50,
      .final_cap = 30,
      .query_scalar = 256}},
    {"gemma3_text", "Gemma3ForCausalLM", "gemma3", kGemma3Defaults},
    {"gemma3", "", "gemma3", WithTextConfig(kGemma3Defaults)},
    {"phi3",
     "Phi3ForCausalLM",
     "phi3",
     {.vocabulary = 32064,
      .width = 3072,
      .ffn_width = 8192,
      .layers = 32,
      .heads = 32,
      .kv_heads = 0,
      .head_dim = 0,
      .context = 4096,
      .norm_eps = 1e-5,
      .window_rule = WindowRule::kEveryLayer,
      .partial_rotary = true,
      .yarn_is_longrope = true,
      .original_context = 4096}},
    {"smollm3",
     "SmolLM3ForCausalLM",
     "smollm3",
     {.vocabulary = 128256,
      .width = 2048,
      .ffn_width = 11008,
      .layers = 36,
      .heads = 16,
      .kv_heads = 4,
      .head_dim = 0,
      .context = 32768,
      .norm_eps = 1e-6,
      .theta = 2e6,
      .tied = true,
      .window_rule = WindowRule::kNopeLayers,
      .nope_interval = 4}},
    {"gpt2",
     "GPT2LMHeadModel",
     "gpt2",
     {.vocabulary = 50257,
      .width = 768,
      .ffn_width = 0,
      .layers = 12,
      .heads = 12,
      .kv_heads = 0,
      .head_dim = 0,
      .context = 1024,
      .norm_eps = 1e-5,
      .tied = true}},
}};

struct KnownName {
  std::string_view part;  // of a lower-case name
  std::string_view what;
};

// First match counts.
constexpr KnownName kKnownButUnsupported[] = {
    {"moe", "a mixture of experts"},
    {"mixtral", "a mixture of experts"},
    {"gpt-oss", "a mixture of experts"},
    {"gpt_oss", "a mixture of experts"},
    {"dbrx", "a mixture of experts"},
    {"grok", "a mixture of experts"},
    {"llama4", "a mixture of experts"},
    {"deepseek", "a mixture of experts with latent attention"},
    {"bert", "an encoder that generates no text"},
    {"t5", "an encoder-decoder model"},
    {"clip", "an image encoder"},
    {"mamba", "a state-space model"},
    {"rwkv", "a recurrent model"},
    {"jamba", "a hybrid with a state-space model"},
    {"lfm2", "a hybrid with convolutions"},
};

std::unexpected<Error> Unknown(std::string_view name, const std::string& known) {
  std::string lower(name.substr(0, 64));
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const KnownName& entry : kKnownButUnsupported) {
    if (lower.find(entry.part) != std::string::npos) {
      return BadInput("architecture '{}' ({}) is not supported; supported: {}", name.substr(0, 64),
                      entry.what, known);
    }
  }
  return BadInput("unknown architecture '{}'; supported: {}", name.substr(0, 64), known);
}

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }
std::span<const HfModelType> HfModelTypes() { return kHfModelTypes; }

Result<const Architecture*> FindArchitecture(std::string_view gguf_name) {
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.name == gguf_name) return &row;
    if (!known.empty()) known += ", ";
    known += row.name;
  }
  return Unknown(gguf_name, known);
}

Result<const HfModelType*> FindHfModelType(std::string_view model_type) {
  std::string known;
  for (const HfModelType& row : kHfModelTypes) {
    if (row.model_type == model_type) return &row;
    if (!known.empty()) known += ", ";
    known += row.model_type;
  }
  return Unknown(model_type, known);
}

}  // namespace nibble
