#pragma once

#include <condition_variable>
#include <mutex>
#include <span>

#include "base/ids.h"
#include "tensor/matrix.h"

namespace nibble {

// Where two engines that compute the same text meet: the base shows a block of rows of logits and
// waits until the candidate has read them all; the candidate waits while the base computes. So one
// of them computes at a time and no row is copied.
class RowExchange {
 public:
  // Called by the base. Show returns when the rows are read or nobody will.
  void Show(Position first, MatrixView<float> rows);
  void EndBase();

  // Called by the candidate, positions ascending. Read: the row of a position, which stays until
  // Release of the same position; empty when the base ended before it.
  std::span<const float> Read(Position position);
  void Release(Position position);
  void EndCandidate();

  // Waits until the base has shown something, or has ended.
  void AwaitBase();

 private:
  bool BaseWaits() const { return base_ended_ || rows_.rows > 0; }  // with mutex_ held

  std::mutex mutex_;
  std::condition_variable changed_;
  Position first_;
  MatrixView<float> rows_ = {};  // none: the base computes
  bool base_ended_ = false;
  bool candidate_ended_ = false;
};

}  // namespace nibble
