#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace nibble {

// Owned memory, aligned to 64 bytes (2 MiB and advised for large pages from 4 MiB on), zeroed by
// the kernel on first touch. Move-only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  static Result<AlignedBuffer> Allocate(size_t bytes);  // kNoRoom when the system refuses
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  // Takes the memory of a fresh buffer now instead of on first use.
  void Touch();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
};

// A file mapped read-only. The pages are the operating system's: Drop() gives them back without
// unmapping (they would be read again on use).
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> Open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  void AdviseSequential() const;
  void Drop(size_t offset, size_t bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

// Memory of this process now.
struct ResidentBytes {
  size_t total = 0;     // resident set
  size_t private_ = 0;  // anonymous, not backed by a file
};
ResidentBytes ReadResidentBytes();
// The largest resident set that this process ever had.
size_t ReadPeakResidentBytes();

}  // namespace nibble
