#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/utf8.h"
#include "platform/clock.h"

namespace nibble::cli {

std::string FormatRate(double rate) {
  if (rate >= 100) return fmt::format("{:.0f}", rate);
  return rate >= 10 ? fmt::format("{:.1f}", rate) : fmt::format("{:.2f}", rate);
}

void FlushOutput() {
  if (std::fflush(stdout) == 0) return;
  throw std::system_error(errno, std::generic_category(), "standard output");
}

bool IsTerminal(FILE* stream) { return isatty(fileno(stream)) == 1; }

Status CheckUtf8(const std::string& what, std::string_view text) {
  const size_t at = FindInvalidUtf8(text);
  if (at == std::string_view::npos) return {};
  return BadInput("{}: expected UTF-8, found the byte 0x{:02x} at offset {}", what,
                  static_cast<unsigned char>(text[at]), at);
}

Result<std::string> ReadTextFile(const std::string& path, size_t limit) {
  FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return BadInput("{}: {}", path, std::strerror(errno));
  std::string text;
  std::array<char, 65536> buffer;
  Status status;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), file)) {
    text.append(buffer.data(), n);
    if (text.size() > limit) {
      status = BadInput("{}: longer than {} bytes", path, limit);
      break;
    }
  }
  if (status && std::ferror(file) != 0) status = BadInput("{}: {}", path, std::strerror(errno));
  if (file != stdin) std::fclose(file);
  if (!status) return std::unexpected(status.error());
  return text;
}

Progress::Progress(std::string what, bool enabled)
    : what_(std::move(what)),
      enabled_(enabled && IsTerminal(stderr)),
      started_(MonotonicSeconds()) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::Update(double fraction, std::string_view detail) {
  if (!enabled_) return;
  const double now = MonotonicSeconds();
  const double elapsed = now - started_;
  if (elapsed < 2 || now - last_ < 0.1) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<size_t>(fraction * kWidth);
  const std::string bar = std::string(filled, '=') + std::string(kWidth - filled, ' ');
  const std::string left =
      fraction > 0.01 ? fmt::format(", {:.0f} s left", elapsed / fraction - elapsed) : "";
  fmt::print(stderr, "\r\033[K{} [{}] {:.0f}% {}{}", what_, bar, fraction * 100, detail, left);
  std::fflush(stderr);
}

}  // namespace nibble::cli
