#pragma once

#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "kernels/activations.h"
#include "kernels/kv_view.h"
#include "platform/memory.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;
struct KernelTable;

struct AttentionShape {
  int heads = 0;  // query heads; head h reads KV head h / (heads / kv_heads)
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0;     // of q·k
  float soft_cap = 0;  // 0: none; else s = cap · tanh(s / cap), after scale
  int window = 0;      // 0: all earlier positions; else the last `window` ones, own included
  const float* sinks = nullptr;  // [heads] extra logit per head in the denominator, or none
  // kInt8: products with sealed keys and values are integer where their format has them; kF32:
  // float products with what the pages stand for. Open pages: float.
  Act act = Act::kInt8;
};

// The rows of one sequence in a ragged batch: rows [row_begin, row_begin + rows) have the positions
// first, first + 1, …; their keys and values are already in the pages.
struct AttentionSequence {
  int row_begin = 0;
  int rows = 0;
  Position first;
  KvView kv;
};

// One step's rows, [rows][heads * head_dim] each.
struct AttentionBatch {
  std::span<const AttentionSequence> sequences;
  MatrixView<const float> q;
  MatrixView<float> out;
};

// Scratch whose size depends on the shape and the thread count only, never on context length.
class AttentionWorkspace {
 public:
  static size_t Bytes(const AttentionShape& shape, int threads);
  Status Reserve(const AttentionShape& shape, int threads);
  AlignedBuffer& buffer() { return buffer_; }

 private:
  AlignedBuffer buffer_;
};

// Appends keys and values [row][kv_head * head_dim] of the sequence's rows to its pages; f16 stores
// saturate. A NaN among them makes the outputs NaN of all who see that position, and, sealed in a
// format whose scale covers a page, that page. The rest of a fresh page is zeroed when its first
// position is written. Units that the rows complete are sealed (kernels/kv_view.h).
void WriteKv(const KernelTable& kernels, ThreadPool& pool,
             std::span<const AttentionSequence> sequences, MatrixView<const float> k,
             MatrixView<const float> v);

// out[row][h * head_dim ...] = softmax(scale · q kᵀ, causal, windowed) v for every row: tiled with
// online softmax over pages from position 0 on, one result per (row, head) whose bits depend on
// that row's query and pages only.
void Attention(const KernelTable& kernels, ThreadPool& pool, const AttentionShape& shape,
               const AttentionBatch& batch, AttentionWorkspace& workspace);

}  // namespace nibble
