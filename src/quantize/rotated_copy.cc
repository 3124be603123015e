#include "quantize/rotated_copy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "model/config/model_file.h"
#include "model/weights.h"
#include "platform/thread_pool.h"
#include "quantize/gguf_output.h"
#include "quantize/rotation.h"

namespace nibble {
namespace {

constexpr std::string_view kOutputName = "output.weight";

// What happens to the rows of a stored matrix, or to a part of a vector; in this order.
struct RotationWork {
  int first = 0;
  int rows = 0;
  std::vector<float> fold = {};  // gains of the norm in front
  bool head_inputs = false;      // columns are values of heads
  bool head_outputs = false;     // rows are
  bool stream_inputs = false;
  bool stream_outputs = false;
};

struct TensorWork {
  bool ones = false;  // a norm whose gain has gone into matrices
  std::vector<RotationWork> parts;
};

class RotatedModel {
 public:
  // Error: a width without a Hadamard matrix.
  static Result<RotatedModel> Make(const ModelFile& model, uint64_t seed);

  // The tensor's new values.
  Status Rotate(const SourceTensor& tensor, bool as_output, std::vector<float>& values,
                ThreadPool& pool) const;

 private:
  RotatedModel(const ModelFile& model, const RotationPlan& plan, Rotation stream, Rotation head);
  void Add(const LinearRef& linear, const RotationWork& work);
  void AddLayer(const LayerTensors& layer, const RotationPlan& plan);
  void RotatePart(const RotationWork& work, MatrixView<float> rows, ThreadPool& pool) const;
  void RotateVector(const RotationWork& work, std::span<float> values) const;

  Rotation stream_;
  Rotation head_;
  std::map<const SourceTensor*, TensorWork> work_;
  RotationWork output_;  // also of an embedding that becomes the output
};

Result<RotatedModel> RotatedModel::Make(const ModelFile& model, uint64_t seed) {
  NIBBLE_TRY(const RotationPlan plan, PlanRotation(model.config()));
  NIBBLE_TRY(Rotation stream, Rotation::Make(model.config().width, seed));
  NIBBLE_TRY(Rotation head, Rotation::Make(model.config().head_dim, seed + 1));
  return RotatedModel(model, plan, std::move(stream), std::move(head));
}

RotatedModel::RotatedModel(const ModelFile& model, const RotationPlan& plan, Rotation stream,
                           Rotation head)
    : stream_(std::move(stream)), head_(std::move(head)) {
  const ModelTensors& tensors = model.tensors();
  output_ = {.fold = ReadVector(tensors.output_norm.weight), .stream_inputs = true};
  Add({.weight = tensors.embedding, .bias = {}}, {.stream_inputs = true});
  if (tensors.output.weight) Add({.weight = tensors.output.weight, .bias = {}}, output_);
  work_[tensors.output_norm.weight.tensor].ones = true;
  output_.rows = tensors.embedding.rows;
  for (const LayerTensors& layer : tensors.layers) AddLayer(layer, plan);
}

void RotatedModel::Add(const LinearRef& linear, const RotationWork& work) {
  if (!linear.weight) return;
  RotationWork own = work;
  own.first = linear.weight.first_row;
  own.rows = linear.weight.rows;
  work_[linear.weight.tensor].parts.push_back(own);
  if (linear.bias && (work.head_outputs || work.stream_outputs)) {
    own.first = linear.bias.first;
    own.rows = linear.bias.size;
    work_[linear.bias.tensor].parts.push_back(own);
  }
}

void RotatedModel::AddLayer(const LayerTensors& layer, const RotationPlan& plan) {
  for (const RotationStep& step : plan.stream) {
    RotationWork work;
    work.stream_inputs = step.side == RotationSide::kInputs;
    work.stream_outputs = !work.stream_inputs;
    if (step.fold) work.fold = ReadVector(layer[*step.fold].weight);
    work.head_outputs = step.linear == Linear::kValue;
    work.head_inputs = step.linear == Linear::kOutput;
    Add(layer[step.linear], work);
  }
  for (const Norm norm : {Norm::kAttention, Norm::kFfn}) {
    if (layer[norm].weight) work_[layer[norm].weight.tensor].ones = true;
  }
}

void RotatedModel::RotatePart(const RotationWork& work, MatrixView<float> rows,
                              ThreadPool& pool) const {
  if (!work.fold.empty()) FoldNorm({.gain = work.fold}, rows, {});
  if (work.stream_inputs) stream_.RotateInputs(rows, pool);
  if (work.stream_outputs) stream_.RotateOutputs(rows, {}, pool);
  const int dim = head_.size();
  for (int first = 0; work.head_outputs && first < rows.rows; first += dim) {
    head_.RotateOutputs({rows.row(first), dim, rows.cols, rows.stride}, {}, pool);
  }
  for (int first = 0; work.head_inputs && first < rows.cols; first += dim) {
    head_.RotateInputs({rows.data + first, rows.rows, dim, rows.stride}, pool);
  }
}

void RotatedModel::RotateVector(const RotationWork& work, std::span<float> values) const {
  const Rotation& rotation = work.stream_outputs ? stream_ : head_;
  std::vector<double> piece(static_cast<size_t>(rotation.size()));
  for (size_t first = 0; first < values.size(); first += piece.size()) {
    const auto own = values.subspan(first, piece.size());
    std::ranges::copy(own, piece.begin());
    rotation.Apply(piece.data());
    std::ranges::transform(piece, own.begin(), [](double x) { return static_cast<float>(x); });
  }
}

Status RotatedModel::Rotate(const SourceTensor& tensor, bool as_output, std::vector<float>& values,
                            ThreadPool& pool) const {
  const auto cols = static_cast<size_t>(tensor.cols());
  const auto rows = static_cast<size_t>(tensor.rows());
  const FormatTraits& from = TraitsOf(*tensor.format);
  values.resize(rows * cols);
  pool.ParallelFor(static_cast<int64_t>(rows), 1, [&](int64_t begin, int64_t end, int) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      from.decode(tensor.bytes.data() + r * from.RowBytes(cols), values.data() + r * cols, cols);
    }
  });
  const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (bad != values.end()) {
    const auto at = static_cast<size_t>(bad - values.begin());
    return BadInput("'{}' row {} column {}: expected a finite weight, found {}", tensor.name,
                    at / cols, at % cols, *bad);
  }
  const auto view = [&](const RotationWork& work) {
    return DenseView(values.data() + static_cast<size_t>(work.first) * cols, work.rows,
                     static_cast<int>(cols));
  };
  if (as_output) {
    RotatePart(output_, view(output_), pool);
    return {};
  }
  const auto found = work_.find(&tensor);
  if (found == work_.end()) return {};
  if (found->second.ones) std::ranges::fill(values, 1.0F);
  for (const RotationWork& work : found->second.parts) {
    if (tensor.rank > 1) {
      RotatePart(work, view(work), pool);
    } else {
      RotateVector(work, std::span(values).subspan(static_cast<size_t>(work.first),
                                                   static_cast<size_t>(work.rows)));
    }
  }
  return {};
}

