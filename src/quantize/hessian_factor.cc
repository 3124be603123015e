// The factor without the inverse: with the order of the columns reversed, H = L Lᵀ gives R = the
// reverse of L, which is upper and has H = R Rᵀ, so U = R⁻¹. One Cholesky and one triangular
// inverse in place of the paper's Cholesky, inverse and Cholesky: a third of the work, half of the
// rounding.
#include "quantize/hessian_factor.h"

#include <Eigen/Cholesky>
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/math.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using Square = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

// Eigen cuts its sums by the caches of the machine; with these everywhere the bits are the same.
void FixBlocking() {
  static const bool kFixed = [] {
    Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
    return true;
  }();
  (void)kFixed;
}

constexpr Eigen::Index kBlock = 64;  // of columns, and of the rows that a thread takes at a time

// fn(first, rows) for every block of rows from `from` to n. Blocks are the same for any number of
// threads, and so are the bits. rising: later blocks have more work, so a thread takes one from
// each end.
template <class Fn>
void ForRowBlocks(Eigen::Index from, Eigen::Index n, bool rising, ThreadPool& pool, Fn fn) {
  const auto blocks = static_cast<int64_t>(CeilDiv(n - from, kBlock));
  const auto one = [&](int64_t block) {
    const Eigen::Index first = from + block * kBlock;
    fn(first, std::min(kBlock, n - first));
  };
  if (!rising) {
    pool.ParallelFor(blocks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) one(block);
    });
    return;
  }
  pool.ParallelFor(CeilDiv(blocks, int64_t{2}), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t pair = begin; pair < end; ++pair) {
      one(pair);
      if (blocks - 1 - pair != pair) one(blocks - 1 - pair);
    }
  });
}

// The Cholesky factor in the lower triangle's place, a block of columns at a time; false where the
// matrix is not positive definite. What lies above the diagonal is not read.
bool FactorLower(Square& lower, ThreadPool& pool) {
  const Eigen::Index n = lower.rows();
  for (Eigen::Index at = 0; at < n; at += kBlock) {
    const Eigen::Index width = std::min(kBlock, n - at);
    Square corner = lower.block(at, at, width, width);
    const Eigen::LLT<Eigen::Ref<Square>> cholesky(corner);
    if (cholesky.info() != Eigen::Success) return false;
    for (Eigen::Index i = 0; i < width; ++i) {
      if (!(std::isfinite(corner(i, i)) && corner(i, i) > 0)) return false;
    }
    lower.block(at, at, width, width).triangularView<Eigen::Lower>() = corner;
    const Eigen::Index next = at + width;
    ForRowBlocks(next, n, false, pool, [&](Eigen::Index first, Eigen::Index rows) {
      auto part = lower.block(first, at, rows, width);
      corner.triangularView<Eigen::Lower>().transpose().solveInPlace<Eigen::OnTheRight>(part);
    });
    ForRowBlocks(next, n, true, pool, [&](Eigen::Index first, Eigen::Index rows) {
      const auto left = lower.block(first, at, rows, width);
      for (Eigen::Index col = next; col <= first; col += kBlock) {
        const Eigen::Index cols = std::min(kBlock, n - col);
        lower.block(first, col, rows, cols).noalias() -=
            left * lower.block(col, at, cols, width).transpose();
      }
    });
  }
  return true;
}

// The inverse of a lower triangle in its place, block column by block column from the last. What
// lies above the diagonal is not read.
void InvertLower(Square& lower, ThreadPool& pool) {
  const Eigen::Index n = lower.rows();
  for (Eigen::Index at = (n - 1) / kBlock * kBlock; at >= 0; at -= kBlock) {
    const Eigen::Index width = std::min(kBlock, n - at);
    const Eigen::Index next = at + width;
    const Square corner = lower.block(at, at, width, width);
    if (next < n) {
      const Square column = lower.block(next, at, n - next, width);
      ForRowBlocks(next, n, true, pool, [&](Eigen::Index first, Eigen::Index rows) {
        const Eigen::Index before = first - next;
        const Square triangle = lower.block(first, first, rows, rows);
        Square product = triangle.triangularView<Eigen::Lower>() * column.middleRows(before, rows);
        product.noalias() += lower.block(first, next, rows, before) * column.topRows(before);
        corner.triangularView<Eigen::Lower>().solveInPlace<Eigen::OnTheRight>(product);
        lower.block(first, at, rows, width) = -product;
      });
    }
    Square inverse = Square::Identity(width, width);
    corner.triangularView<Eigen::Lower>().solveInPlace(inverse);
    lower.block(at, at, width, width).triangularView<Eigen::Lower>() = inverse;
  }
}

}  // namespace

