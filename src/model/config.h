#pragma once

#include <string>
#include <vector>

namespace nibble {

enum class NormKind { kRms, kLayer };
enum class GateKind { kSilu, kGeluTanh, kGeluErf };
enum class FfnKind { kGated, kPlain };  // down(gate(a) · b) or down(gate(a))

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope };

// One rotary embedding; a model may have two (Gemma 3: global and sliding layers).
struct RopeConfig {
  double theta = 10000;
  int dims = 0;              // rotated channels of a head, even
  bool interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + dims/2)
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  int original_context = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double mscale = 0, mscale_all_dim = 0;             // yarn, DeepSeek's variant
  double attention_factor = 0;                       // 0: by the scaling's own rule
  double attention_multiplier = 1;                   // on top of that rule (GGUF's attn_factor)
  bool truncate = true;                              // yarn: correction range to integers
  std::vector<double> short_factor, long_factor;     // longrope, [dims / 2]
  std::vector<double> frequency_factors;             // GGUF rope_freqs.weight, [dims / 2]
};

struct LayerConfig {
  int window = 0;             // 0: global attention
  int rope = -1;              // index into ModelConfig::ropes; -1: no rotation in this layer
  float attention_scale = 0;  // 0: ModelConfig::attention_scale (gpt2 may scale by 1 / layer)
  float key_scale = 0;        // of an fp8 cache, from a quantised checkpoint; 0: it has none
  float value_scale = 0;
};

// A decoder-only transformer as data: what differs between architectures is here, not in code.
struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", …, the row of the architecture table
  std::string name;
  int vocabulary = 0;
  int width = 0;  // hidden size
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn_width = 0;
  int context_length = 0;  // trained
  std::vector<LayerConfig> layers;
  std::vector<RopeConfig> ropes;

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6F;
  bool norm_plus_one = false;      // HF Gemma: gain is 1 + weight (GGUF has it folded in)
  bool qk_norm = false;            // RMS norm of every query and key head before rotation
  bool post_norms = false;         // Gemma 2/3: a norm behind attention and behind the FFN as well
  bool learned_positions = false;  // gpt2
  FfnKind ffn = FfnKind::kGated;
  GateKind gate = GateKind::kSilu;
  float embedding_scale = 1;
  float attention_scale = 0;  // 1 / sqrt(head_dim) unless the model says otherwise
  float attention_soft_cap = 0;
  float final_soft_cap = 0;
  bool tied_embeddings = false;

  int64_t parameters = 0;  // counted from the tensors
};

}  // namespace nibble