Status SetRotatedMetadata(const ModelFile& model, uint64_t seed, GgufWriter& writer) {
  for (const GgufEntry& entry : model.gguf()->metadata()) {
    const bool replaced = entry.key == "general.file_type" || entry.key == kCardKey ||
                          entry.key == "general.quantization_version" ||
                          entry.key == "general.alignment" || entry.key.starts_with("split.");
    if (!replaced) NIBBLE_RETURN_IF_ERROR(writer.Copy(entry));
  }
  writer.SetUint32("general.file_type", 0);
  writer.SetUint64("nibble.rotation.seed", seed);
  return {};
}

}  // namespace

Status CheckRotation(const ModelFile& model) {
  const ModelConfig& config = model.config();
  if (!model.is_gguf()) {
    return BadInput(
        "{}: a GGUF file is expected; `nibble quantize FOLDER OUT.gguf --to f32` makes "
        "one",
        model.path().string());
  }
  if (config.norm == NormKind::kLayer || config.learned_positions) {
    return BadInput("rotation: {} has LayerNorms, whose means no rotation leaves alone",
                    config.architecture);
  }
  for (const SourceTensor& tensor : model.source().tensors()) {
    if (!tensor.format || tensor.linear != nullptr) {
      return BadInput("'{}' is {}, which cannot be rotated", tensor.name, tensor.type_name);
    }
  }
  for (const LayerTensors& layer : model.tensors().layers) {
    for (const LinearRef& linear : layer.linears) {
      if (linear.weight && linear.weight.transposed) {
        return BadInput("'{}' is stored the other way round", linear.weight.tensor->name);
      }
    }
  }
  const auto made = RotatedModel::Make(model, 0);
  return made ? Status{} : std::unexpected(made.error());
}

Status WriteRotatedCopy(const ModelFile& model, const std::filesystem::path& path,
                        const RotatedCopyOptions& options, ThreadPool& pool) {
  NIBBLE_RETURN_IF_ERROR(CheckRotation(model));
  NIBBLE_TRY(const RotatedModel rotated, RotatedModel::Make(model, options.seed));
  GgufWriter writer;
  NIBBLE_RETURN_IF_ERROR(SetRotatedMetadata(model, options.seed, writer));
  struct Written {
    const SourceTensor* tensor;
    bool as_output;
  };
  std::vector<Written> all;
  for (const SourceTensor& tensor : model.source().tensors()) all.push_back({&tensor, false});
  const ModelTensors& tensors = model.tensors();
  if (!tensors.output.weight) all.push_back({tensors.embedding.tensor, true});
  for (const Written& one : all) {
    const SourceTensor& tensor = *one.tensor;
    NIBBLE_RETURN_IF_ERROR(
        writer.AddTensor(one.as_output ? kOutputName : tensor.name, Format::kF32,
                         std::span(tensor.shape).first(static_cast<size_t>(tensor.rank))));
  }
  NIBBLE_TRY(TensorStream out, writer.Begin(path));
  double done = 0;
  std::vector<float> values;
  for (const Written& one : all) {
    NIBBLE_RETURN_IF_ERROR(rotated.Rotate(*one.tensor, one.as_output, values, pool));
    NIBBLE_RETURN_IF_ERROR(out.Append(std::as_bytes(std::span(values))));
    done += 1;
    if (options.progress)
      options.progress(done / static_cast<double>(all.size()), one.tensor->name);
  }
  NIBBLE_TRY(OutputFile file, out.Complete());
  return file.Commit();
}

}  // namespace nibble
