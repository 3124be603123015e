#include "advise/base_rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace nibble {
namespace {

// All of it, or an errno.
template <class Move>
int MoveAll(size_t bytes, Move&& move) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved < 0 ? errno : EIO;
    done += static_cast<size_t>(moved);
  }
  return 0;
}

}  // namespace

Result<BaseRows> BaseRows::Create(const std::filesystem::path& folder, int rows, int vocabulary) {
  std::string name = (folder / "base-XXXXXX").string();
  BaseRows result;
  result.file_ = mkstemp(name.data());
  if (result.file_ < 0) return IoError("{}: {}", folder.string(), std::strerror(errno));
  unlink(name.c_str());
  result.rows_ = rows;
  result.vocabulary_ = vocabulary;
  const size_t bytes = sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(vocabulary);
  if (const int error = posix_fallocate(result.file_, 0, static_cast<off_t>(bytes)); error != 0) {
    return IoError("{}: {} for a window's logits: {}", folder.string(),
                   FormatBytes(static_cast<double>(bytes)), std::strerror(error));
  }
  return result;
}

BaseRows::BaseRows(BaseRows&& other) noexcept
    : file_(std::exchange(other.file_, -1)), rows_(other.rows_), vocabulary_(other.vocabulary_) {}

BaseRows& BaseRows::operator=(BaseRows&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(rows_, other.rows_);
  std::swap(vocabulary_, other.vocabulary_);
  return *this;
}

BaseRows::~BaseRows() {
  if (file_ >= 0) close(file_);
}

Status BaseRows::Write(int row, std::span<const float> logits) {
  const auto at = static_cast<off_t>(logits.size_bytes()) * row;
  const auto* bytes = reinterpret_cast<const char*>(logits.data());
  const int error = MoveAll(logits.size_bytes(), [&](size_t done) {
    return pwrite(file_, bytes + done, logits.size_bytes() - done, at + static_cast<off_t>(done));
  });
  if (error != 0) return IoError("a window's logits: {}", std::strerror(error));
  return {};
}

Status BaseRows::Read(int row, std::span<float> logits) const {
  const auto at = static_cast<off_t>(logits.size_bytes()) * row;
  auto* bytes = reinterpret_cast<char*>(logits.data());
  const int error = MoveAll(logits.size_bytes(), [&](size_t done) {
    return pread(file_, bytes + done, logits.size_bytes() - done, at + static_cast<off_t>(done));
  });
  if (error != 0) return IoError("a window's logits: {}", std::strerror(error));
  return {};
}

}  // namespace nibble
