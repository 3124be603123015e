#include "platform/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/math.h"
#include "platform/shrunk_file.h"

namespace nibble {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{4} << 20;

size_t PageSize() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::string ErrnoText() { return std::strerror(errno); }

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Close() {
    const int result = fd_ >= 0 ? ::close(fd_) : 0;
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

}  // namespace

Result<AlignedBuffer> AlignedBuffer::Allocate(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const bool huge = bytes >= kHugeFrom;
  const size_t unit = huge ? kHugePage : PageSize();
  const auto no_room = [&] {
    return Fail(ErrorKind::kNoRoom, "cannot allocate {} bytes: {}", bytes, ErrnoText());
  };
  const auto padded = CheckedAdd(bytes, unit + (huge ? kHugePage : 0));
  if (!padded) {
    errno = ENOMEM;
    return no_room();
  }
  const size_t size = RoundUp(bytes, unit);
  const size_t reserve = size + (huge ? kHugePage : 0);
  void* base = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return no_room();
  auto* begin = static_cast<std::byte*>(base);
  if (huge) {
    // Keep the aligned middle, give the edges back.
    const auto address = reinterpret_cast<uintptr_t>(base);
    const size_t head = RoundUp<uintptr_t>(address, kHugePage) - address;
    if (head > 0) munmap(begin, head);
    begin += head;
    if (const size_t tail = reserve - head - size; tail > 0) munmap(begin + size, tail);
    madvise(begin, size, MADV_HUGEPAGE);  // a wish; refused on kernels without it
  }
  buffer.data_ = begin;
  buffer.size_ = bytes;
  buffer.mapped_ = size;
  return buffer;
}

void AlignedBuffer::Touch() {
  for (size_t at = 0; at < size_; at += PageSize()) {
    *static_cast<volatile std::byte*>(data_ + at) = std::byte{0};
  }
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe would wait here for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return BadInput("{}: cannot open: {}", path.string(), ErrnoText());
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) {
    return IoError("{}: cannot stat: {}", path.string(), ErrnoText());
  }
  if (!S_ISREG(info.st_mode)) return BadInput("{}: not a regular file", path.string());
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = static_cast<size_t>(info.st_size);
  if (mapped.size_ == 0) return mapped;
  void* base = mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (base == MAP_FAILED) {
    mapped.size_ = 0;
    return IoError("{}: cannot map {} bytes: {}", path.string(), info.st_size, ErrnoText());
  }
  mapped.data_ = static_cast<const std::byte*>(base);
  WatchMapping(mapped.data_, mapped.size_, path);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  UnwatchMapping(data_);
  munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::AdviseSequential() const {
  if (data_ == nullptr) return;
  madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
  madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

void MappedFile::Drop(size_t offset, size_t bytes) const {
  if (data_ == nullptr || offset >= size_) return;
  // Whole pages inside the range only: neighbours may still be in use. The last page of the file
  // belongs to a range that ends with the file.
  const size_t end = bytes >= size_ - offset ? RoundUp(size_, PageSize())
                                             : (offset + bytes) / PageSize() * PageSize();
  const size_t begin = RoundUp(offset, PageSize());
  if (begin < end) {
    madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
  }
}

ResidentBytes ReadResidentBytes() {
  ResidentBytes resident;
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(rollup, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "Rss: %llu kB", &kib) == 1) resident.total = kib << 10;
    if (std::sscanf(line.c_str(), "Anonymous: %llu kB", &kib) == 1) resident.private_ = kib << 10;
  }
  if (resident.total > 0) return resident;
  std::ifstream statm("/proc/self/statm");
  size_t total = 0;
  size_t shown = 0;
  size_t shared = 0;
  if (statm >> total >> shown >> shared) {
    resident.total = shown * PageSize();
    resident.private_ = shown > shared ? (shown - shared) * PageSize() : 0;
  }
  return resident;
}

size_t ReadPeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %llu kB", &kib) == 1) return kib << 10;
  }
  return ReadResidentBytes().total;
}

}  // namespace nibble
