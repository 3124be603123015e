#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/config/architecture.h"
#include "quantize/hadamard_matrix.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// The offline parts of QuaRot (Ashkboos et al. 2024, arXiv 2404.00456): an RMS norm without a gain
// commutes with any orthogonal Q, so that the stream between the layers may be rotated, which
// spreads its outliers over all channels. All in double precision.

// Q = (H / √n) · diag(signs), signs keyed by the seed.
class Rotation {
 public:
  // Error: FindHadamard's.
  static Result<Rotation> Make(int n, uint64_t seed);

  int size() const { return factors_.size(); }

  // W ← W · Q: the inputs of w [rows][n] are rotated (q, k, v, gate, up, lm_head, the embedding).
  void RotateInputs(MatrixView<float> w, ThreadPool& pool) const;
  // W ← Qᵀ · W, and the bias [n] (empty: none): the outputs of w [n][cols] are (o, down).
  void RotateOutputs(MatrixView<float> w, std::span<float> bias, ThreadPool& pool) const;

  // v ← v · Q of one vector [n].
  void Apply(double* v) const;

 private:
  HadamardFactors factors_;
  std::vector<double> column_factors_;  // [n] ±1 / √n
};

// Value and output matrix of one layer, each head rotated in between: v [kv_heads · head_dim][·],
// its bias, o [·][heads · head_dim]. The rotation's size is head_dim.
struct ValuePath {
  MatrixView<float> v;
  std::span<float> v_bias = {};
  MatrixView<float> o;
};
void RotateHeads(const Rotation& rotation, const ValuePath& path, ThreadPool& pool);

// Columns of a consumer times the gains of the norm before it; the norm's own gain is then to be 1
// (0 where it is stored less 1). A norm's bias goes into the consumer's: bias += W · norm_bias.
struct NormFold {
  std::span<const float> gain;
  std::span<const float> norm_bias = {};
  bool plus_one = false;  // the gain is 1 + what is stored
};
void FoldNorm(const NormFold& norm, MatrixView<float> w, std::span<float> bias);

// A LayerNorm is an RMS norm of what has no mean: takes the mean over the outputs out of everything
// that writes to the stream. w: [n][cols], bias: [n] or empty.
void RemoveOutputMean(MatrixView<float> w, std::span<float> bias);
// The same of an embedding or of positions, whose rows are vectors of the stream: [tokens][n].
void RemoveRowMeans(MatrixView<float> w);

// What happens to which matrix, in order, for a model with layers of this kind.
enum class RotationSide : uint8_t { kInputs, kOutputs };
struct RotationStep {
  Linear linear;
  RotationSide side;
  std::optional<Norm> fold = {};  // the norm whose gain goes into it first
};
struct RotationPlan {
  std::vector<RotationStep> stream;  // of every layer
  bool untie = false;       // embedding and output must part: the last norm goes into the output
  bool layer_norm = false;  // means must go first, and the norms become RMS norms
  bool positions = false;   // learned positions are rotated as the embedding is
};
// Errors: a norm behind attention or FFN (Gemma 2, 3), whose gain stands between a matrix and the
// stream; a width without a Hadamard matrix.
Result<RotationPlan> PlanRotation(const ModelConfig& config);

}  // namespace nibble
