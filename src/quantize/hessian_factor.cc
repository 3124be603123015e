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

// The inverse of a lower triangle in its place, block column by block column from the last. What
// lies above the diagonal is not read.
void InvertLower(Square& lower) {
  const Eigen::Index n = lower.rows();
  constexpr Eigen::Index kBlock = 64;
  for (Eigen::Index at = (n - 1) / kBlock * kBlock; at >= 0; at -= kBlock) {
    const Eigen::Index width = std::min(kBlock, n - at);
    const Eigen::Index below = n - at - width;
    auto corner = lower.block(at, at, width, width);
    if (below > 0) {
      auto column = lower.block(at + width, at, below, width);
      const Square product =
          lower.bottomRightCorner(below, below).triangularView<Eigen::Lower>() * column;
      column = -product;
      corner.triangularView<Eigen::Lower>().solveInPlace<Eigen::OnTheRight>(column);
    }
    Square inverse = Square::Identity(width, width);
    corner.triangularView<Eigen::Lower>().solveInPlace(inverse);
    corner.triangularView<Eigen::Lower>() = inverse;
  }
}

}  // namespace

class HessianFactorizer {
 public:
  explicit HessianFactorizer(const Hessian& hessian) : hessian_(hessian) {}

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
    Square lower(n, n);
    for (Eigen::Index j = 0; j < n; ++j) {
      const int col = column(j);
      for (Eigen::Index i = j + 1; i < n; ++i) lower(i, j) = hessian_.At(column(i), col);
      lower(j, j) = diagonal_[static_cast<size_t>(col)] + damping * mean_;
    }
    FixBlocking();
    const Eigen::LLT<Eigen::Ref<Square>> cholesky(lower);
    if (cholesky.info() != Eigen::Success) return false;
    for (Eigen::Index i = 0; i < n; ++i) {
      if (!(std::isfinite(lower(i, i)) && lower(i, i) > 0)) return false;
    }
    InvertLower(lower);
    factor.upper.assign(static_cast<size_t>(n) * static_cast<size_t>(n), 0.0f);
    for (Eigen::Index i = 0; i < n; ++i) {
      for (Eigen::Index j = i; j < n; ++j) {
        factor.upper[static_cast<size_t>(i * n + j)] =
            static_cast<float>(lower(n - 1 - i, n - 1 - j));
      }
    }
    return true;
  }

 private:
  const Hessian& hessian_;
  std::vector<double> diagonal_;
  double mean_ = 0;
};

Result<HessianFactor> FactorHessian(const Hessian& hessian, const FactorOptions& options) {
  if (!(options.damping >= 0 && options.damping <= 1)) {
    return BadInput("damping: expected 0 to 1, found {}", options.damping);
  }
  NIBBLE_RETURN_IF_ERROR(hessian.Check());
  HessianFactorizer factorizer(hessian);
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
