#include "quantize/imatrix_collector.h"

#include "base/check.h"
#include "model/config/model_tensors.h"

namespace nibble {
namespace {

// The decoder's name for the input of a linear layer.
std::string_view InputOf(Linear linear) {
  switch (linear) {
    case Linear::kQuery:
    case Linear::kKey:
    case Linear::kValue:
      return "qkv";
    case Linear::kOutput:
      return "output";
    case Linear::kGate:
    case Linear::kUp:
      return "gate_up";
    case Linear::kDown:
      return "down";
  }
  return "";
}

}  // namespace

void ImatrixCollector::Input(int layer, std::string_view linear, MatrixView<const float> x) {
  if (layer < 0) return;
  Sums& sums = sums_[{layer, std::string(linear)}];
  sums.squares.resize(static_cast<size_t>(x.cols));
  for (int r = 0; r < x.rows; ++r) {
    const float* row = x.row(r);
    for (size_t j = 0; j < sums.squares.size(); ++j) {
      sums.squares[j] += double{row[j]} * double{row[j]};
    }
  }
  sums.rows += x.rows;
}

Result<Imatrix> ImatrixCollector::Finish(const ModelTensors& tensors) const {
  Imatrix imatrix;
  for (size_t layer = 0; layer < tensors.layers.size(); ++layer) {
    for (size_t i = 0; i < kLinears; ++i) {
      const auto linear = static_cast<Linear>(i);
      const MatrixRef& matrix = tensors.layers[layer][linear].weight;
      if (!matrix || imatrix.Find(matrix.tensor->name) != nullptr) continue;
      const auto found = sums_.find({static_cast<int>(layer), std::string(InputOf(linear))});
      NIBBLE_CHECK(found != sums_.end());
      const Sums& sums = found->second;
      Imatrix::Entry entry = {.name = std::string(matrix.tensor->name),
                              .sums = {sums.squares.begin(), sums.squares.end()},
                              .count = static_cast<float>(sums.rows)};
      NIBBLE_RETURN_IF_ERROR(imatrix.Add(std::move(entry)));
    }
  }
  return imatrix;
}

}  // namespace nibble
