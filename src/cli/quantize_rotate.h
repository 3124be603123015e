#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "cli/globals.h"
#include "cli/quantize_flags.h"
#include "model/config/model_file.h"

namespace nibble {
class ThreadPool;
}

namespace nibble::cli {

// The rotated copy that --rotate works on, beside the output; it goes with this.
class RotatedSource {
 public:
  // Nothing without --rotate. Errors: what cannot be rotated, flags that do not go with it, the
  // file system.
  static Result<RotatedSource> Make(const GlobalFlags& flags, const QuantizeFlags& own,
                                    const ModelFile& model, ThreadPool& pool);
  RotatedSource(RotatedSource&& other) noexcept;
  RotatedSource& operator=(RotatedSource&&) = delete;
  ~RotatedSource();

  const ModelFile& ModelOr(const ModelFile& other) const { return model_ ? *model_ : other; }
  const std::filesystem::path& PathOr(const std::filesystem::path& other) const {
    return model_ ? path_ : other;
  }

 private:
  RotatedSource() = default;

  std::filesystem::path path_;
  std::optional<ModelFile> model_;
};

}  // namespace nibble::cli
