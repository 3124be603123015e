#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cli/globals.h"
#include "cli/importance.h"
#include "quantize/card.h"

namespace nibble {
class Tokenizer;
}

namespace nibble::cli {

// The sequences that a calibrated method sees.
struct Calibration {
  std::vector<std::vector<TokenId>> sequences;
  CardCalibration card;
};

// Cuts --calib, or the built-in text, into sequences of --calib-length tokens: the first
// --calib-sequences of them, or, with --seed, so many at random. A text with fewer gives all that
// it has, which is said. Errors: the file; a text with less than two.
Result<Calibration> ReadCalibration(const GlobalFlags& flags, const ImportanceFlags& own,
                                    const Tokenizer& tokenizer, int model_context);

// The text that --calib names ("built-in": the program's own).
struct CalibrationText {
  std::string name;
  std::string text;
};
Result<CalibrationText> ReadCalibrationText(const std::string& calib);

}  // namespace nibble::cli
