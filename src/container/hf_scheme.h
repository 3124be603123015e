#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/grouped_matrix.h"

namespace nibble {

// How quantised linears lie in a Hugging Face checkpoint.
enum class HfLayout : uint8_t {
  kGptq,            // AutoGPTQ's v1: zeros stored minus one
  kGptqV2,          // checkpoint_format "gptq_v2"
  kAwq,             // AutoAWQ's GEMM version
  kPackQuantized,   // compressed-tensors, 4 or 8 bits with groups or a scale per row
  kIntQuantized,    // compressed-tensors, int8 with a scale per row
  kFloatQuantized,  // compressed-tensors, FP8 E4M3 with one scale or a scale per row
  kLlmInt8          // bitsandbytes' LLM.int8(): int8 with SCB = 127 · scale, an f32 per row
};
std::string_view HfLayoutName(HfLayout layout);  // "gptq", "gptq_v2", "awq", "pack-quantized", …

// What the linears of a checkpoint compute their inputs in; for the JSON and for the reader.
enum class HfActivations : uint8_t { kFloat, kInt8Token, kFp8Token };

// One scheme for every quantised linear of a checkpoint.
struct HfScheme {
  HfLayout layout = HfLayout::kGptq;
  int bits = 4;
  int group = 128;  // inputs that share a scale; 0: one scale a row
  bool symmetric = true;
  bool act_order = false;     // GroupedMatrix::group_of is stored (GPTQ, pack-quantized)
  bool bf16_scales = false;   // of compressed-tensors, which stores scales in the model's type
  bool tensor_scale = false;  // kFloatQuantized: one scale for the matrix
  bool equal_scales = false;  // one scale for the matrix, stored for every row
  HfActivations activations = HfActivations::kFloat;  // kIntQuantized and kFloatQuantized
  double outlier_threshold = 6;  // kLlmInt8: inputs of this magnitude are not quantised
  // Told in the JSON only.
  double damp_percent = 0.01;
  bool static_groups = false;
  bool true_sequential = false;
};

// A matrix of FP8 codes (E4M3, no infinities): w[r][c] = scales[r or 0] · value(codes[r][c]).
struct Fp8Matrix {
  int rows = 0;
  int cols = 0;
  std::vector<uint8_t> codes;  // [rows][cols]
  std::vector<float> scales;   // [rows] or [1]
};

// A tensor on its way into a safetensors file.
struct HfTensor {
  std::string name;
  std::string_view dtype;  // "I32", "F16", …
  std::vector<uint64_t> shape;
};

// Whether a linear of this shape can be stored so: the layouts want whole words. The message says
// what does not divide; such a linear stays in floats and belongs to `kept` below.
Status CheckHfLinear(const HfScheme& scheme, int rows, int cols);

// The tensors of one linear in the order of EncodeHfLinear; `module` is its name without a dot at
// the end: "model.layers.0.self_attn.q_proj".
std::vector<HfTensor> HfLinearTensors(const HfScheme& scheme, std::string_view module, int rows,
                                      int cols);

// Whether the matrix is one of the scheme, and whole. Errors: those of EncodeHfLinear but for
// scales.
Status CheckGroupedMatrix(const HfScheme& scheme, const GroupedMatrix& matrix);

// The bytes of those tensors. Errors: a shape that CheckHfLinear refuses, a matrix of another
// scheme, a code or zero beyond its bits, a scale that the stored type does not hold exactly.
Result<std::vector<std::vector<std::byte>>> EncodeHfLinear(const HfScheme& scheme,
                                                           const GroupedMatrix& matrix);
Result<std::vector<std::vector<std::byte>>> EncodeHfLinear(const HfScheme& scheme,
                                                           const Fp8Matrix& matrix);

// The scale as the layout stores it: what a method must round to before it chooses codes.
float RoundHfScale(const HfScheme& scheme, float scale);

// The object for config.json's key "quantization_config". kept: linears that stay in floats
// ("lm_head", …).
std::string HfQuantizationConfig(const HfScheme& scheme, std::span<const std::string> kept);
// A config.json with that object in place of any that it has.
Result<std::string> HfConfigWithQuantization(std::string_view config_json, const HfScheme& scheme,
                                             std::span<const std::string> kept);
// A config.json without that object, and with torch_dtype ("float16") in place of what it says.
Result<std::string> HfConfigInFloats(std::string_view config_json, std::string_view dtype);

}  // namespace nibble
