#include "eval/row_exchange.h"

namespace nibble {

void RowExchange::Show(Position first, MatrixView<float> rows) {
  std::unique_lock lock(mutex_);
  if (candidate_ended_ || rows.rows == 0) return;
  first_ = first;
  rows_ = rows;
  changed_.notify_all();
  changed_.wait(lock, [&] { return rows_.rows == 0 || candidate_ended_; });
  rows_ = {};
}

void RowExchange::EndBase() {
  const std::scoped_lock lock(mutex_);
  base_ended_ = true;
  changed_.notify_all();
}

std::span<const float> RowExchange::Read(Position position) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return BaseWaits(); });
  if (rows_.rows == 0) return {};
  const int row = position.value() - first_.value();
  if (row < 0 || row >= rows_.rows) return {};
  return rows_.row_span(row);
}

void RowExchange::Release(Position position) {
  std::unique_lock lock(mutex_);
  if (position.value() - first_.value() + 1 < rows_.rows) return;
  rows_ = {};
  changed_.notify_all();
  changed_.wait(lock, [&] { return BaseWaits(); });
}

void RowExchange::EndCandidate() {
  const std::scoped_lock lock(mutex_);
  candidate_ended_ = true;
  changed_.notify_all();
}

void RowExchange::AwaitBase() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return BaseWaits(); });
}

}  // namespace nibble
