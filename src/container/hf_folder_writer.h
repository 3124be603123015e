#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "container/hf_scheme.h"

namespace nibble {

struct HfFolderOptions {
  uint64_t shard_bytes = 5'000'000'000;  // of tensors in one file; a larger tensor has its own
  bool replace = false;  // a model folder of that name gives way once the new one is complete
};

// Writes a Hugging Face model folder under a temporary name beside its own: first the list of all
// tensors, then Begin(), then the tensors' bytes in that order, in pieces of any size, so that
// nothing of the model needs to be in memory. One file model.safetensors, or shards with
// model.safetensors.index.json. Without Commit() nothing is left.
class HfFolderWriter {
 public:
  // Errors: the folder exists and is not to be replaced, or is no model folder (it has folders
  // inside, or files but no config.json).
  static Result<HfFolderWriter> Create(const std::filesystem::path& folder,
                                       const HfFolderOptions& options = {});
  HfFolderWriter(HfFolderWriter&&) noexcept;
  HfFolderWriter& operator=(HfFolderWriter&&) noexcept;
  ~HfFolderWriter();

  // Error: a name used before, an unknown dtype.
  Status AddTensor(const HfTensor& tensor);
  Status Begin();
  // The next bytes of the tensors in their order. Error: more bytes than all tensors have.
  Status Append(std::span<const std::byte> bytes);
  // A small file: "config.json".
  Status WriteText(std::string_view name, std::string_view text);
  // A copy of a file under its own name.
  Status CopyFile(const std::filesystem::path& from);

  // Closes and syncs everything, and writes the index: the folder at temporary_path() can be read
  // back. Error: a tensor is incomplete.
  Status Finish();
  const std::filesystem::path& temporary_path() const;
  // Gives the folder its name; after Finish().
  Status Commit();

 private:
  struct Impl;
  explicit HfFolderWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
