#include "fetch/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace nibble {
namespace {

constexpr size_t kKeptOutput = 4096;

// Appends what the pipe holds; false at its end.
bool ReadSome(int pipe, std::string& output) {
  char buffer[4096];
  const ssize_t n = ::read(pipe, buffer, sizeof buffer);
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return false;
  if (n > 0) output.append(buffer, size_t(n));
  if (output.size() > kKeptOutput) output.erase(0, output.size() - kKeptOutput);
  return true;
}

int WaitFor(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Asks a program to end, and ends it when it does not.
int End(pid_t child, std::chrono::milliseconds grace) {
  ::kill(child, SIGTERM);
  const auto end = std::chrono::steady_clock::now() + grace;
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::kill(child, SIGKILL);
  return WaitFor(child);
}

}  // namespace

Result<ProcessResult> RunProgram(const std::vector<std::string>& arguments,
                                 const ProcessOptions& options) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int pipes[2];
  if (::pipe2(pipes, O_CLOEXEC) != 0)
    return IoError("cannot make a pipe: {}", std::strerror(errno));

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipes[1], 2);
  if (!options.folder.empty()) {
    posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
  }
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipes[1]);
  ProcessResult result;
  if (failed) {
    ::close(pipes[0]);
    result.exit_code = 127;
    result.output = std::strerror(failed);
    return result;
  }

  Status running;
  const auto start = std::chrono::steady_clock::now();
  for (bool open = true; open && running;) {
    pollfd waiting{pipes[0], POLLIN, 0};
    if (::poll(&waiting, 1, 100) > 0) open = ReadSome(pipes[0], result.output);
    if (options.keep_running && !options.keep_running()) {
      running = Fail(ErrorKind::kCancelled, "{}: stopped", arguments[0]);
    } else if (options.time_limit.count() > 0 &&
               std::chrono::steady_clock::now() - start > options.time_limit) {
      running = IoError("{}: did not end within {} s", arguments[0],
                        std::chrono::duration<double>(options.time_limit).count());
    }
  }
  ::close(pipes[0]);
  const int status = running ? WaitFor(child) : End(child, options.term_grace);
  if (!running) return std::unexpected(std::move(running).error());
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

}  // namespace nibble
