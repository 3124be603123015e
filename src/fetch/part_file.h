#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/sha256.h"

namespace nibble {

// What the part on the disk is a part of.
struct PartOrigin {
  std::string url, etag, sha256;
  uint64_t total = 0;  // 0: not announced

  // Whether the tag stands for these very bytes.
  bool has_strong_etag() const { return etag.starts_with('"'); }
  static std::optional<PartOrigin> Read(const std::filesystem::path& path);
  Status Write(const std::filesystem::path& path) const;
};

// The growing file of a download, locked against other processes, and the hash of what is in it.
class PartFile {
 public:
  PartFile() = default;
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() { Close(); }

  // Opens or creates the file and locks it. Error: another process has it.
  Status Open(const std::filesystem::path& path);
  Status Keep();   // hashes what is there and goes to its end
  Status Clear();  // empties it
  Status Append(std::string_view data);
  // Gives the file, synced, its final name. What is written at once goes through
  // OutputFile; a part must outlive the process under a name of its own.
  Status Commit(const std::filesystem::path& target);

  uint64_t bytes() const { return bytes_; }
  std::string Digest() const;

  // The two steps of Open; another process may finish the file between them, after which its path
  // is that of no file or of a new one, and what was opened is the finished file. Lock therefore
  // opens again until what it holds is what the path names.
  Status OpenUnlocked(const std::filesystem::path& path);
  Status Lock();

 private:
  bool IsWhatThePathNames() const;
  void Close();
  Status Failed(const char* what) const;

  std::filesystem::path path_;
  int file_ = -1;
  uint64_t bytes_ = 0;
  Sha256 hash_;
};

}  // namespace nibble
