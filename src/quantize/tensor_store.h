#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

// The finished tensors of an output that is not complete yet: one file beside it,
// "OUT.nibble-part", to which each is appended with a check of its bytes. A run that was killed is
// taken up where it stopped; one with another recipe begins anew.
//
//   "nibble-part 1\n", key "\n", then per tensor: u64 bytes, the bytes, u32 and the name, u32 and
//   the note, u64 hash of all of this
class TensorStore {
 public:
  struct Record {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::string note;  // what is known about the tensor, as the caller writes it
  };

  // key: one line that says all that decides the bytes. Errors: the file system; another process
  // that writes the same output.
  static Result<TensorStore> Open(const std::filesystem::path& output, std::string_view key);
  TensorStore(TensorStore&&) noexcept;
  TensorStore& operator=(TensorStore&&) noexcept;
  ~TensorStore();  // removes the file, unless Keep() was called

  const Record* Find(std::string_view name) const;  // null: not finished
  size_t found() const;                             // tensors that an earlier run left

  // A tensor of known size: Begin, Append until all is there, End.
  Status Begin(std::string_view name, uint64_t bytes);
  Status Append(std::span<const std::byte> bytes);
  Status End(std::string_view note);
  Status Put(std::string_view name, std::span<const std::byte> bytes, std::string_view note);

  // [bytes] of a record from `from` on.
  Status Read(const Record& record, uint64_t from, std::span<std::byte> to) const;

  // The file stays for a later run (as it does when the process is killed). Its path.
  const std::filesystem::path& Keep();

 private:
  struct Impl;
  explicit TensorStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
