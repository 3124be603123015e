#include "quantize/tensor_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"

namespace nibble {
namespace {

constexpr uint64_t kMaxText = 1 << 16;  // name or note

// A hash of bytes that does not depend on how they are cut: 64-bit multiply and rotate over words.
class StoreHash {
 public:
  void Add(std::span<const std::byte> bytes) {
    const size_t head = std::min<size_t>(bytes.size(), (8 - count_ % 8) % 8);
    for (const std::byte byte : bytes.first(head)) AddByte(byte);
    bytes = bytes.subspan(head);
    while (bytes.size() >= 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      Mix(word);
      bytes = bytes.subspan(8);
    }
    for (const std::byte byte : bytes) AddByte(byte);
  }
  uint64_t Value() const { return (state_ ^ partial_ ^ count_) * 0x9E3779B97F4A7C15ULL; }

 private:
  void AddByte(std::byte byte) {
    partial_ |= static_cast<uint64_t>(byte) << (8 * (count_ % 8));
    if (++count_ % 8 == 0) {
      count_ -= 8;  // Mix counts the word
      Mix(std::exchange(partial_, 0));
    }
  }
  void Mix(uint64_t word) {
    state_ = ((state_ ^ word) * 0xD6E8FEB86659FD93ULL);
    state_ ^= state_ >> 32;
    count_ += 8;
  }
  uint64_t state_ = 0x243F6A8885A308D3ULL;
  uint64_t partial_ = 0;
  uint64_t count_ = 0;
};

template <class T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

struct TensorStore::Impl {
  std::filesystem::path path;
  int file = -1;
  uint64_t end = 0;  // of the last whole record
  std::map<std::string, Record, std::less<>> records;
  size_t found = 0;
  bool kept = false;
  // Of the record that is being written.
  std::string name;
  uint64_t at = 0;    // where its next byte goes
  uint64_t left = 0;  // bytes of the tensor that are still to come
  Record record;
  StoreHash hash;

