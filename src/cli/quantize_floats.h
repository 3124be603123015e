#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "cli/globals.h"
#include "cli/quantize_flags.h"
#include "cli/quantize_job.h"
#include "format/format.h"
#include "model/config/model_file.h"

namespace nibble::cli {

// f32, f16 or bf16 as --to of a folder: the model in floats.
std::optional<Format> FloatsOfFolder(const QuantizeFlags& own);

// The folder of floats itself.
Result<MadeModel> QuantizeToFloatFolder(const QuantizeJob& job);

// What quantised folders are made from where the source is none of floats: a copy as a Hugging Face
// folder, beside the output; it goes with this.
class FloatFolderSource {
 public:
  // Nothing for GGUF outputs, folders of floats and sources that are one. Errors: those of
  // WriteHfFloatFolder, a source below 8 bits without --requantize.
  static Result<FloatFolderSource> Make(const GlobalFlags& flags, const QuantizeFlags& own,
                                        const ModelFile& model, const Tokenizer& tokenizer,
                                        ThreadPool& pool);
  FloatFolderSource(FloatFolderSource&& other) noexcept;
  FloatFolderSource& operator=(FloatFolderSource&&) = delete;
  ~FloatFolderSource();

  const ModelFile& ModelOr(const ModelFile& other) const { return model_ ? *model_ : other; }
  const std::filesystem::path& PathOr(const std::filesystem::path& other) const {
    return model_ ? path_ : other;
  }

 private:
  FloatFolderSource() = default;

  std::filesystem::path path_;
  std::optional<ModelFile> model_;
};

}  // namespace nibble::cli
