#include "quantize/input_stats.h"

#include <algorithm>
#include <cmath>

#include "platform/thread_pool.h"

namespace nibble {

InputStats::InputStats(int cols, const StatsNeeds& needs, int64_t tokens)
    : cols_(cols), needs_(needs) {
  const auto size = static_cast<size_t>(cols);
  if (needs.hessian) hessian_.emplace(cols);
  if (needs.squares) squares_.resize(size);
  if (needs.sizes) {
    sizes_.resize(size);
    largest_.resize(size);
  }
  if (needs.sample_rows > 0) every_ = std::max<int64_t>(1, tokens / needs.sample_rows);
}

void InputStats::Add(MatrixView<const float> x, ThreadPool& pool) {
  if (hessian_) hessian_->Add(x, pool);
  // Columns are shared out, so that each sum has its order.
  const bool columns = needs_.squares || needs_.sizes;
  if (columns) {
    pool.ParallelFor(cols_, 16, [&](int64_t begin, int64_t end, int) {
      for (int r = 0; r < x.rows; ++r) {
        const float* row = x.row(r);
        for (auto j = static_cast<size_t>(begin); j < static_cast<size_t>(end); ++j) {
          if (needs_.squares) squares_[j] += double{row[j]} * double{row[j]};
          if (!needs_.sizes) continue;
          const float size = std::fabs(row[j]);
          sizes_[j] += size;
          largest_[j] = std::max(largest_[j], size);
        }
      }
    });
  }
  for (int r = 0; r < x.rows && needs_.sample_rows > 0; ++r) {
    if ((tokens_ + r) % every_ != 0) continue;
    if (std::ssize(sample_) >= int64_t{needs_.sample_rows} * cols_) break;
    sample_.insert(sample_.end(), x.row(r), x.row(r) + cols_);
  }
  tokens_ += x.rows;
}

std::vector<float> InputStats::Importance() const {
  std::vector<float> means;
  for (const double sum : squares_) {
    means.push_back(static_cast<float>(sum / static_cast<double>(std::max<int64_t>(tokens_, 1))));
  }
  return means;
}

std::vector<float> InputStats::MeanSizes() const {
  std::vector<float> means;
  for (const double sum : sizes_) {
    means.push_back(static_cast<float>(sum / static_cast<double>(std::max<int64_t>(tokens_, 1))));
  }
  return means;
}

MatrixView<const float> InputStats::sample() const {
  return DenseView(sample_.data(), static_cast<int>(sample_.size()) / cols_, cols_);
}

}  // namespace nibble
