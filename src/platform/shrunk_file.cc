#include "platform/shrunk_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>

namespace nibble {
namespace {

constexpr int kExitCode = 2;  // bad input

// What a signal handler may look at: no locks, no memory to take, and a global because it has no
// context of its own.
struct Watched {
  std::atomic<const std::byte*> data = nullptr;  // null: free
  std::atomic<size_t> bytes = 0;
  std::array<char, 512> path = {};
};
constexpr size_t kMost = 256;  // further files stay unwatched
std::array<Watched, kMost> watched;

void Say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody listens
}

void OnSigbus(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const Watched& one : watched) {
    const std::byte* data = one.data.load();
    if (data == nullptr || at < data || at >= data + one.bytes.load()) continue;
    Say("nibble: ");
    Say(one.path.data());
    Say(": the file was cut short while it was in use, or its disk cannot be read\n");
    _exit(kExitCode);
  }
  // Not ours: the instruction comes again and finds the default.
  std::signal(SIGBUS, SIG_DFL);
}

void TakeOverSigbus() {
  struct sigaction action = {};
  action.sa_sigaction = OnSigbus;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

std::mutex& Mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void WatchMapping(const std::byte* data, size_t bytes, const std::filesystem::path& path) {
  static std::once_flag once;
  std::call_once(once, TakeOverSigbus);
  const std::scoped_lock lock(Mutex());
  for (Watched& one : watched) {
    if (one.data.load() != nullptr) continue;
    const std::string& name = path.native();
    // A name that is too long keeps its end.
    const size_t from = name.size() < one.path.size() ? 0 : name.size() - one.path.size() + 1;
    std::strcpy(one.path.data(), name.c_str() + from);
    one.bytes = bytes;
    one.data = data;
    return;
  }
}

void UnwatchMapping(const std::byte* data) {
  const std::scoped_lock lock(Mutex());
  for (Watched& one : watched) {
    if (one.data.load() == data) one.data = nullptr;
  }
}

}  // namespace nibble
