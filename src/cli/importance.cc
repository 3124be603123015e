#include "cli/importance.h"

#include <fmt/format.h>

#include <map>

#include "base/sha256.h"
#include "cli/calibration.h"
#include "cli/output.h"
#include "cli/quantize_job.h"
#include "fetch/paths.h"
#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "platform/cpu.h"
#include "quantize/imatrix_collector.h"
#include "quantize/layer_inputs.h"
#include "quantize/tensor_view.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

// Columns stay where they are when a model becomes a GGUF file; only names change.
Result<Imatrix> UnderGgufNames(const Imatrix& stored, const ModelFile& file) {
  NIBBLE_TRY(const std::vector<TensorView> views, GgufTensors(file));
  std::map<std::string_view, std::string_view> names;
  for (const TensorView& view : views) {
    if (view.tensor != nullptr) names[view.tensor->name] = view.name;
  }
  Imatrix renamed;
  for (Imatrix::Entry entry : stored.entries()) {
    if (const auto name = names.find(entry.name); name != names.end()) entry.name = name->second;
    NIBBLE_RETURN_IF_ERROR(renamed.Add(std::move(entry)));
  }
  return renamed;
}

// With one layer of the model in memory.
Result<Importance> Collect(const QuantizeJob& job) {
  NIBBLE_TRY(const Calibration text, ReadCalibration(job.flags, job.own.importance, job.tokenizer,
                                                     job.model.config().context_length));
  LayerInputsOptions options;
  options.sequences = text.sequences;
  NIBBLE_TRY(options.memory, ParseSize(job.own.calib_memory));
  options.folder = std::filesystem::absolute(job.own.out).parent_path();
  Progress progress("calibrate", !job.flags.quiet);
  options.progress = [&](double done, const std::string& what) { progress.Update(done, what); };
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  ImatrixCollector collector;
  NIBBLE_RETURN_IF_ERROR(ReadLayerInputs(job.model, options, KernelsFor(isa), job.pool, collector));
  NIBBLE_TRY(const Imatrix stored, collector.Finish(job.model.tensors()));
  Importance result;
  NIBBLE_TRY(result.matrix, UnderGgufNames(stored, job.model));
  result.matrix.SetOrigin({.texts = {text.card.name},
                           .chunks = static_cast<uint32_t>(text.card.sequences),
                           .chunk_tokens = static_cast<uint32_t>(text.card.length)});
  result.card = {.kind = "text",
                 .name = text.card.name,
                 .sha256 = text.card.sha256,
                 .tokens = int64_t{text.card.sequences} * text.card.length};
  return result;
}

Result<Importance> Read(const std::string& path) {
  Importance result;
  NIBBLE_TRY(result.matrix, Imatrix::Read(path));
  NIBBLE_TRY(const std::string sha256, HashFile(path));
  const Imatrix::Origin& origin = result.matrix.origin();
  result.card = {.kind = "imatrix",
                 .name = std::filesystem::path(path).filename().string(),
                 .sha256 = sha256,
                 .tokens = int64_t{origin.chunks} * origin.chunk_tokens};
  return result;
}

}  // namespace

Result<std::optional<Importance>> FindImportance(const QuantizeJob& job) {
  const ImportanceFlags& own = job.own.importance;
  if (!own.calib.empty() && !own.imatrix.empty()) {
    return BadInput("--calib and --imatrix: expected one of them, found both");
  }
  if (!own.save.empty() && own.calib.empty()) {
    return BadInput("--save-imatrix: expected a text with --calib to collect it on");
  }
  if (!own.imatrix.empty()) {
    NIBBLE_TRY(Importance read, Read(own.imatrix));
    return read;
  }
  if (own.calib.empty()) return std::nullopt;
  NIBBLE_TRY(Importance collected, Collect(job));
  if (!own.save.empty()) NIBBLE_RETURN_IF_ERROR(collected.matrix.Write(own.save));
  return collected;
}

}  // namespace nibble::cli
