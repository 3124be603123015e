#pragma once

#include <vector>

#include "base/result.h"
#include "kernels/activations.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul.h"
#include "platform/memory.h"

namespace nibble {

class ThreadPool;

// One matrix product from a near cache, again and again: how fast the processors are just now. Who
// shares a core with others (hyperthreads of a virtual machine) is slowed by a quarter and more,
// and a loop that only multiplies does not show it.
class StateLoop {
 public:
  static constexpr Format kFormat = Format::kQ8_0;
  static constexpr int kRows = 16;

  static Result<StateLoop> Create(ThreadPool& pool, Isa isa);

  // Seconds of one product, over about a third of a millisecond.
  double Seconds();
  double weights() const { return static_cast<double>(weights_.rows()) * weights_.cols(); }

 private:
  StateLoop(ThreadPool& pool, Isa isa) : pool_(&pool), kernels_(&KernelsFor(isa)) {}
  void Multiply();

  ThreadPool* pool_;
  const KernelTable* kernels_;
  AlignedBuffer packed_;
  PackedMatrix weights_;
  std::vector<float> x_;
  std::vector<float> y_;
  ActivationBlock block_;
  int calls_ = 1;
};

}  // namespace nibble
