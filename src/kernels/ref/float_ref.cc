// The scalar truth of kernels/float_kernels.h: every vector form gives these bits.
//
// A reduction over n elements runs in 32 lanes: element i belongs to lane i mod 32 and is added to
// it in order of i; then one tree joins lanes i and i + 16, then i + 8, i + 4, i + 2, i + 1.
#include "kernels/ref/float_ref.h"

#include <cmath>
#include <limits>

#include "kernels/ref/math.h"

namespace nibble::ref {
namespace {

constexpr int kLanes = 32;

float Tree(const float (&lanes)[kLanes]) {
  float sum[kLanes];
  for (int i = 0; i < kLanes; ++i) sum[i] = lanes[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sum[i] = sum[i] + sum[i + half];
  }
  return sum[0];
}

void RmsNorm(const float* x, const float* weight, float eps, int n, float* y) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i % kLanes] = std::fma(x[i], x[i], lanes[i % kLanes]);
  const float mean = Tree(lanes) / static_cast<float>(n);
  const float inverse = 1.0F / std::sqrt(mean + eps);
  for (int i = 0; i < n; ++i) {
    const float z = x[i] * inverse;
    y[i] = weight != nullptr ? z * weight[i] : z;
  }
}

void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int n, float* y) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i % kLanes] = lanes[i % kLanes] + x[i];
  const float mean = Tree(lanes) / static_cast<float>(n);
  float squares[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    const float z = x[i] - mean;
    squares[i % kLanes] = std::fma(z, z, squares[i % kLanes]);
  }
  const float variance = Tree(squares) / static_cast<float>(n);
  const float inverse = 1.0F / std::sqrt(variance + eps);
  for (int i = 0; i < n; ++i) {
    const float z = (x[i] - mean) * inverse;
    y[i] = bias != nullptr ? std::fma(z, weight[i], bias[i]) : z * weight[i];
  }
}

template <class F>
void ApplyGate(const float* a, const float* b, int n, float* y, F&& gate) {
  for (int i = 0; i < n; ++i) {
    const float g = gate(a[i]);
    y[i] = b != nullptr ? g * b[i] : g;
  }
}

void GateSilu(const float* a, const float* b, int n, float* y) {
  ApplyGate(a, b, n, y, [](float x) { return x * Sigmoid(x); });
}

void GateGeluTanh(const float* a, const float* b, int n, float* y) {
  ApplyGate(a, b, n, y, [](float x) {
    using namespace math_constants;
    return x * Sigmoid(x * std::fma(kGeluB, x * x, kGeluA));
  });
}

void GateGeluErf(const float* a, const float* b, int n, float* y) {
  ApplyGate(a, b, n, y, [](float x) { return x * Phi(x); });
}

void Add(const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = y[i] + x[i];
}

void Scale(float factor, int n, float* x) {
  for (int i = 0; i < n; ++i) x[i] = x[i] * factor;
}

void SoftCap(float cap, int n, float* x) {
  for (int i = 0; i < n; ++i) x[i] = cap * Tanh(x[i] / cap);
}

void Rotate(float& x, float& y, float cos, float sin) {
  const float first = std::fma(x, cos, -(y * sin));
  y = std::fma(y, cos, x * sin);
  x = first;
}

void RopeHalves(const RopeRow& row, float* x) {
  for (int h = 0; h < row.heads; ++h) {
    float* head = x + static_cast<int64_t>(h) * row.head_dim;
    for (int i = 0; i < row.pairs; ++i) {
      Rotate(head[i], head[i + row.pairs], row.cos[i], row.sin[i]);
    }
  }
}

void RopeInterleaved(const RopeRow& row, float* x) {
  for (int h = 0; h < row.heads; ++h) {
    float* head = x + static_cast<int64_t>(h) * row.head_dim;
    for (int i = 0; i < row.pairs; ++i) {
      Rotate(head[2 * i], head[2 * i + 1], row.cos[i], row.sin[i]);
    }
  }
}

float Max(const float* x, int n) {
  float best = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best + 0.0F;  // never -0, whatever order the lanes were compared in
}

// Blocks of 1,024 elements are summed in float lanes and the tree, blocks in double: the relative
// error stays below (32 + 5) · 2^-24 plus that of Exp, whatever n.
double SumExp(const float* x, float offset, int64_t n) {
  constexpr int64_t kBlock = 1024;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    float lanes[kLanes] = {};
    for (int64_t i = begin; i < end; ++i) {
      lanes[i % kLanes] = lanes[i % kLanes] + Exp(x[i] - offset);
    }
    sum += static_cast<double>(Tree(lanes));
  }
  return sum;
}

// Blocks, lanes and error as in SumExp; an infinite logit counts as 1e30 away.
double SumExpGap(const float* p, const float* q, float offset, float gap, int64_t n) {
  constexpr int64_t kBlock = 1024;
  constexpr float kFar = 1e30F;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    float lanes[kLanes] = {};
    for (int64_t i = begin; i < end; ++i) {
      float away = p[i] - q[i] - gap;
      away = away > -kFar ? away : -kFar;
      away = away < kFar ? away : kFar;
      lanes[i % kLanes] = std::fma(Exp(p[i] - offset), away, lanes[i % kLanes]);
    }
    sum += static_cast<double>(Tree(lanes));
  }
  return sum;
}

int Collect(const float* x, int n, float threshold, int32_t base, int32_t* ids, int capacity) {
  int count = 0;
  for (int i = 0; i < n && count < capacity; ++i) {
    if (x[i] >= threshold) ids[count++] = base + i;
  }
  return count;
}

}  // namespace

const FloatKernels kFloatKernels = {
    .rms_norm = RmsNorm,
    .layer_norm = LayerNorm,
    .gate = {GateSilu, GateGeluTanh, GateGeluErf},
    .add = Add,
    .scale = Scale,
    .soft_cap = SoftCap,
    .rope_halves = RopeHalves,
    .rope_interleaved = RopeInterleaved,
    .max = Max,
    .sum_exp = SumExp,
    .sum_exp_gap = SumExpGap,
    .collect = Collect,
};

}  // namespace nibble::ref
