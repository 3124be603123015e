// The vector form of ref/float_ref.cc.
#include "kernels/float_kernels.h"

#include "kernels/simd/floats/math.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int kLanes = 32;
constexpr int kLaneRegs = kLanes / kWidth;

// The 32 lanes of a reduction: register i holds lanes i · kWidth ….
struct Lanes {
  Reg reg[kLaneRegs];
};

NIBBLE_INLINE float Tree(Lanes lanes) {
  NIBBLE_UNROLL for (int half = kLaneRegs / 2; half > 0; half /= 2) {
    NIBBLE_UNROLL for (int i = 0; i < half; ++i) {
      lanes.reg[i] = Add(lanes.reg[i], lanes.reg[i + half]);
    }
  }
  return TreeSum(lanes.reg[0]);
}

// lanes = step(first element, lanes, count of valid elements) over n elements, in registers.
template <class F>
NIBBLE_INLINE Lanes AccumulateAt(int64_t n, F step) {
  Lanes lanes;
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) lanes.reg[i] = Set(0.0F);
  int64_t at = 0;
  for (; at + kLanes <= n; at += kLanes) {
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
      lanes.reg[i] = step(at + i * kWidth, lanes.reg[i], kWidth);
    }
  }
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
    const int64_t left = n - at - i * kWidth;
    const int count = left < kWidth ? static_cast<int>(left) : kWidth;
    if (count > 0) lanes.reg[i] = step(at + i * kWidth, lanes.reg[i], count);
  }
  return lanes;
}

// lanes = step(register of x, lanes, count of valid elements).
template <class F>
NIBBLE_INLINE Lanes Accumulate(const float* x, int64_t n, F step) {
  return AccumulateAt(n, [=](int64_t at, Reg acc, int valid) {
    return step(valid == kWidth ? Load(x + at) : LoadN(x + at, valid), acc, valid);
  });
}

// y[i] = f(i-th register of each input …) element by element; load(at, n) and store see n = kWidth
// but for the tail.
template <class F>
NIBBLE_INLINE void ForRegs(int n, F body) {
  int at = 0;
  for (; at + kWidth <= n; at += kWidth) body(at, kWidth);
  if (at < n) body(at, n - at);
}
NIBBLE_INLINE Reg Get(const float* p, int n) { return n == kWidth ? Load(p) : LoadN(p, n); }
NIBBLE_INLINE void Put(float* p, Reg v, int n) { n == kWidth ? Store(p, v) : StoreN(p, v, n); }

void RmsNorm(const float* x, const float* weight, float eps, int n, float* y) {
  const Lanes squares = Accumulate(x, n, [](Reg v, Reg acc, int) { return Fma(v, v, acc); });
  const float mean = Tree(squares) / static_cast<float>(n);
  const Reg inverse = Set(1.0F / __builtin_sqrtf(mean + eps));
  if (weight != nullptr) {
    ForRegs(n, [=](int at, int count) {
      Put(y + at, Mul(Mul(Get(x + at, count), inverse), Get(weight + at, count)), count);
    });
  } else {
    ForRegs(n, [=](int at, int count) { Put(y + at, Mul(Get(x + at, count), inverse), count); });
  }
}

void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int n, float* y) {
  const Lanes sums = Accumulate(x, n, [](Reg v, Reg acc, int) { return Add(acc, v); });
  const Reg mean = Set(Tree(sums) / static_cast<float>(n));
  const Lanes squares = Accumulate(x, n, [=](Reg v, Reg acc, int count) {
    Reg z = Sub(v, mean);
    if (count < kWidth) z = KeepN(z, count);
    return Fma(z, z, acc);
  });
  const float variance = Tree(squares) / static_cast<float>(n);
  const Reg inverse = Set(1.0F / __builtin_sqrtf(variance + eps));
  ForRegs(n, [=](int at, int count) {
    const Reg z = Mul(Sub(Get(x + at, count), mean), inverse);
    const Reg w = Get(weight + at, count);
    Put(y + at, bias != nullptr ? Fma(z, w, Get(bias + at, count)) : Mul(z, w), count);
  });
}

template <class F>
NIBBLE_INLINE void ApplyGate(const float* a, const float* b, int n, float* y, F gate) {
  if (b != nullptr) {
    ForRegs(n, [=](int at, int count) {
      Put(y + at, Mul(gate(Get(a + at, count)), Get(b + at, count)), count);
    });
  } else {
    ForRegs(n, [=](int at, int count) { Put(y + at, gate(Get(a + at, count)), count); });
  }
}

void GateSilu(const float* a, const float* b, int n, float* y) {
  ApplyGate(a, b, n, y, [](Reg x) { return Mul(x, Sigmoid(x)); });
}

void GateGeluTanh(const float* a, const float* b, int n, float* y) {
  ApplyGate(a, b, n, y, [](Reg x) {
    namespace mc = math_constants;
    return Mul(x, Sigmoid(Mul(x, Fma(Set(mc::kGeluB), Mul(x, x), Set(mc::kGeluA)))));
  });
}

void GateGeluErf(const float* a, const float* b, int n, float* y) {
  ApplyGate(a, b, n, y, [](Reg x) { return Mul(x, Phi(x)); });
}

void AddTo(const float* x, int n, float* y) {
  ForRegs(n, [=](int at, int count) {
    Put(y + at, Add(Get(y + at, count), Get(x + at, count)), count);
  });
}

void Scale(float factor, int n, float* x) {
  const Reg f = Set(factor);
  ForRegs(n, [=](int at, int count) { Put(x + at, Mul(Get(x + at, count), f), count); });
}

