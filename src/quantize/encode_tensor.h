#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "format/format.h"
#include "quantize/tensor_view.h"
#include "tensor/matrix.h"

namespace nibble {

class ModelFile;
class ThreadPool;

using AppendBytes = std::function<Status(std::span<const std::byte>)>;

// What a tensor lost. Sums over all its weights.
struct EncodeLoss {
  double squared_error = 0;  // of the decoded codes against the source
  double squares = 0;        // of the source
  float largest = 0;         // magnitude
  uint64_t weights = 0;

  // Root mean square error over the root mean square weight; 0 for an empty or zero tensor.
  double RelativeError() const;
  // The largest magnitude over the root mean square one.
  double OutlierRatio() const;
};

// Of whole matrices of one shape. The sum does not depend on the threads.
EncodeLoss MeasureLoss(MatrixView<const float> source, MatrixView<const float> decoded,
                       ThreadPool& pool);

// A target format, and what an error in each column costs: [columns], or empty where that is not
// known. Formats that it would not change leave it.
struct EncodeTarget {
  Format format = Format::kF32;
  std::span<const float> importance = {};
};

// Decodes a tensor's rows, encodes them in another format and hands them on, all threads at once, a
// few MB at a time. progress: called with the number of weights done since the last call. Errors:
// a weight that is NaN or infinite (tensor, row and column), those of append.
Result<EncodeLoss> EncodeTensor(const TensorView& tensor, const EncodeTarget& to, ThreadPool& pool,
                                const AppendBytes& append,
                                const std::function<void(uint64_t weights)>& progress);

// Error: a tensor of the model has a weight that is NaN or infinite (its name, row and column as
// they are stored). Before anything is computed: behind it only sums would be left that tell of no
// weight. leave_out: tensors that others look at.
Status CheckFiniteWeights(const ModelFile& model, ThreadPool& pool,
                          const std::function<bool(const SourceTensor&)>& leave_out = {});

// Error: a finite weight became none in `type`, whose scales cannot be so large.
Status CheckFiniteLoss(const EncodeLoss& loss, std::string_view tensor, std::string_view type);

}  // namespace nibble
