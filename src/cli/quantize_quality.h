#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/globals.h"
#include "cli/quantize_flags.h"
#include "quantize/card.h"

namespace nibble {
class Tokenizer;
}

namespace nibble::cli {

// The text that quality is measured on.
struct QualityText {
  std::string name;
  std::string text;
  int context = 512;  // tokens of a window
};

// Reads it, and checks that it is long enough before any work is done. tokenizer: the source's.
// Nothing under --no-quality.
Result<std::optional<QualityText>> ReadQualityText(const GlobalFlags& flags,
                                                   const QuantizeFlags& own,
                                                   const Tokenizer& tokenizer, int model_context);

struct MeasuredQuality {
  CardQuality quality;
  CardSpeed speed;
};

// The divergence of `made` from its source, which runs with --act f32 --kv f32, and the speed of
// `made`.
Result<MeasuredQuality> MeasureQuality(const GlobalFlags& flags, const QuantizeFlags& own,
                                       const QualityText& text, const std::filesystem::path& source,
                                       const std::string& made);

}  // namespace nibble::cli
