#pragma once

#include <optional>
#include <vector>

#include "cli/importance.h"
#include "cli/json_output.h"
#include "quantize/outliers.h"

namespace nibble::cli {

// A text that went through a model.
struct CalibrationRun {
  CardImportance card;
  int sequences = 0;
  int length = 0;  // tokens of each
};

// What `inspect --outliers` finds in a model.
struct Outliers {
  std::vector<TensorOutliers> weights;
  std::optional<CalibrationRun> calibration;  // with it:
  std::vector<ActivationOutliers> activations;
};

// Reads every matrix, and with calibration.calib computes that text. Errors: a weight that is no
// finite number, those of the text and the model.
Result<Outliers> MeasureOutliers(const GlobalFlags& flags, const ModelFile& model,
                                 const ImportanceFlags& calibration);

Json OutliersJson(const Outliers& outliers);
void PrintOutliers(const Outliers& outliers);

}  // namespace nibble::cli
