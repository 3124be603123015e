#include "container/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace nibble {
namespace {

std::string ErrnoText() { return std::generic_category().message(errno); }

}  // namespace

struct OutputFile::Impl {
  std::filesystem::path path;
  std::string temporary;
  int descriptor = -1;
  uint64_t position = 0;

  ~Impl() {
    if (descriptor >= 0) ::close(descriptor);
    if (!temporary.empty()) ::unlink(temporary.c_str());
  }
  std::unexpected<Error> Failed(std::string_view what) const {
    return IoError("{}: cannot {}: {}", path.string(), what, ErrnoText());
  }
};

OutputFile::OutputFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Result<std::filesystem::path> OutputPlace(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path place = path;
  for (int links = 0; fs::is_symlink(fs::symlink_status(place, error)); ++links) {
    const fs::path target = fs::read_symlink(place, error);
    if (error || links == 40) return BadInput("{}: is a link that leads nowhere", path.string());
    place = place.parent_path() / target;
  }
  const fs::file_status there = fs::status(place, error);
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    return BadInput("{}: expected a file or nothing there, found {}", path.string(),
                    fs::is_directory(there) ? "a folder" : "a device or pipe");
  }
  const fs::path folder = place.has_parent_path() ? place.parent_path() : fs::path(".");
  if (place.filename().empty() || !fs::is_directory(folder, error)) {
    return BadInput("{}: there is no folder {}", path.string(), folder.string());
  }
  return place;
}

Result<OutputFile> OutputFile::Create(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  NIBBLE_TRY(impl->path, OutputPlace(path));
  std::string temporary = impl->path.string() + ".XXXXXX";
  impl->descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (impl->descriptor < 0) return impl->Failed("create a file beside it");
  impl->temporary = std::move(temporary);
  // mkostemp makes the file private; give it the rights any new file gets.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(impl->descriptor, 0666 & ~mask) != 0) return impl->Failed("set permissions");
  return OutputFile(std::move(impl));
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(impl_->descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return impl_->Failed("write");
    bytes = bytes.subspan(static_cast<size_t>(count));
    impl_->position += static_cast<uint64_t>(count);
  }
  return {};
}

Status OutputFile::WriteZeros(uint64_t count) {
  constexpr std::array<std::byte, 4096> kZeros = {};
  while (count > 0) {
    const uint64_t piece = std::min<uint64_t>(count, kZeros.size());
    NIBBLE_RETURN_IF_ERROR(Write(std::span(kZeros).first(piece)));
    count -= piece;
  }
  return {};
}

uint64_t OutputFile::position() const { return impl_->position; }

const std::string& OutputFile::temporary_path() const { return impl_->temporary; }

Status OutputFile::Overwrite(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(impl_->descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return impl_->Failed("write");
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

Status OutputFile::Commit() {
  if (::fsync(impl_->descriptor) != 0) return impl_->Failed("sync");
  if (::close(std::exchange(impl_->descriptor, -1)) != 0) return impl_->Failed("close");
  if (::rename(impl_->temporary.c_str(), impl_->path.c_str()) != 0) return impl_->Failed("rename");
  impl_->temporary.clear();
  // The new name itself must survive a crash too.
  const std::filesystem::path parent = impl_->path.parent_path();
  const int folder = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return {};
}

TensorStream::TensorStream(OutputFile file, std::vector<uint64_t> sizes, uint64_t alignment)
    : file_(std::move(file)), sizes_(std::move(sizes)), alignment_(alignment) {}

// Steps over tensors that are whole, empty ones included.
Status TensorStream::EndTensors() {
  while (current_ < sizes_.size() && written_ == sizes_[current_]) {
    NIBBLE_RETURN_IF_ERROR(file_.WriteZeros((alignment_ - written_ % alignment_) % alignment_));
    ++current_;
    written_ = 0;
  }
  return {};
}

Status TensorStream::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    NIBBLE_RETURN_IF_ERROR(EndTensors());
    if (current_ == sizes_.size()) {
      return BadInput("{} bytes more than the {} tensors have", bytes.size(), sizes_.size());
    }
    const uint64_t piece = std::min<uint64_t>(bytes.size(), sizes_[current_] - written_);
    NIBBLE_RETURN_IF_ERROR(file_.Write(bytes.first(piece)));
    bytes = bytes.subspan(piece);
    written_ += piece;
  }
  return EndTensors();
}

Status TensorStream::Finish() {
  NIBBLE_TRY(OutputFile file, Complete());
  return file.Commit();
}

Result<OutputFile> TensorStream::Complete() {
  NIBBLE_RETURN_IF_ERROR(EndTensors());
  if (current_ < sizes_.size()) {
    return BadInput("tensor {} of {} has {} of {} bytes", current_, sizes_.size(), written_,
                    sizes_[current_]);
  }
  return std::move(file_);
}

}  // namespace nibble
