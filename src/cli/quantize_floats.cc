#include "cli/quantize_floats.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "cli/output.h"
#include "eval/builtin_text.h"
#include "quantize/hf_folder.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

// Types that a layout's floats may be in.
bool IsFolderFloat(const SourceTensor& tensor) {
  return tensor.linear == nullptr && tensor.format &&
         TraitsOf(*tensor.format).block_elements == 1 &&
         TraitsOf(*tensor.format).BitsPerWeight() >= 16;
}

HfFloatFolder FolderOptions(const GlobalFlags& flags, Progress& progress) {
  HfFloatFolder options;
  options.sample = kBuiltinText;
  if (flags.quiet) return options;
  options.progress = [&progress](double done, std::string_view name) {
    progress.Update(done, std::string(name));
  };
  return options;
}

}  // namespace

std::optional<Format> FloatsOfFolder(const QuantizeFlags& own) {
  if (ToGguf(own)) return std::nullopt;
  if (own.to == "f32") return Format::kF32;
  if (own.to == "f16") return Format::kF16;
  if (own.to == "bf16") return Format::kBF16;
  return std::nullopt;
}

Result<MadeModel> QuantizeToFloatFolder(const QuantizeJob& job) {
  if (!job.own.method.empty() || !job.own.importance.calib.empty()) {
    return BadInput("--to {}: a folder of floats has no --method and no --calib", job.own.to);
  }
  Progress progress("convert", !job.flags.quiet);
  HfFloatFolder options = FolderOptions(job.flags, progress);
  options.matrices = FloatsOfFolder(job.own);
  options.replace = job.own.force;
  NIBBLE_TRY(HfFolderWriter written,
             WriteHfFloatFolder(job.model, job.tokenizer, job.own.out, options, job.pool));
  const auto writer = std::make_shared<HfFolderWriter>(std::move(written));
  MadeModel made;
  made.to = job.own.to;
  made.path = writer->temporary_path().string();
  NIBBLE_TRY(const ModelFile read, ModelFile::Open(writer->temporary_path()));
  made.bytes = made.weight_bytes = read.source().total_bytes();
  for (const SourceTensor& tensor : read.source().tensors()) {
    made.tensors.push_back({.name = std::string(tensor.name),
                            .from = *tensor.format,
                            .to = *tensor.format,
                            .note = {},
                            .loss = {}});
  }
  made.commit = [writer](const std::string& card) -> Status {
    NIBBLE_RETURN_IF_ERROR(writer->WriteText(std::string(kFolderCard), card + "\n"));
    return writer->Commit();
  };
  return made;
}

FloatFolderSource::FloatFolderSource(FloatFolderSource&& other) noexcept
    : path_(std::exchange(other.path_, {})), model_(std::exchange(other.model_, std::nullopt)) {}

FloatFolderSource::~FloatFolderSource() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Result<FloatFolderSource> FloatFolderSource::Make(const GlobalFlags& flags,
                                                  const QuantizeFlags& own, const ModelFile& model,
                                                  const Tokenizer& tokenizer, ThreadPool& pool) {
  FloatFolderSource source;
  if (ToGguf(own) || FloatsOfFolder(own)) return source;
  const auto tensors = model.source().tensors();
  if (!model.is_gguf() && std::ranges::all_of(tensors, IsFolderFloat)) return source;
  NIBBLE_RETURN_IF_ERROR(CheckSourceBits(own, model));
  NIBBLE_RETURN_IF_ERROR(CheckLayoutName(own));
  const fs::path path = own.out + ".nibble-floats";
  Progress progress("convert", !flags.quiet);
  HfFloatFolder options = FolderOptions(flags, progress);
  options.replace = true;  // a run that was killed leaves one
  NIBBLE_TRY(HfFolderWriter writer, WriteHfFloatFolder(model, tokenizer, path, options, pool));
  NIBBLE_RETURN_IF_ERROR(writer.Commit());
  source.path_ = path;
  NIBBLE_TRY(source.model_, ModelFile::Open(path));
  // A run that is taken up makes the same copy again, and must know it.
  std::error_code ignored;
  const auto time = fs::last_write_time(model.files().front().path(), ignored);
  for (const MappedFile& file : source.model_->files()) {
    fs::last_write_time(file.path(), time, ignored);
  }
  return source;
}

}  // namespace nibble::cli
