#include "cli/batch_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "container/output_file.h"

namespace nibble::cli {
namespace {

// The number at the beginning of text, up to a space; nothing when there is none.
std::optional<uint64_t> TakeNumber(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

}  // namespace

BatchJournal::BatchJournal(std::filesystem::path out, int descriptor, int lines)
    : out_(std::move(out)), descriptor_(descriptor), places_(static_cast<size_t>(lines)) {}

BatchJournal::BatchJournal(BatchJournal&& other) noexcept
    : out_(std::move(other.out_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      count_(other.count_),
      places_(std::move(other.places_)) {}

BatchJournal::~BatchJournal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::filesystem::path BatchJournal::path() const { return out_.string() + ".journal"; }

std::unexpected<Error> BatchJournal::Failed(std::string_view what) const {
  return IoError("{}: cannot {}: {}", path().string(), what, std::strerror(errno));
}

Result<BatchJournal> BatchJournal::Open(const std::filesystem::path& out, std::string_view run,
                                        int lines) {
  const std::string path = out.string() + ".journal";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return IoError("{}: cannot open: {}", path, std::strerror(errno));
  BatchJournal journal(out, descriptor, lines);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return BadInput("{}: another process is writing this batch", path);
  }
  const std::string header = fmt::format("nibble batch {} {}\n", lines, run);
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) return journal.Failed("read");
  if (info.st_nlink == 0) {  // removed between being opened and being locked
    return BadInput("{}: another process has just finished this batch", path);
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t n =
        ::pread(descriptor, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (n <= 0) return journal.Failed("read");
    at += static_cast<size_t>(n);
  }
  if (header.starts_with(text)) {  // empty, or killed while the header was written
    NIBBLE_RETURN_IF_ERROR(journal.Start(header));
  } else {
    NIBBLE_RETURN_IF_ERROR(journal.Replay(text, header));
  }
  return journal;
}

Status BatchJournal::Start(std::string_view header) {
  if (::ftruncate(descriptor_, 0) != 0) return Failed("write");
  return Write(header);
}

Status BatchJournal::Replay(std::string_view text, std::string_view header) {
  if (!text.starts_with(header)) {
    return BadInput(
        "{}: is the journal of another batch (other input, model or flags); finish that one or "
        "remove the file",
        path().string());
  }
  uint64_t good = header.size();
  std::string_view rest = text.substr(header.size());
  while (!rest.empty()) {
    const auto index = TakeNumber(rest);
    const auto length = TakeNumber(rest);
    if (!index || !length || *length == 0 || *length >= rest.size() || *index >= places_.size() ||
        rest[*length] != '\n') {
      break;  // cut off
    }
    const uint64_t offset = text.size() - rest.size();
    Place& place = places_[*index];
    count_ += place.length == 0 ? 1 : 0;
    place = {offset, *length};
    rest.remove_prefix(*length + 1);
    good = offset + *length + 1;
  }
  size_ = good;
  if (::ftruncate(descriptor_, static_cast<off_t>(good)) != 0) return Failed("write");
  return {};
}

Status BatchJournal::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("write");
    text.remove_prefix(static_cast<size_t>(n));
    size_ += static_cast<uint64_t>(n);
  }
  return {};
}

Status BatchJournal::Append(int index, std::string_view line) {
  NIBBLE_CHECK(!line.empty() && !done(index));
  const std::string head = fmt::format("{} {} ", index, line.size());
  const Place place{size_ + head.size(), line.size()};
  NIBBLE_RETURN_IF_ERROR(Write(head + std::string(line) + "\n"));
  places_[static_cast<size_t>(index)] = place;
  ++count_;
  return {};
}

Status BatchJournal::Sync() {
  if (::fdatasync(descriptor_) != 0) return Failed("sync");
  return {};
}

Status BatchJournal::Finish() {
  NIBBLE_TRY(OutputFile file, OutputFile::Create(out_));
  std::string line;
  for (const Place& place : places_) {
    NIBBLE_CHECK(place.length > 0);
    line.resize(place.length + 1);  // with its newline
    for (size_t at = 0; at < line.size();) {
      const ssize_t n = ::pread(descriptor_, line.data() + at, line.size() - at,
                                static_cast<off_t>(place.offset + at));
      if (n <= 0) return Failed("read");
      at += static_cast<size_t>(n);
    }
    NIBBLE_RETURN_IF_ERROR(file.Write(line));
  }
  NIBBLE_RETURN_IF_ERROR(file.Commit());
  if (::unlink(path().c_str()) != 0) return Failed("remove");
  return {};
}

}  // namespace nibble::cli