class HessianFactorizer {
 public:
  HessianFactorizer(const Hessian& hessian, ThreadPool& pool) : hessian_(hessian), pool_(pool) {}

  // Columns, dead ones and the mean of the diagonal, in which dead ones count as 1.
  HessianFactor Start(bool act_order) {
    const int n = hessian_.cols();
    HessianFactor factor;
    factor.cols = n;
    diagonal_ = hessian_.Diagonal();
    factor.dead.resize(static_cast<size_t>(n));
    for (size_t c = 0; c < diagonal_.size(); ++c) {
      if (diagonal_[c] > 0) continue;
      factor.dead[c] = 1;
      ++factor.dead_count;
      diagonal_[c] = 1;
    }
    mean_ = std::accumulate(diagonal_.begin(), diagonal_.end(), 0.0) / n;
    factor.order.resize(static_cast<size_t>(n));
    std::iota(factor.order.begin(), factor.order.end(), 0);
    if (act_order) {
      std::ranges::stable_sort(factor.order, [&](int a, int b) {
        return diagonal_[static_cast<size_t>(a)] > diagonal_[static_cast<size_t>(b)];
      });
    }
    return factor;
  }

  // Whether it is positive definite with this damping; then factor.upper is filled.
  bool Try(double damping, HessianFactor& factor) const {
    const Eigen::Index n = factor.cols;
    const auto column = [&](Eigen::Index reversed) {
      return factor.order[static_cast<size_t>(n - 1 - reversed)];
    };
    Square lower = Square::Zero(n, n);
    pool_.ParallelFor(n, 1, [&](int64_t begin, int64_t end, int) {
      for (Eigen::Index j = begin; j < end; ++j) {
        const int col = column(j);
        for (Eigen::Index i = j + 1; i < n; ++i) lower(i, j) = hessian_.At(column(i), col);
        lower(j, j) = diagonal_[static_cast<size_t>(col)] + damping * mean_;
      }
    });
    FixBlocking();
    if (!FactorLower(lower, pool_)) return false;
    InvertLower(lower, pool_);
    factor.upper.assign(static_cast<size_t>(n) * static_cast<size_t>(n), 0.0f);
    pool_.ParallelFor(n, 1, [&](int64_t begin, int64_t end, int) {
      for (Eigen::Index i = begin; i < end; ++i) {
        for (Eigen::Index j = i; j < n; ++j) {
          factor.upper[static_cast<size_t>(i * n + j)] =
              static_cast<float>(lower(n - 1 - i, n - 1 - j));
        }
      }
    });
    return true;
  }

 private:
  const Hessian& hessian_;
  ThreadPool& pool_;
  std::vector<double> diagonal_;
  double mean_ = 0;
};

Result<HessianFactor> FactorHessian(const Hessian& hessian, const FactorOptions& options,
                                    ThreadPool& pool) {
  if (!(options.damping >= 0 && options.damping <= 1)) {
    return BadInput("damping: expected 0 to 1, found {}", options.damping);
  }
  NIBBLE_RETURN_IF_ERROR(hessian.Check());
  HessianFactorizer factorizer(hessian, pool);
  HessianFactor factor = factorizer.Start(options.act_order);
  for (double damping = options.damping; damping <= 1; damping = std::max(2 * damping, 1e-3)) {
    if (factorizer.Try(damping, factor)) {
      factor.damping = damping;
      return factor;
    }
    ++factor.raised;
  }
  return BadInput(
      "calibration: the matrix of the inputs' products is not positive definite, even with its "
      "mean "
      "diagonal added (damping from {} to 1)",
      options.damping);
}

}  // namespace nibble
