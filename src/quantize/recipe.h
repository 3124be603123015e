#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

// How codes are chosen.
enum class Rounding : uint8_t {
  kRtn,      // each weight on its own
  kKquant,   // a GGUF type's own search, with the importance of columns where it is known
  kGptq,     // errors of a column made up for by the columns behind it
  kHqq,      // zeros from the half-quadratic solver
  kLlmInt8,  // int8 rows, outlier columns of the input apart
};

// What is done to the weights before.
enum class Scaling : uint8_t { kNone, kAwq, kSmoothQuant };

// What becomes of a model's linears, beside the type or layout.
struct Recipe {
  Rounding rounding = Rounding::kKquant;
  Scaling scaling = Scaling::kNone;
  bool rotate = false;     // Hadamard rotation of the residual stream and of values
  bool clip = false;       // AWQ's search for smaller ranges
  double alpha = 0.5;      // SmoothQuant
  double damping = 0.01;   // GPTQ
  bool act_order = false;  // GPTQ
  bool static_groups = false;
  bool mse = false;
  double threshold = 6;  // LLM.int8()

  // "rtn", "gptq", "awq", "smoothquant", "llm-int8", "hqq", "kquant", or a scaling and a rounding:
  // "smoothquant+gptq". Of a scaling alone the rounding is `plain`. Error: an unknown name (all
  // known), two of a kind.
  static Result<Recipe> FromMethod(std::string_view method, Rounding plain);

  // Inputs of the linears are needed.
  bool NeedsCalibration() const {
    return rounding == Rounding::kGptq || scaling != Scaling::kNone || clip;
  }
  // One line with all parameters that count: "gptq damp=0.01 act-order".
  std::string Describe() const;
};

}  // namespace nibble