void SoftCap(float cap, int n, float* x) {
  const Reg c = Set(cap);
  ForRegs(n,
          [=](int at, int count) { Put(x + at, Mul(c, Tanh(Div(Get(x + at, count), c))), count); });
}

void RopeHalves(const RopeRow& row, float* x) {
  for (int h = 0; h < row.heads; ++h) {
    float* head = x + static_cast<int64_t>(h) * row.head_dim;
    ForRegs(row.pairs, [&](int at, int count) {
      const Reg cos = Get(row.cos + at, count);
      const Reg sin = Get(row.sin + at, count);
      const Reg a = Get(head + at, count);
      const Reg b = Get(head + row.pairs + at, count);
      Put(head + at, Fma(a, cos, Negate(Mul(b, sin))), count);
      Put(head + row.pairs + at, Fma(b, cos, Mul(a, sin)), count);
    });
  }
}

// With every cosine twice and every sine as (-sin, sin), a register of pairs is one multiply and
// one fused multiply-add; the two tables are written once per row and used by all heads.
void RopeInterleaved(const RopeRow& row, float* x) {
  constexpr int kBlock = 128;  // pairs
  float cos[2 * kBlock];
  float sin[2 * kBlock];
  for (int begin = 0; begin < row.pairs; begin += kBlock) {
    const int pairs = row.pairs - begin < kBlock ? row.pairs - begin : kBlock;
    for (int i = 0; i < pairs; ++i) {
      cos[2 * i] = cos[2 * i + 1] = row.cos[begin + i];
      sin[2 * i] = -row.sin[begin + i];
      sin[2 * i + 1] = row.sin[begin + i];
    }
    for (int h = 0; h < row.heads; ++h) {
      float* head = x + static_cast<int64_t>(h) * row.head_dim + 2 * begin;
      ForRegs(2 * pairs, [&](int at, int count) {
        const Reg v = Get(head + at, count);
        const Reg turned = Mul(SwapPairs(v), Get(sin + at, count));
        Put(head + at, Fma(v, Get(cos + at, count), turned), count);
      });
    }
  }
}

float MaxOf(const float* x, int n) {
  Reg best[4];
  NIBBLE_UNROLL for (Reg& b : best) b = Set(-math_constants::kInfinity);
  int at = 0;
  for (; at + 4 * kWidth <= n; at += 4 * kWidth) {
    NIBBLE_UNROLL for (int i = 0; i < 4; ++i) best[i] = Max(Load(x + at + i * kWidth), best[i]);
  }
  for (; at + kWidth <= n; at += kWidth) best[0] = Max(Load(x + at), best[0]);
  float top = TreeMax(Max(Max(best[0], best[1]), Max(best[2], best[3])));
  for (; at < n; ++at) top = x[at] > top ? x[at] : top;
  return top + 0.0F;  // never -0, whatever order the lanes were compared in
}

double SumExp(const float* x, float offset, int64_t n) {
  constexpr int64_t kBlock = 1024;
  const Reg shift = Set(offset);
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = n - begin < kBlock ? n - begin : kBlock;
    const Lanes lanes = Accumulate(x + begin, count, [=](Reg v, Reg acc, int valid) {
      Reg e = Exp(Sub(v, shift));
      if (valid < kWidth) e = KeepN(e, valid);
      return Add(acc, e);
    });
    sum += static_cast<double>(Tree(lanes));
  }
  return sum;
}

double SumExpGap(const float* p, const float* q, float offset, float gap, int64_t n) {
  constexpr int64_t kBlock = 1024;
  const Reg shift = Set(offset);
  const Reg between = Set(gap);
  const Reg far = Set(1e30F);
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = n - begin < kBlock ? n - begin : kBlock;
    const Lanes lanes = AccumulateAt(count, [=](int64_t at, Reg acc, int valid) {
      const Reg a = Get(p + begin + at, valid);
      Reg away = Sub(Sub(a, Get(q + begin + at, valid)), between);
      away = Min(Max(away, Negate(far)), far);
      Reg e = Exp(Sub(a, shift));
      if (valid < kWidth) e = KeepN(e, valid);
      return Fma(e, away, acc);
    });
    sum += static_cast<double>(Tree(lanes));
  }
  return sum;
}

int Collect(const float* x, int n, float threshold, int32_t base, int32_t* ids, int capacity) {
  const Reg least = Set(threshold);
  int count = 0;
  int at = 0;
  for (; at + kWidth <= n && count < capacity; at += kWidth) {
    uint32_t bits = BitsAtLeast(Load(x + at), least);
    for (; bits != 0 && count < capacity; bits &= bits - 1) {
      ids[count++] = base + at + __builtin_ctz(bits);
    }
  }
  for (; at < n && count < capacity; ++at) {
    if (x[at] >= threshold) ids[count++] = base + at;
  }
  return count;
}

}  // namespace

extern const FloatKernels kFloatKernels;
const FloatKernels kFloatKernels = {
    .rms_norm = RmsNorm,
    .layer_norm = LayerNorm,
    .gate = {GateSilu, GateGeluTanh, GateGeluErf},
    .add = AddTo,
    .scale = Scale,
    .soft_cap = SoftCap,
    .rope_halves = RopeHalves,
    .rope_interleaved = RopeInterleaved,
    .max = MaxOf,
    .sum_exp = SumExp,
    .sum_exp_gap = SumExpGap,
    .collect = Collect,
};

}  // namespace nibble::NIBBLE_ISA_NS
