#include "quantize/activation_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/math.h"
#include "base/text.h"

namespace nibble {

Result<ActivationStore> ActivationStore::Create(const ModelConfig& config, int sequences,
                                                int tokens, size_t memory,
                                                const std::filesystem::path& folder) {
  ActivationStore store;
  store.sequences_ = sequences;
  store.tokens_ = tokens;
  store.width_ = config.width;
  store.context_ = config.heads * config.head_dim;
  const auto values =
      static_cast<size_t>(tokens) * static_cast<size_t>(store.width_ + store.context_);
  store.sequence_bytes_ = RoundUp<size_t>(values * sizeof(float), 4096);
  const size_t bytes = store.bytes();
  if (bytes <= memory) {
    NIBBLE_TRY(store.memory_, AlignedBuffer::Allocate(bytes));
    return store;
  }
  const auto failed = [&] {
    return IoError("{}: no file of {} for the calibration's activations: {}", folder.string(),
                   FormatBytes(static_cast<double>(bytes)), std::generic_category().message(errno));
  };
  std::string name = (folder / "nibble-calibration.XXXXXX").string();
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return failed();
  ::unlink(name.c_str());
  // Taken now: a page that the disk has no room for later would end the process.
  errno = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* mapped =
      errno == 0 ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    const auto error = failed();
    ::close(file);
    return error;
  }
  ::close(file);
  store.mapped_ = static_cast<std::byte*>(mapped);
  return store;
}

ActivationStore::ActivationStore(ActivationStore&& other) noexcept
    : sequences_(other.sequences_),
      tokens_(other.tokens_),
      width_(other.width_),
      context_(other.context_),
      sequence_bytes_(other.sequence_bytes_),
      memory_(std::move(other.memory_)),
      mapped_(std::exchange(other.mapped_, nullptr)) {}

ActivationStore::~ActivationStore() {
  if (mapped_ != nullptr) ::munmap(mapped_, bytes());
}

LayerSequence ActivationStore::Sequence(int index) {
  std::byte* base = mapped_ != nullptr ? mapped_ : memory_.data();
  auto* hidden = reinterpret_cast<float*>(base + sequence_bytes_ * static_cast<size_t>(index));
  float* context = hidden + static_cast<size_t>(tokens_) * static_cast<size_t>(width_);
  return {.hidden = DenseView(hidden, tokens_, width_),
          .context = DenseView(context, tokens_, context_)};
}

void ActivationStore::Release(int index) {
  if (mapped_ == nullptr) return;
  ::madvise(mapped_ + sequence_bytes_ * static_cast<size_t>(index), sequence_bytes_, MADV_DONTNEED);
}

}  // namespace nibble
