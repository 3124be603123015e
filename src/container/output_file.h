#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

// Where a file of this name is to be written: links are followed, so that they stay. Errors:
// kBadInput where something else than a file is there, such as a folder or a device (renaming a
// file to /dev/stdout would take it away from everybody), or where its folder is missing.
Result<std::filesystem::path> OutputPlace(const std::filesystem::path& path);

// A file written in pieces under a temporary name in its folder. Commit() syncs it and renames it;
// without it nothing is left. A reader sees the old file or the whole new one.
class OutputFile {
 public:
  // Errors: those of OutputPlace; kIo.
  static Result<OutputFile> Create(const std::filesystem::path& path);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();

  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }
  Status WriteZeros(uint64_t count);
  uint64_t position() const;
  // Writes over bytes that were written before.
  Status Overwrite(uint64_t offset, std::span<const std::byte> bytes);
  // Where the bytes are until Commit.
  const std::string& temporary_path() const;
  Status Commit();

 private:
  struct Impl;
  explicit OutputFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The data section of a model file: tensors of known sizes, one after the other, each padded to
// the alignment.
class TensorStream {
 public:
  TensorStream(OutputFile file, std::vector<uint64_t> sizes, uint64_t alignment);

  // The next bytes of the current tensor; any number of calls per tensor. Error: more bytes than
  // all tensors have.
  Status Append(std::span<const std::byte> bytes);
  // Error of both: a tensor is incomplete.
  Status Finish();
  // The whole file, not committed yet; the stream is used up.
  Result<OutputFile> Complete();

 private:
  Status EndTensors();

  OutputFile file_;
  std::vector<uint64_t> sizes_;
  uint64_t alignment_;
  size_t current_ = 0;
  uint64_t written_ = 0;  // of the current tensor
};

}  // namespace nibble
