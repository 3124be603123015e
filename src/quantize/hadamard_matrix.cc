#include "quantize/hadamard_matrix.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "kernels/hadamard.h"

namespace nibble {
namespace {

// A field of q = p^k elements, each a polynomial over Z_p as a number in base p.
class FiniteField {
 public:
  // Nothing when q is no power of an odd prime.
  static std::optional<FiniteField> OfSize(int q) {
    int p = 3;
    while (p * p <= q && q % p != 0) p += 2;
    if (q % p != 0) p = q;
    int k = 0;
    int rest = q;
    while (rest % p == 0) {
      rest /= p;
      ++k;
    }
    if (q < 3 || q % 2 == 0 || rest != 1) return std::nullopt;
    FiniteField field(p, k, q);
    if (k > 1 && !field.FindModulus()) return std::nullopt;
    return field;
  }

  int Subtract(int a, int b) const {
    int result = 0;
    for (int place = 1; place < q_; place *= p_) {
      result += ((a / place % p_) - (b / place % p_) + p_) % p_ * place;
    }
    return result;
  }

  int Multiply(int a, int b) const {
    std::vector<int> product(static_cast<size_t>(2 * k_), 0);
    for (int i = 0; i < k_; ++i) {
      for (int j = 0; j < k_; ++j) {
        int& sum = product[static_cast<size_t>(i + j)];
        sum = (sum + Digit(a, i) * Digit(b, j)) % p_;
      }
    }
    // x^k = −(the modulus without its first term).
    for (int i = 2 * k_ - 1; i >= k_; --i) {
      const int top = product[static_cast<size_t>(i)];
      product[static_cast<size_t>(i)] = 0;
      for (int j = 0; j < k_; ++j) {
        int& low = product[static_cast<size_t>(i - k_ + j)];
        low = ((low - top * Digit(modulus_, j)) % p_ + p_) % p_;
      }
    }
    int result = 0;
    for (int i = k_ - 1; i >= 0; --i) result = result * p_ + product[static_cast<size_t>(i)];
    return result;
  }

  // 1 of squares, −1 of others, 0 of 0, by element.
  std::vector<int8_t> Characters() const {
    std::vector<int8_t> characters(static_cast<size_t>(q_), -1);
    for (int a = 1; a < q_; ++a) characters[static_cast<size_t>(Multiply(a, a))] = 1;
    characters[0] = 0;
    return characters;
  }

 private:
  FiniteField(int p, int k, int q) : p_(p), k_(k), q_(q) {}

  int Digit(int a, int i) const {
    while (i-- > 0) a /= p_;
    return a % p_;
  }

  // x^k + modulus is to leave no divisors of zero: then squares are exactly half of the elements
  // and no two elements other than 0 have the product 0.
  bool FindModulus() {
    for (modulus_ = 1; modulus_ < q_; ++modulus_) {
      bool field = true;
      for (int a = 1; a < q_ && field; ++a) {
        for (int b = a; b < q_ && field; ++b) field = Multiply(a, b) != 0;
      }
      if (field) return true;
    }
    return false;
  }

  int p_;
  int k_;
  int q_;
  int modulus_ = 0;
};

constexpr int kLargestCore = 2048;

// Paley's matrix of order `order`, or nothing.
std::vector<int8_t> PaleyMatrix(int order) {
  const bool first = (order - 1) % 4 == 3;
  const auto one = first ? FiniteField::OfSize(order - 1) : std::nullopt;
  const auto two = order % 4 == 0 && (order / 2 - 1) % 4 == 1 ? FiniteField::OfSize(order / 2 - 1)
                                                              : std::nullopt;
  if (!one && !two) return {};
  const FiniteField& field = one ? *one : *two;
  const int q = one ? order - 1 : order / 2 - 1;
  const std::vector<int8_t> characters = field.Characters();
  const auto n = static_cast<size_t>(q + 1);
  // S: borders of 1 (the left one −1 under q ≡ 3, where S is skew), inside χ(a − b).
  std::vector<int8_t> s(n * n);
  for (size_t i = 1; i < n; ++i) {
    s[i] = 1;
    s[i * n] = one ? int8_t{-1} : int8_t{1};
    for (size_t j = 1; j < n; ++j) {
      s[i * n + j] = characters[static_cast<size_t>(
          field.Subtract(static_cast<int>(i) - 1, static_cast<int>(j) - 1))];
    }
  }
  if (one) {
    for (size_t i = 0; i < n; ++i) s[i * n + i] = 1;  // 1 + S
    return s;
  }
  // S ⊗ [1 1; 1 −1] + 1 ⊗ [1 −1; −1 −1]
  std::vector<int8_t> h(4 * n * n);
  for (size_t i = 0; i < 2 * n; ++i) {
    for (size_t j = 0; j < 2 * n; ++j) {
      const int8_t value = s[i / 2 * n + j / 2];
      const bool both = i % 2 == 1 && j % 2 == 1;
      if (i / 2 == j / 2) {
        h[i * 2 * n + j] = i % 2 == 0 && j % 2 == 0 ? int8_t{1} : int8_t{-1};
      } else {
        h[i * 2 * n + j] = both ? static_cast<int8_t>(-value) : value;
      }
    }
  }
  return h;
}

}  // namespace

Result<HadamardFactors> FindHadamard(int n) {
  if (n < 1) return BadInput("rotation: expected a size of at least 1, found {}", n);
  const int odd = n / (n & -n);
  int doublings = 0;
  while (odd << doublings < n) ++doublings;
  if (odd == 1) return HadamardFactors{.core = 1, .doublings = doublings, .matrix = {1}};
  for (int used = 2; used <= doublings && odd << used <= kLargestCore; ++used) {
    const int core = odd << used;
    std::vector<int8_t> matrix = PaleyMatrix(core);
    if (!matrix.empty()) {
      return HadamardFactors{
          .core = core, .doublings = doublings - used, .matrix = std::move(matrix)};
    }
  }
  return BadInput("rotation: no Hadamard matrix of order {} is known here", n);
}

void MultiplyByHadamard(const HadamardFactors& factors, double* x) {
  const int inner = 1 << factors.doublings;
  const int n = factors.size();
  WalshHadamard(inner, x, n);
  const int core = factors.core;
  if (core == 1) return;
  std::vector<double> sums(static_cast<size_t>(core));
  for (int i = 0; i < inner; ++i) {
    std::ranges::fill(sums, 0.0);
    for (int r = 0; r < core; ++r) {
      const double value = x[r * inner + i];
      const int8_t* row = factors.matrix.data() + ptrdiff_t{r} * core;
      for (int c = 0; c < core; ++c) sums[static_cast<size_t>(c)] += row[c] * value;
    }
    for (int c = 0; c < core; ++c) x[c * inner + i] = sums[static_cast<size_t>(c)];
  }
}

}  // namespace nibble
