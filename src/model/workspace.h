#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kernels/activations.h"
#include "kernels/attention.h"
#include "model/config.h"
#include "model/config/model_tensors.h"
#include "platform/memory.h"
#include "tensor/matrix.h"

namespace nibble {

// What the size of a workspace depends on.
struct WorkspaceShape {
  int max_rows = 0;
  int threads = 1;
  int logit_rows = 0;  // rows of one block of logits
  ActNeeds needs;      // union over all linears
  int max_inputs = 0;  // widest input of a linear
  AttentionShape attention;
};

WorkspaceShape MakeWorkspaceShape(const ModelConfig& config, const ModelTensors& tensors, Act act,
                                  int max_rows, int threads);
AttentionShape MakeAttentionShape(const ModelConfig& config, int layer);

// Every buffer that a step writes, allocated once. Rows beyond the step's are unused.
struct Workspace {
  float* hidden = nullptr;   // [max_rows][width] residual stream
  float* normed = nullptr;   // [max_rows][width] input of a block's linears, or their output
  float* query = nullptr;    // [max_rows][heads · head_dim]
  float* key = nullptr;      // [max_rows][kv_heads · head_dim]
  float* value = nullptr;    // [max_rows][kv_heads · head_dim]
  float* context = nullptr;  // [max_rows][heads · head_dim] output of attention
  float* gate = nullptr;     // [max_rows][ffn_width]
  float* up = nullptr;       // [max_rows][ffn_width], gated models only
  float* head = nullptr;     // [logit_rows][width]
  float* logits = nullptr;   // [logit_rows][vocabulary]
  struct RopeRows {
    float* cos = nullptr;  // [max_rows][pairs], one row per row of the step
    float* sin = nullptr;
  };
  std::vector<RopeRows> ropes;
  ActivationBlock activations;
  AttentionWorkspace attention;

  // Of everything above but the rope rows, and of the rope rows.
  static size_t Bytes(const ModelConfig& config, const WorkspaceShape& shape);
  static size_t RopeBytes(const ModelConfig& config, const WorkspaceShape& shape);
  Status Reserve(const ModelConfig& config, const WorkspaceShape& shape);

 private:
  AlignedBuffer storage_;
};

}  // namespace nibble
