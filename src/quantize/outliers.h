#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/decoder.h"
#include "quantize/tensor_view.h"

namespace nibble {

class ThreadPool;

// The weights that share a scale.
enum class ScaleSharing : uint8_t { kTensor, kChannel, kGroup128, kGroup64, kGroup32 };
inline constexpr size_t kScaleSharings = 5;
std::string_view NameOf(ScaleSharing sharing);  // "tensor", "group 128"

// Mean |ŵ − w| over mean |w| of symmetric codes, scale = largest magnitude / 127 (8 bits) or / 7
// (4 bits). 1: as if all had become 0.
struct SharingErrors {
  std::array<double, kScaleSharings> int8 = {};
  std::array<double, kScaleSharings> int4 = {};
};

// A channel's largest magnitude over the typical one of the whole, which is the mean magnitude: a
// single outlier moves the mean hardly, and 5.4 is usual among 65,536 normal values.
struct ChannelRatio {
  int64_t channel = 0;
  double ratio = 0;
};
struct ChannelRatios {
  std::vector<ChannelRatio> worst;  // up to 8, largest first
  double median = 0;                // of all channels
};

struct TensorOutliers {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  double typical = 0;     // mean magnitude
  double ratio = 0;       // largest magnitude / typical
  ChannelRatios outputs;  // rows
  ChannelRatios inputs;   // columns
  SharingErrors errors;

  // One scale for all would destroy it: codes of 8 bits lose a tenth of the typical magnitude,
  // which a scale per channel does not.
  bool DestroyedByOneScale() const;
};

// Reads a matrix twice. Errors: a weight that is NaN or infinite (row and column).
Result<TensorOutliers> FindOutliers(const TensorView& tensor, ThreadPool& pool);

// What the inputs of one linear layer (or of several that read the same) look like.
struct ActivationOutliers {
  int layer = 0;  // -1: the head
  std::string linear;
  int64_t tokens = 0;
  double typical = 0;      // mean magnitude
  double ratio = 0;        // largest magnitude / typical
  ChannelRatios channels;  // inputs
  int64_t above_six = 0;   // channels with an |x| >= 6, LLM.int8()'s threshold
  // Of kTensor a scale fixed beforehand, from the largest of all; of kChannel a scale per token;
  // groups within a token.
  SharingErrors errors;

  bool DestroyedByOneScale() const;  // as of weights, against a scale per token
};

// Collects them while a decoder computes a text. The first rows of each linear are kept until the
// largest magnitudes are known, so that errors are those of at most kKeptRows rows.
class ActivationTap : public LinearTap {
 public:
  static constexpr int kKeptRows = 256;

  void Input(int layer, std::string_view linear, MatrixView<const float> x) override;
  // In the order of the layers, the head last.
  std::vector<ActivationOutliers> Finish() const;

 private:
  struct Seen {
    int64_t rows = 0;
    std::vector<float> maxima;  // [columns]
    double magnitudes = 0;
    std::vector<float> kept;  // [rows][columns]
  };
  std::map<std::pair<int, std::string>, Seen> seen_;
};

}  // namespace nibble
