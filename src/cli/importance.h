#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/globals.h"
#include "model/decoder.h"
#include "quantize/card.h"
#include "quantize/imatrix.h"

namespace nibble::cli {

struct QuantizeJob;

// Where the importance of a model's columns comes from.
struct ImportanceFlags {
  std::string calib;    // a text, or "built-in"
  std::string imatrix;  // a file
  std::string save;     // where to keep what was collected
  int sequences = 128;
  int length = 512;
};

struct Importance {
  Imatrix matrix;
  CardImportance card;
};

// Reads --imatrix, or computes --calib with the model in f32, layer by layer, and collects it;
// nothing when neither is given. Errors: flags that do not go together, those of the file, a text
// that is too short (both numbers).
Result<std::optional<Importance>> FindImportance(const QuantizeJob& job);

}  // namespace nibble::cli
