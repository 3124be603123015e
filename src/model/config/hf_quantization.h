#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/hf_linear.h"
#include "container/json.h"
#include "container/tensor_source.h"

namespace nibble {

// A regular expression of a compressed-tensors target, "re:.*down_proj": Python's re.match.
class TargetPattern {
 public:
  static Result<TargetPattern> Compile(std::string_view pattern);
  // Error: the expression gives up on this name.
  Result<bool> Matches(std::string_view name) const;

 private:
  struct Impl;
  explicit TargetPattern(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// What config.json's quantization_config (or a quantize_config.json) says of the linears. Which of
// them are quantised the tensors tell; shapes tell bits and groups, where they can.
struct HfQuantization {
  enum class Method { kGptq, kAwq, kCompressed, kF8, kLlmInt8 };
  struct Rule {
    bool all = false;  // "Linear"
    std::vector<std::string> names;
    std::vector<TargetPattern> patterns;
    HfHints hints;
    HfInput input;  // a static kind has its scale beside the weight
  };
  Method method = Method::kGptq;
  bool gptq_v2 = false;
  std::vector<Rule> rules;  // the first that matches counts
  bool f8_cache = false;    // k_scale and v_scale belong to an FP8 cache

  // Null: none matches.
  Result<const Rule*> Find(std::string_view module) const;
};

// Errors: a method, layout or arithmetic that nibble does not read, by name.
Result<HfQuantization> ReadHfQuantization(JsonValue config);

// A checkpoint's tensors with one in the place of all that belong to a quantised linear.
struct HfQuantizedTensors {
  std::deque<HfLinear> linears;  // owns what SourceTensor::linear points at
  std::deque<std::string> names;
  TensorSource source;
};
// Errors name the tensor that is missing or does not fit.
Result<HfQuantizedTensors> JoinHfLinears(const TensorSource& stored,
                                         const HfQuantization& quantization);

}  // namespace nibble
