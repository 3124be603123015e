#include "advise/window_compare.h"

#include "kernels/elementwise.h"
#include "kernels/kernel_table.h"

namespace nibble {

void KeepingSink::Rows(int first, MatrixView<float> logits) {
  for (int r = 0; r < logits.rows && status_; ++r) {
    status_ = rows_.Write(first + r, logits.row_span(r));
  }
}

ComparingSink::ComparingSink(const KernelTable& kernels, const BaseRows& base,
                             std::span<const TokenId> ids, int score_from)
    : kernels_(kernels),
      base_(base),
      ids_(ids),
      score_from_(score_from),
      row_(static_cast<size_t>(base.vocabulary())) {}

void ComparingSink::Rows(int first, MatrixView<float> logits) {
  for (int r = 0; r < logits.rows && status_; ++r) {
    status_ = base_.Read(first + r, row_);
    if (status_) Compare(logits.row_span(r), score_from_ + first + r);
  }
}

void ComparingSink::Compare(std::span<const float> candidate, int position) {
  const TokenId next = ids_[static_cast<size_t>(position) + 1];
  const LogitsPair row = {.base = row_,
                          .candidate = candidate,
                          .base_sum = ComputeLogSumExp(kernels_, row_),
                          .candidate_sum = ComputeLogSumExp(kernels_, candidate)};
  const double base_loss =
      row.base_sum.log_sum_exp - double{row_[static_cast<size_t>(next.value())]};
  AddSample(kernels_, {.row = row, .base_loss = base_loss, .next = next, .at = Position{position}},
            samples_);
}

}  // namespace nibble
