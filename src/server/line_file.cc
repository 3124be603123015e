#include "server/line_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace nibble::server {
namespace {

constexpr size_t kMostPending = size_t{16} << 20;
constexpr size_t kManyPending = size_t{64} << 10;
constexpr std::chrono::milliseconds kPatience{200};

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::Create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return IoError("{}: cannot be written: {}", path, std::strerror(errno));
  }
  return std::unique_ptr<LineFile>(new LineFile(file, path));
}

LineFile::LineFile(std::FILE* file, std::string path)
    : file_(file), path_(std::move(path)), thread_([this] { Loop(); }) {}

LineFile::~LineFile() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  std::fclose(file_);
  if (dropped_ > 0) {
    fmt::print(stderr, "nibble: {}: {} lines are missing, the disk could not take them\n", path_,
               dropped_.load());
  }
}

void LineFile::Add(std::string_view line) {
  bool many = false;
  {
    const std::scoped_lock lock(mutex_);
    if (pending_.size() + line.size() > kMostPending) {
      ++dropped_;
      return;
    }
    pending_ += line;
    pending_ += '\n';
    many = pending_.size() > kManyPending;
  }
  if (many) wake_.notify_one();
}

void LineFile::Loop() {
  std::string lines;
  bool failed = false;
  while (true) {
    bool stop = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kPatience, [&] { return stop_ || pending_.size() > kManyPending; });
      lines.clear();
      lines.swap(pending_);
      stop = stop_;
    }
    if (!lines.empty()) {
      const bool written = std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size() &&
                           std::fflush(file_) == 0;
      if (!written && !std::exchange(failed, true)) {
        fmt::print(stderr, "nibble: {}: cannot be written: {}\n", path_, std::strerror(errno));
      }
    }
    if (stop) return;
  }
}

}  // namespace nibble::server
