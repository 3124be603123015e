#include "fetch/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include "container/output_file.h"

namespace nibble {
namespace fs = std::filesystem;

std::optional<PartOrigin> PartOrigin::Read(const fs::path& path) {
  std::ifstream file(path);
  PartOrigin out;
  std::string total;
  if (!std::getline(file, out.url) || !std::getline(file, out.etag) ||
      !std::getline(file, out.sha256) || !std::getline(file, total)) {
    return std::nullopt;
  }
  out.total = std::strtoull(total.c_str(), nullptr, 10);
  return out;
}

Status PartOrigin::Write(const fs::path& path) const {
  const std::string text = fmt::format("{}\n{}\n{}\n{}\n", url, etag, sha256, total);
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  NIBBLE_RETURN_IF_ERROR(file.Write(text));
  return file.Commit();
}

Status PartFile::Open(const fs::path& path) {
  NIBBLE_RETURN_IF_ERROR(OpenUnlocked(path));
  return Lock();
}

Status PartFile::OpenUnlocked(const fs::path& path) {
  Close();
  path_ = path;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) return Failed("open for writing");
  return {};
}

Status PartFile::Lock() {
  for (;;) {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return Failed("lock");
      return IoError("{}: another process is fetching this file", path_.string());
    }
    if (IsWhatThePathNames()) return {};
    NIBBLE_RETURN_IF_ERROR(OpenUnlocked(path_));
  }
}

bool PartFile::IsWhatThePathNames() const {
  struct stat held, named;
  return ::fstat(file_, &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

Status PartFile::Keep() {
  const off_t size = ::lseek(file_, 0, SEEK_END);
  if (size < 0 || ::lseek(file_, 0, SEEK_SET) < 0) return Failed("seek");
  hash_ = Sha256();
  std::vector<char> buffer(1 << 18);
  for (bytes_ = 0; bytes_ < uint64_t(size);) {
    const ssize_t n = ::read(file_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("read");
    hash_.Update(std::string_view(buffer.data(), size_t(n)));
    bytes_ += uint64_t(n);
  }
  return {};
}

Status PartFile::Clear() {
  bytes_ = 0;
  hash_ = Sha256();
  if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) < 0) return Failed("truncate");
  return {};
}

Status PartFile::Append(std::string_view data) {
  hash_.Update(data);
  bytes_ += data.size();
  while (!data.empty()) {
    const ssize_t n = ::write(file_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("write");
    data.remove_prefix(size_t(n));
  }
  return {};
}

Status PartFile::Commit(const fs::path& target) {
  if (::fsync(file_) != 0) return Failed("sync");
  if (::rename(path_.c_str(), target.c_str()) != 0) return Failed("rename");
  // The new name itself must survive a power cut; where folders cannot be synced, it is as good as
  // the file system makes it.
  const fs::path parent = target.parent_path();
  const int folder =
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return {};
}

std::string PartFile::Digest() const {
  Sha256 copy = hash_;
  return copy.HexDigest();
}

void PartFile::Close() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

Status PartFile::Failed(const char* what) const {
  const auto kind = errno == ENOSPC ? ErrorKind::kNoRoom : ErrorKind::kIo;
  return Fail(kind, "{}: cannot {}: {}", path_.string(), what, std::strerror(errno));
}

}  // namespace nibble
