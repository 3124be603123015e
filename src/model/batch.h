#pragma once

#include <span>

#include "base/ids.h"
#include "kernels/kv_view.h"
#include "tensor/matrix.h"

namespace nibble {

// One sequence's share of a step: `rows` consecutive tokens from position `first` on. The pages for
// them are already in its tables.
struct BatchSequence {
  int row_begin = 0;
  int rows = 0;
  Position first;
  std::span<const KvTable> tables;  // one per KvGroup, in the order of MakeKvGroups
};

// What one forward pass computes: any mix of prompt chunks and single next tokens.
struct RaggedBatch {
  std::span<const TokenId> tokens;           // [rows]
  std::span<const BatchSequence> sequences;  // cover all rows in order
  std::span<const int> logit_rows;           // ascending rows whose logits are wanted
};

// Receives logits in row blocks; they are never stored whole (512 × 262,144 floats are 537 MB).
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  // logits [n][vocabulary] for logit_rows[first … first + n). Valid during the call only; the sink
  // may change them in place.
  virtual void Rows(int first, MatrixView<float> logits) = 0;
};

}  // namespace nibble
