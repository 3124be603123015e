#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "cli/output.h"
#include "cli/quantize_floats.h"
#include "cli/quantize_job.h"
#include "container/hf_folder_writer.h"
#include "container/hf_scheme.h"
#include "container/safetensors.h"
#include "quantize/hf_folder.h"
#include "quantize/hf_target.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

// The scheme that --to names, with --group, --granularity and --sym or --asym in place of its own.
Result<HfScheme> SchemeOf(const QuantizeJob& job) {
  const bool bf16 = std::ranges::any_of(job.model.source().tensors(), [](const SourceTensor& t) {
    return t.format == Format::kBF16;
  });
  NIBBLE_TRY(HfScheme scheme, HfSchemeFromName(job.own.to, bf16));
  const QuantizeFlags& own = job.own;
  const bool fp8 = scheme.layout == HfLayout::kFloatQuantized;
  if (fp8 && (own.group > 0 || own.granularity == "group")) {
    return BadInput("--granularity group: {} has one scale a matrix or a row", own.to);
  }
  if (fp8 && (own.sym || own.asym || own.mse)) {
    return BadInput("--sym, --asym, --mse: {} has neither zero points nor a grid", own.to);
  }
  if (own.group > 0) scheme.group = own.group;
  if (own.granularity == "channel") scheme.group = 0;
  if (own.granularity == "group" && scheme.group == 0) scheme.group = 128;
  if (fp8 && !own.granularity.empty()) {
    scheme.tensor_scale = own.granularity == "tensor";
  } else if (own.granularity == "tensor") {
    if (scheme.group != 0) {
      return BadInput("--granularity tensor: only for w8a8, llm-int8 and fp8; {} has groups",
                      job.own.to);
    }
    scheme.equal_scales = true;
  }
  if (own.sym) scheme.symmetric = true;
  if (own.asym) scheme.symmetric = false;
  const bool gptq = job.recipe.rounding == Rounding::kGptq;
  scheme.act_order = gptq && job.recipe.act_order && !job.recipe.static_groups && scheme.group > 0;
  scheme.static_groups = job.recipe.static_groups;
  scheme.damp_percent = job.recipe.damping;
  scheme.true_sequential = gptq;
  scheme.outlier_threshold = job.recipe.threshold;
  return scheme;
}

// For the card, which has to tell two grids of one layout apart.
std::string DescribeGrid(const HfScheme& scheme) {
  std::string text = fmt::format("{} bits, ", scheme.bits);
  const bool matrix = scheme.tensor_scale || scheme.equal_scales;
  text += scheme.group > 0 ? fmt::format("groups of {}", scheme.group)
                           : std::string(matrix ? "a scale a matrix" : "a scale a row");
  if (scheme.layout == HfLayout::kFloatQuantized) return text;
  return text + (scheme.symmetric ? ", symmetric" : ", asymmetric");
}

// Every tensor of the folder in its order, with its bytes from `offset` on: the largest come in
// pieces. Without bytes each comes once, empty.
using TakeTensor = std::function<Status(const HfTensor& tensor, uint64_t offset,
                                        std::span<const std::byte> bytes)>;

constexpr size_t kPieceBytes = size_t{4} << 20;

// A kept tensor's bytes, whose pages of the source go back to the system.
Status ForPieces(const ModelFile& model, const SourceTensor& tensor, const HfTensor& head,
                 const TakeTensor& take) {
  const MappedFile& file = model.files()[static_cast<size_t>(tensor.file)];
  const auto at = static_cast<size_t>(tensor.bytes.data() - file.bytes().data());
  for (size_t done = 0; done < tensor.bytes.size(); done += kPieceBytes) {
    const auto piece =
        tensor.bytes.subspan(done, std::min(kPieceBytes, tensor.bytes.size() - done));
    NIBBLE_RETURN_IF_ERROR(take(head, done, piece));
    file.Drop(at + done, piece.size());
  }
  return {};
}

Status ForTensors(const ModelFile& model, const HfTarget& target, const TensorStore& store,
                  bool with_bytes, const TakeTensor& take) {
  for (const SourceTensor& tensor : model.source().tensors()) {
    if (target.Quantises(tensor)) {
      const auto heads =
          HfLinearTensors(target.scheme(), HfTarget::ModuleOf(tensor),
                          static_cast<int>(tensor.rows()), static_cast<int>(tensor.cols()));
      std::vector<std::vector<std::byte>> bytes(heads.size());
      if (with_bytes) {
        NIBBLE_TRY(bytes, target.Encoded(tensor));
      }
      for (size_t i = 0; i < heads.size(); ++i) {
        NIBBLE_RETURN_IF_ERROR(take(heads[i], 0, bytes[i]));
      }
      continue;
    }
    const HfTensor head = {.name = std::string(tensor.name),
                           .dtype = tensor.type_name,
                           .shape = {tensor.shape.begin(), tensor.shape.begin() + tensor.rank}};
    const TensorStore::Record* other = store.Find(tensor.name);
    if (!with_bytes) {
      NIBBLE_RETURN_IF_ERROR(take(head, 0, {}));
    } else if (other == nullptr) {
      NIBBLE_RETURN_IF_ERROR(ForPieces(model, tensor, head, take));
    } else {
      std::vector<std::byte> changed(other->bytes);
      NIBBLE_RETURN_IF_ERROR(store.Read(*other, 0, changed));
      NIBBLE_RETURN_IF_ERROR(take(head, 0, changed));
    }
  }
  return {};
}

