#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "model/config.h"

namespace nibble {

// The linear layers of a block, in the order in which fused tensors hold their rows (q, k, v) and
// (gate, up).
enum class Linear : uint8_t { kQuery, kKey, kValue, kOutput, kGate, kUp, kDown };
inline constexpr size_t kLinears = 7;

// The norms of a block; kQuery and kKey are one head wide.
enum class Norm : uint8_t { kAttention, kQuery, kKey, kPostAttention, kFfn, kPostFfn };
inline constexpr size_t kNorms = 6;

// Names of tensors without ".weight" and ".bias"; empty: the architecture has none. Linears of one
// name are one fused tensor.
struct TensorNaming {
  std::string_view embedding;
  std::string_view positions;
  std::string_view output_norm;
  std::string_view output;
  std::string_view layers;  // prefix in front of "<index>."
  std::array<std::string_view, kLinears> linears;
  std::array<std::string_view, kNorms> norms;
  bool transposed = false;      // linears are stored {in, out} (gpt2's Conv1D)
  std::string_view outer = {};  // in front of every name but the output's, in a whole model's files
};

// Which layers of a Hugging Face model see a window when its config has no layer_types.
enum class WindowRule : uint8_t {
  kNone,        // no window, whatever the config says
  kEveryLayer,  // mistral, phi3
  kPattern,     // every pattern-th layer is global (gemma)
  kUpper,       // from max_window_layers on, if use_sliding_window (qwen)
  kNopeLayers,  // layers without rotation, if use_sliding_window (smollm3)
};

// What transformers assumes for keys that a config.json leaves out.
struct HfDefaults {
  int vocabulary, width, ffn_width, layers, heads;
  int kv_heads;  // 0: heads
  int head_dim;  // 0: width / heads
  int context;
  double norm_eps;
  double theta = 10000;
  bool tied = false;
  WindowRule window_rule = WindowRule::kNone;
  int window = 0;          // 0: none
  int window_pattern = 0;  // kPattern
  int nope_interval = 0;   // no_rope_layer_interval; 0: every layer rotates
  double attention_cap = 0;
  double final_cap = 0;
  int query_scalar = 0;         // query_pre_attn_scalar; 0: the model has none
  double local_theta = 0;       // rope_local_base_freq of sliding layers; 0: the model has none
  bool partial_rotary = false;  // partial_rotary_factor counts (transformers ignores it elsewhere)
  bool yarn_is_longrope = false;  // early Phi-3 files call LongRoPE "yarn"
  int original_context = 0;       // original_max_position_embeddings beside the other keys; 0: none
  bool text_config = false;       // the language model's part is an object of that name
};

// A row of the architecture table: what differs between architectures beside the numbers of a file.
struct Architecture {
  std::string_view name;  // general.architecture of GGUF
  TensorNaming gguf;
  TensorNaming hf;
  NormKind norm = NormKind::kRms;
  FfnKind ffn = FfnKind::kGated;
  GateKind gate = GateKind::kSilu;
  bool hf_norm_plus_one = false;
  bool qk_norm = false;
  bool post_norms = false;
  bool learned_positions = false;
  bool scaled_embedding = false;       // by sqrt(width)
  bool attention_soft_cap = false;     // scores are capped (a cap in another file is ignored)
  bool gguf_interleaved_rope = false;  // GGUF files hold Q and K permuted for pairs (2i, 2i+1)
  bool two_ropes = false;              // windowed layers rotate by a base of their own
  std::string_view hf_gate_key = "hidden_act";
  // attention.sliding_window of GGUF: every n-th layer is global; 0: all layers see the window; -1:
  // the key means nothing here.
  int gguf_window_pattern = -1;
  int gguf_window = 0;         // what a missing attention.sliding_window means to llama.cpp
  int gguf_nope_interval = 0;  // every n-th layer has no rotation
  // A model of so many layers scales scores by the width of a head in the residual stream, not by
  // the head size (llama.cpp's rule for the 27B models); 0: none does.
  int gguf_wide_query_layers = 0;
};

// A model_type of config.json.
struct HfModelType {
  std::string_view model_type;
  std::string_view class_name;  // in "architectures", for a config without model_type; or empty
  std::string_view architecture;
  HfDefaults defaults;
};

std::span<const Architecture> Architectures();
std::span<const HfModelType> HfModelTypes();

// Errors name the architecture and the known ones, and say of one that is known what it needs.
Result<const Architecture*> FindArchitecture(std::string_view gguf_name);
Result<const HfModelType*> FindHfModelType(std::string_view model_type);

}  // namespace nibble
