#pragma once

#include <span>
#include <vector>

#include "advise/base_rows.h"
#include "base/ids.h"
#include "eval/divergence.h"
#include "model/batch.h"

namespace nibble {

struct KernelTable;

// Keeps a window's rows of logits.
class KeepingSink : public LogitsSink {
 public:
  explicit KeepingSink(BaseRows& rows) : rows_(rows) {}
  void Rows(int first, MatrixView<float> logits) override;
  const Status& status() const { return status_; }

 private:
  BaseRows& rows_;
  Status status_;
};

// Compares rows with those that were kept, as MeasureDivergence does. ids: of the window.
class ComparingSink : public LogitsSink {
 public:
  ComparingSink(const KernelTable& kernels, const BaseRows& base, std::span<const TokenId> ids,
                int score_from);
  void Rows(int first, MatrixView<float> logits) override;
  const Status& status() const { return status_; }
  const DivergenceSamples& samples() const { return samples_; }

 private:
  void Compare(std::span<const float> candidate, int position);

  const KernelTable& kernels_;
  const BaseRows& base_;
  std::span<const TokenId> ids_;
  int score_from_;
  std::vector<float> row_;  // the base's [vocabulary]
  DivergenceSamples samples_ = {};
  Status status_;
};

}  // namespace nibble
