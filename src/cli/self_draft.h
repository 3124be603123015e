#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "cli/globals.h"

namespace nibble {
class ModelFile;
}

namespace nibble::cli {

// A model's own copy in fewer bits, to guess with (--draft self:q2_k). On disk, in a folder of its
// own below the system's temporary folder, until `folder` goes: it is needed while a model is
// loaded from it.
struct SelfDraft {
  std::filesystem::path path;
  std::shared_ptr<const void> folder;
};
// format: a GGUF type or mix, as quantize's --to; rows that do not fit into its blocks get what
// quantize gives them. Errors: an unknown format, the file system.
Result<SelfDraft> MakeSelfDraft(const GlobalFlags& flags, const ModelFile& model,
                                std::string_view format);

}  // namespace nibble::cli
