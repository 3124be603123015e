#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/format.h"

namespace nibble {

// What a matrix does in a model: the mixes of llama.cpp give some of them more bits.
enum class TensorRole : uint8_t {
  kEmbedding,
  kOutput,  // the embedding too where it is tied
  kAttnQuery,
  kAttnKey,
  kAttnValue,
  kAttnOutput,
  kFfnGate,
  kFfnUp,
  kFfnDown,
};

// Where a matrix stands.
struct TensorPlace {
  TensorRole role = TensorRole::kFfnUp;
  int layer = 0;
  int layers = 1;
  int query_groups = 1;  // query heads per KV head
  int cols = 0;
};

// A rule that gives every matrix of a file its format: one format for all, or a mix such as q4_k_m
// (llama.cpp's llama_tensor_get_type).
class FormatMix {
 public:
  // "q4_k_m", "q3_k_l", …, or the name of a format. Errors list the known names.
  static Result<FormatMix> FromName(std::string_view name);

  // The format of a matrix; one whose blocks do not divide the columns falls back as llama.cpp's
  // does (Q4_K to Q5_0, Q6_K to Q8_0, …, at last to F16).
  Format For(const TensorPlace& place) const;
  // The format before that fallback.
  Format Wanted(const TensorPlace& place) const;

  std::string_view name() const { return name_; }

  // Importances of the columns are known: a few mixes then choose otherwise.
  void UseImportance() { has_importance_ = true; }
  bool NeedsImportance() const { return kind_ == Kind::kQ2KS; }

 private:
  enum class Kind : uint8_t {
    kPlain,
    kQ2K,
    kQ2KS,
    kQ3KS,
    kQ3KM,
    kQ3KL,
    kQ4KS,
    kQ4KM,
    kQ5KS,
    kQ5KM,
    kIq4
  };
  struct Row {
    std::string_view name;
    Kind kind;
    Format base;
  };
  static const std::vector<Row>& Mixes();
  Format WantedValue(const TensorPlace& place) const;
  Format WantedDown(const TensorPlace& place) const;

  std::string_view name_;
  Kind kind_ = Kind::kPlain;
  Format base_ = Format::kF16;
  bool has_importance_ = false;
};

}  // namespace nibble