// Reads the folder back: every tensor must hold what was to be written.
Status ReadBack(const ModelFile& model, const HfTarget& target, const TensorStore& store,
                const fs::path& folder) {
  NIBBLE_TRY(const SafetensorsModel read, SafetensorsModel::Open(folder));
  const TakeTensor compare = [&](const HfTensor& tensor, uint64_t offset,
                                 std::span<const std::byte> bytes) -> Status {
    const SourceTensor* found = read.tensors().Find(tensor.name);
    const bool whole = found != nullptr && offset + bytes.size() <= found->bytes.size();
    if (!whole || !std::ranges::equal(found->bytes.subspan(offset, bytes.size()), bytes)) {
      return IoError("{}: read back, {} is not what was written", folder.string(), tensor.name);
    }
    const MappedFile& file = read.files()[static_cast<size_t>(found->file)];
    file.Drop(static_cast<size_t>(found->bytes.data() - file.bytes().data()) + offset,
              bytes.size());
    return {};
  };
  return ForTensors(model, target, store, true, compare);
}

Result<HfFolderWriter> WriteFolder(const QuantizeJob& job, const HfTarget& target,
                                   const TensorStore& store) {
  NIBBLE_TRY(HfFolderWriter writer,
             HfFolderWriter::Create(job.own.out, {.replace = job.own.force}));
  NIBBLE_RETURN_IF_ERROR(
      ForTensors(job.model, target, store, false,
                 [&](const HfTensor& tensor, uint64_t, std::span<const std::byte>) {
                   return writer.AddTensor(tensor);
                 }));
  NIBBLE_RETURN_IF_ERROR(writer.Begin());
  NIBBLE_RETURN_IF_ERROR(
      ForTensors(job.model, target, store, true,
                 [&](const HfTensor&, uint64_t, std::span<const std::byte> bytes) {
                   return writer.Append(bytes);
                 }));
  std::error_code ignored;
  const fs::path from = fs::is_directory(job.in, ignored) ? job.in : job.in.parent_path();
  NIBBLE_TRY(const std::string config, ReadTextFile((from / "config.json").string()));
  NIBBLE_TRY(const std::string quantised,
             HfConfigWithQuantization(config, target.scheme(), target.kept()));
  NIBBLE_RETURN_IF_ERROR(writer.WriteText("config.json", quantised));
  for (const std::string_view name : HfFilesBeside()) {
    if (fs::exists(from / name, ignored)) {
      NIBBLE_RETURN_IF_ERROR(writer.CopyFile(from / name));
    }
  }
  NIBBLE_RETURN_IF_ERROR(writer.Finish());
  return writer;
}

// Fills the store.
Status Run(const QuantizeJob& job, const Calibration& calibration, HfTarget& target,
           MadeModel& made) {
  made.notes = target.notes();
  NIBBLE_TRY(CalibratedResult run, RunCalibrated(job, calibration, target));
  std::ranges::move(run.notes, std::back_inserter(made.notes));
  return {};
}

void Report(const ModelFile& model, const HfTarget& target, const TensorStore& store,
            MadeModel& made) {
  for (const SourceTensor& tensor : model.source().tensors()) {
    TensorReport report = {.name = std::string(tensor.name),
                           .from = *tensor.format,
                           .to = *tensor.format,
                           .note = {},
                           .loss = {}};
    if (target.Quantises(tensor)) {
      report.type = made.to;
      ReadLossNote(store.Find(tensor.name)->note, report);
    }
    made.tensors.push_back(std::move(report));
  }
}

}  // namespace

Result<MadeModel> QuantizeToFolder(const QuantizeJob& job) {
  if (FloatsOfFolder(job.own)) return QuantizeToFloatFolder(job);
  NIBBLE_TRY(const HfScheme scheme, SchemeOf(job));
  MadeModel made;
  made.to = job.own.to;
  made.grid = DescribeGrid(scheme);
  Calibration calibration;
  std::string more = fmt::format("{} {} {}", scheme.group, scheme.symmetric, job.own.granularity);
  if (job.recipe.NeedsCalibration()) {
    NIBBLE_TRY(calibration, ReadCalibration(job.flags, job.own.importance, job.tokenizer,
                                            job.model.config().context_length));
    made.calibration = calibration.card;
    more += CalibrationKey(calibration.card);
  }
  NIBBLE_TRY(TensorStore opened, OpenStore(job, StoreKey(job, more)));
  const auto store = std::make_shared<TensorStore>(std::move(opened));
  NIBBLE_TRY(HfTarget target, HfTarget::Create(job.model, scheme, job.recipe, job.pool, *store));
  const Status done = Run(job, calibration, target, made);
  if (!done) return KeptFor(done.error(), *store);
  auto written = WriteFolder(job, target, *store);
  if (!written) return KeptFor(written.error(), *store);
  const auto writer = std::make_shared<HfFolderWriter>(*std::move(written));
  NIBBLE_RETURN_IF_ERROR(ReadBack(job.model, target, *store, writer->temporary_path()));
  made.path = writer->temporary_path().string();
  NIBBLE_RETURN_IF_ERROR(
      ForTensors(job.model, target, *store, true,
                 [&](const HfTensor&, uint64_t, std::span<const std::byte> bytes) {
                   made.weight_bytes += bytes.size();
                   return Status{};
                 }));
  made.bytes = made.weight_bytes;
  Report(job.model, target, *store, made);
  made.commit = [writer, store](const std::string& card) -> Status {
    NIBBLE_RETURN_IF_ERROR(writer->WriteText(std::string(kFolderCard), card + "\n"));
    return writer->Commit();
  };
  return made;
}

}  // namespace nibble::cli
