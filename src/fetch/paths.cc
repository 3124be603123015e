#include "fetch/paths.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "base/sha256.h"
#include "base/text.h"

namespace nibble {
namespace fs = std::filesystem;

std::optional<std::string> Environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

fs::path HomeFolder() { return Environment("HOME").value_or("."); }

fs::path CacheFolder() {
  if (const auto cache = Environment("XDG_CACHE_HOME")) return *cache;
  return HomeFolder() / ".cache";
}

fs::path HuggingFaceHub() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto hub = Environment(name)) return *hub;
  }
  if (const auto home = Environment("HF_HOME")) return fs::path(*home) / "hub";
  return CacheFolder() / "huggingface" / "hub";
}

fs::path LlamaCppCache() {
  if (const auto cache = Environment("LLAMA_CACHE")) return *cache;
  return CacheFolder() / "llama.cpp";
}

fs::path OllamaModels() {
  if (const auto models = Environment("OLLAMA_MODELS")) return *models;
  return HomeFolder() / ".ollama" / "models";
}

std::optional<fs::path> BuiltInModel() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  const fs::path folder =
      program.parent_path().parent_path() / "share" / "nibble" / "models" / "shakespeare";
  return fs::is_directory(folder, error) ? std::optional(folder) : std::nullopt;
}

std::vector<fs::path> FolderEntries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    out.push_back(it->path());
  }
  std::ranges::sort(out);
  return out;
}

fs::path Normalised(const fs::path& path) {
  std::error_code error;
  fs::path out = fs::absolute(path, error);
  if (error) out = path;
  // Where links cannot be followed (a loop, no permission), as it is written.
  if (fs::path followed = fs::weakly_canonical(out, error); !error) {
    out = std::move(followed);
  } else {
    out = out.lexically_normal();
  }
  return out.has_filename() ? out : out.parent_path();
}

Status MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError("{}: cannot create the folder: {}", folder.string(), error.message());
  return {};
}

Result<ScratchFolder> ScratchFolder::Create(const fs::path& parent) {
  NIBBLE_RETURN_IF_ERROR(MakeFolder(parent));
  std::string name = (parent / ".pull-XXXXXX").string();
  if (!::mkdtemp(name.data())) {
    return IoError("{}: cannot create a folder: {}", parent.string(), std::strerror(errno));
  }
  return ScratchFolder(name);
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, fs::path())) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Result<std::string> HashFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return IoError("{}: cannot open: {}", path.string(), std::strerror(errno));
  Sha256 hash;
  const auto buffer = std::make_unique<std::array<char, 1 << 18>>();
  while (file.read(buffer->data(), buffer->size()) || file.gcount() > 0) {
    hash.Update(std::string_view(buffer->data(), size_t(file.gcount())));
  }
  if (file.bad()) return IoError("{}: cannot read", path.string());
  return hash.HexDigest();
}

Status CheckFreeSpace(const fs::path& folder, uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return {};
  return Fail(ErrorKind::kNoRoom, "{}: the download needs {} and the disk has {} free",
              folder.string(), FormatBytes(static_cast<double>(bytes)),
              FormatBytes(static_cast<double>(space.available)));
}

}  // namespace nibble
