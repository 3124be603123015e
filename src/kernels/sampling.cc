#include "kernels/sampling.h"

#include <algorithm>
#include <limits>

#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"

namespace nibble {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

int Size(std::span<const float> x) { return static_cast<int>(x.size()); }

// Room for `count` more at the end, filled by fn(pointer), which returns how many it wrote.
template <class F>
void Append(std::vector<int32_t>& ids, int count, F&& fn) {
  const size_t before = ids.size();
  ids.resize(before + static_cast<size_t>(count));
  ids.resize(before + static_cast<size_t>(fn(ids.data() + before)));
}

}  // namespace

float MaxLogit(const KernelTable& kernels, std::span<const float> logits) {
  return kernels.floats->max(logits.data(), Size(logits));
}

int ArgMaxLogit(const KernelTable& kernels, std::span<const float> logits) {
  // Two passes: the second ends at the first element that equals the maximum.
  const float best = MaxLogit(kernels, logits);
  if (best == kNothing) return 0;
  int32_t id = 0;
  kernels.floats->collect(logits.data(), Size(logits), best, 0, &id, 1);
  return id;
}

void CollectAtLeast(const KernelTable& kernels, std::span<const float> logits, float threshold,
                    std::vector<int32_t>& ids) {
  constexpr int kBlock = 4096;
  for (int begin = 0; begin < Size(logits); begin += kBlock) {
    const int count = std::min(kBlock, Size(logits) - begin);
    Append(ids, count, [&](int32_t* out) {
      return kernels.floats->collect(logits.data() + begin, count, threshold, begin, out, count);
    });
  }
}

void SelectTopK(const KernelTable& kernels, std::span<const float> logits, int k,
                std::vector<int32_t>& ids) {
  ids.clear();
  const int n = Size(logits);
  k = std::min(k, n);
  if (k <= 0) return;
  // About four blocks per wanted logit keep the number of survivors near k.
  const int block = std::clamp(n / (4 * k), 1, 512);
  const int blocks = (n + block - 1) / block;
  std::vector<float> maxima(static_cast<size_t>(blocks));
  for (int b = 0; b < blocks; ++b) {
    maxima[b] = kernels.floats->max(logits.data() + b * block, std::min(block, n - b * block));
  }
  std::vector<float> ordered = maxima;
  const int rank = std::min(k, blocks) - 1;
  std::nth_element(ordered.begin(), ordered.begin() + rank, ordered.end(), std::greater<>());
  const float threshold = blocks >= k ? ordered[rank] : kNothing;
  for (int b = 0; b < blocks; ++b) {
    if (!(maxima[b] >= threshold)) continue;
    const int begin = b * block;
    const int count = std::min(block, n - begin);
    Append(ids, count, [&](int32_t* out) {
      return kernels.floats->collect(logits.data() + begin, count, threshold, begin, out, count);
    });
  }
  const auto before = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const auto wanted = std::min(static_cast<size_t>(k), ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(wanted), ids.end(), before);
  ids.resize(wanted);
}

}  // namespace nibble
