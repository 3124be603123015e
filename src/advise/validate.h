#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/calibration.h"

namespace nibble {

class ThreadPool;

// A decode step as predicted and as measured.
struct ValidationRow {
  std::string model = {};
  std::string weights = {};
  std::string kv = {};
  int batch = 1;
  int context = 0;
  double measured_s = 0;
  double predicted_s = 0;   // at the machine's rates of the moment
  double calibrated_s = 0;  // at those of the calibration
  double read = 1;          // rates of the moment as a share of the calibrated ones: memory,
  double cpu = 1;           // and processors

  double residual() const { return predicted_s / measured_s - 1; }
};

struct ValidateOptions {
  // Called after every row, and before a model is made; false: stop.
  std::function<bool(double part, const ValidationRow* row)> progress = {};
};

// Compares predictions with measured decode steps of whole models with random weights
// (advise/calibration_cases.h). Where others use the machine its rates change by tens of percent
// within seconds: pieces of the steps alternate with the probe of memory and with one product from
// cache, and are predicted with what these say at that moment. Pieces during which it changed are
// dropped. Steps that the memory has no room for are left out. Errors: kCancelled.
Result<std::vector<ValidationRow>> Validate(ThreadPool& pool,
                                            std::shared_ptr<const Calibration> calibration,
                                            const ValidateOptions& options);

struct ValidationErrors {
  double median = 0;  // of |residual|
  double p90 = 0;
};
ValidationErrors Summarise(const std::vector<ValidationRow>& rows);

}  // namespace nibble