  ~Impl() {
    if (file < 0) return;
    if (!kept) ::unlink(path.c_str());
    ::close(file);
  }
  std::unexpected<Error> Failed(std::string_view what) const {
    return IoError("{}: cannot {}: {}", path.string(), what,
                   std::generic_category().message(errno));
  }
  Status Write(std::span<const std::byte> bytes) {
    hash.Add(bytes);
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("write");
      at += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return {};
  }
  // Whether all of them were there.
  bool Load(uint64_t from, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ssize_t count = ::pread(file, to.data(), to.size(), static_cast<off_t>(from));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      from += static_cast<uint64_t>(count);
      to = to.subspan(static_cast<size_t>(count));
    }
    return true;
  }
  bool LoadText(uint64_t& from, StoreHash& sum, std::string& text) const;
  bool LoadRecord(uint64_t size);
  Status Start(std::string_view key);
};

bool TensorStore::Impl::LoadText(uint64_t& from, StoreHash& sum, std::string& text) const {
  uint32_t size = 0;
  if (!Load(from, std::as_writable_bytes(std::span(&size, 1))) || size > kMaxText) return false;
  text.resize(size);
  if (!Load(from + 4, std::as_writable_bytes(std::span(text)))) return false;
  sum.Add(BytesOf(size));
  sum.Add(std::as_bytes(std::span(text)));
  from += 4 + size;
  return true;
}

// Takes the record at `end`; false where it is not whole.
bool TensorStore::Impl::LoadRecord(uint64_t size) {
  uint64_t bytes = 0;
  uint64_t from = end;
  if (!Load(from, std::as_writable_bytes(std::span(&bytes, 1)))) return false;
  from += 8;
  if (bytes > size - from) return false;
  StoreHash sum;
  sum.Add(BytesOf(bytes));
  const uint64_t offset = from;
  std::vector<std::byte> piece(size_t{1} << 20);
  for (uint64_t done = 0; done < bytes;) {
    const auto part = std::span(piece).first(std::min<uint64_t>(piece.size(), bytes - done));
    if (!Load(from, part)) return false;
    sum.Add(part);
    from += part.size();
    done += part.size();
  }
  std::string text;
  Record read = {.offset = offset, .bytes = bytes, .note = {}};
  uint64_t expected = 0;
  if (!LoadText(from, sum, text) || !LoadText(from, sum, read.note)) return false;
  if (!Load(from, std::as_writable_bytes(std::span(&expected, 1)))) return false;
  if (expected != sum.Value()) return false;
  end = from + 8;
  records[text] = std::move(read);
  return true;
}

// Reads what is there, or begins anew where that has another key.
Status TensorStore::Impl::Start(std::string_view key) {
  const std::string head = "nibble-part 1\n" + std::string(key) + "\n";
  struct stat info = {};
  if (::fstat(file, &info) != 0) return Failed("read");
  const auto size = static_cast<uint64_t>(info.st_size);
  std::string there(std::min<uint64_t>(size, head.size()), ' ');
  if (!Load(0, std::as_writable_bytes(std::span(there)))) return Failed("read");
  end = head.size();
  if (there == head) {
    while (end < size && LoadRecord(size)) {
    }
    found = records.size();
    if (::ftruncate(file, static_cast<off_t>(end)) != 0) return Failed("shorten");
    return {};
  }
  if (::ftruncate(file, 0) != 0) return Failed("shorten");
  return Write(std::as_bytes(std::span(head)));
}

TensorStore::TensorStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TensorStore::TensorStore(TensorStore&&) noexcept = default;
TensorStore& TensorStore::operator=(TensorStore&&) noexcept = default;
TensorStore::~TensorStore() = default;

Result<TensorStore> TensorStore::Open(const std::filesystem::path& output, std::string_view key) {
  auto impl = std::make_unique<Impl>();
  impl->path = output.string() + ".nibble-part";
  impl->file = ::open(impl->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (impl->file < 0) return impl->Failed("create this file");
  if (::flock(impl->file, LOCK_EX | LOCK_NB) != 0) {
    ::close(std::exchange(impl->file, -1));
    return BadInput("{}: another process is writing this output", output.string());
  }
  NIBBLE_RETURN_IF_ERROR(impl->Start(key));
  return TensorStore(std::move(impl));
}

const TensorStore::Record* TensorStore::Find(std::string_view name) const {
  const auto at = impl_->records.find(name);
  return at == impl_->records.end() ? nullptr : &at->second;
}

size_t TensorStore::found() const { return impl_->found; }

Status TensorStore::Begin(std::string_view name, uint64_t bytes) {
  NIBBLE_CHECK(name.size() <= kMaxText);
  impl_->name = name;
  impl_->at = impl_->end;
  impl_->left = bytes;
  impl_->hash = {};
  impl_->record = {.offset = impl_->end + 8, .bytes = bytes, .note = {}};
  return impl_->Write(BytesOf(bytes));
}

Status TensorStore::Append(std::span<const std::byte> bytes) {
  NIBBLE_CHECK(bytes.size() <= impl_->left);
  impl_->left -= bytes.size();
  return impl_->Write(bytes);
}

Status TensorStore::End(std::string_view note) {
  NIBBLE_CHECK(impl_->left == 0 && note.size() <= kMaxText);
  for (const std::string_view text : {std::string_view(impl_->name), note}) {
    const auto size = static_cast<uint32_t>(text.size());
    NIBBLE_RETURN_IF_ERROR(impl_->Write(BytesOf(size)));
    NIBBLE_RETURN_IF_ERROR(impl_->Write(std::as_bytes(std::span(text))));
  }
  const uint64_t sum = impl_->hash.Value();
  NIBBLE_RETURN_IF_ERROR(impl_->Write(BytesOf(sum)));
  impl_->record.note = note;
  impl_->records[impl_->name] = impl_->record;
  impl_->end = impl_->at;
  return {};
}

Status TensorStore::Put(std::string_view name, std::span<const std::byte> bytes,
                        std::string_view note) {
  NIBBLE_RETURN_IF_ERROR(Begin(name, bytes.size()));
  NIBBLE_RETURN_IF_ERROR(Append(bytes));
  return End(note);
}

Status TensorStore::Read(const Record& record, uint64_t from, std::span<std::byte> to) const {
  NIBBLE_CHECK(from + to.size() <= record.bytes);
  if (!impl_->Load(record.offset + from, to)) return impl_->Failed("read");
  return {};
}

const std::filesystem::path& TensorStore::Keep() {
  impl_->kept = true;
  return impl_->path;
}

}  // namespace nibble
