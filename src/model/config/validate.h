#pragma once

#include "base/result.h"
#include "model/config.h"

namespace nibble {

// Largest values that nibble accepts, some times beyond any published model: a file beyond them
// lies, and products of them stay within 64 bits and single sizes within 32.
struct ConfigLimits {
  static constexpr int kLayers = 4096;
  static constexpr int kWidth = 1 << 17;
  static constexpr int kHeads = 1024;
  static constexpr int kHeadDim = 1024;
  static constexpr int kFfnWidth = 1 << 20;
  static constexpr int kVocabulary = 1 << 24;
  static constexpr int kContext = 1 << 28;
};

// Error: a number is out of its range or does not fit another one; names it with both.
Status ValidateConfig(const ModelConfig& config);

}  // namespace nibble
