#pragma once

#include <cstddef>
#include <filesystem>

namespace nibble {

// A mapped file that another program cuts short raises SIGBUS where its lost pages are read, which
// no check can foresee. Between these two calls that ends the process with one line that names the
// file, and exit code 2, in place of a crash. Both from any thread; the first call takes over
// SIGBUS, whose other causes stay fatal as they were.
void WatchMapping(const std::byte* data, size_t bytes, const std::filesystem::path& path);
void UnwatchMapping(const std::byte* data);

}  // namespace nibble
