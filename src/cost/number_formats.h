#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost/device_shape.h"
#include "cost/model_shape.h"
#include "model/kv_groups.h"

namespace nibble {

// Nominal: an 8-bit number is one byte. True: what the named format stores, scales and padding of
// pages included.
enum class Counting : uint8_t { kNominal, kTrue };

// What --weights takes: a generic name (bf16, int8, int4, …), a format or mix of --to, or "own",
// the formats of the model's file.
struct WeightFormat {
  std::string name;
  double nominal_bits = 16;
  std::optional<FormatMix> mix;  // none: own
  Arithmetic arithmetic = Arithmetic::kBf16;
  // The true format behind a generic name: "q8_0" for int8; else the name.
  std::string_view TrueName() const { return mix ? mix->name() : std::string_view(name); }
  bool generic = false;
};
// Errors list the known names.
Result<WeightFormat> ParseWeightFormat(std::string_view name);
std::vector<std::string_view> GenericWeightFormats();

// What --kv takes: a format of --kv or bf16, or two for keys and values, "int8/kivi2".
struct KvChoice {
  std::string name;
  KvFormats formats;
};
Result<KvChoice> ParseKvChoice(std::string_view name);

Bytes BytesOf(const WeightGroup& group, const WeightFormat& format, Counting counting);

// The cache of one sequence in one format.
class KvCost {
 public:
  // Error: the model's head size does not fit the format.
  static Result<KvCost> Create(const ModelShape& shape, const KvChoice& choice, Counting counting);

  // κ: one more token, while it is visible.
  Bytes PerToken() const { return per_token_; }
  // What a step reads for a new token behind `context` others, itself included.
  Bytes Read(int context) const;
  // What a step reads for `rows` new tokens behind `first` others, themselves included: what one
  // of them sees is read once.
  Bytes ReadBy(int first, int rows) const;
  // What a sequence of so many tokens keeps.
  Bytes Held(int tokens) const;
  std::span<const KvGroup> groups() const { return groups_; }
  // Tokens of context over all sequences at which what they read passes `weights`: with b sequences
  // of n each, the b·n where b times the bytes of n tokens equals them. None: a window ends their
  // growth before.
  std::optional<Tokens> Crossover(Bytes weights, int batch) const;

 private:
  struct Layers {
    int window = 0;  // 0: all positions are visible
    Bytes per_token;
  };
  std::vector<KvGroup> groups_;
  std::vector<Layers> layers_;
  Counting counting_ = Counting::kNominal;
  Bytes per_token_;
};

}  // namespace nibble
