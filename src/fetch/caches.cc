#include "fetch/caches.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "container/json.h"
#include "fetch/curl_handle.h"
#include "fetch/hugging_face.h"
#include "fetch/paths.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxFolderDepth = 8;
constexpr size_t kMaxEntries = 200'000;

// Regular files below a folder, links followed, hidden folders and unfinished pulls left out.
std::vector<fs::path> FilesBelow(const fs::path& root) {
  std::vector<fs::path> out;
  std::error_code error;
  auto it =
      fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator() && out.size() < kMaxEntries;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (it->is_directory(ignored) && (name.starts_with('.') || it.depth() >= kMaxFolderDepth)) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(ignored)) {
      out.push_back(it->path());
    }
  }
  std::ranges::sort(out);
  return out;
}

uint64_t SizeOf(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

std::string Relative(const fs::path& path, const fs::path& root) {
  return path.lexically_relative(root).generic_string();
}

// The snapshot that refs/main names, else the newest.
fs::path CurrentSnapshot(const fs::path& repo) {
  std::string revision;
  std::ifstream(repo / "refs" / "main") >> revision;
  std::error_code error;
  const fs::path named = repo / "snapshots" / revision;
  if (!revision.empty() && revision.find('/') == revision.npos && fs::is_directory(named, error)) {
    return named;
  }
  fs::path newest;
  fs::file_time_type newest_time{};
  for (const fs::path& snapshot : FolderEntries(repo / "snapshots")) {
    const auto time = fs::last_write_time(snapshot, error);
    if (newest.empty() || time > newest_time) {
      newest = snapshot;
      newest_time = time;
    }
  }
  return newest;
}

// The file that holds an Ollama manifest's weights.
std::optional<fs::path> OllamaBlob(const fs::path& manifest, const fs::path& models) {
  const auto document = JsonDocument::ReadFile(manifest.string(), {.max_bytes = 1 << 20});
  if (!document) return std::nullopt;
  const auto layers = document->root().Find("layers");
  const auto list = layers ? layers->AsArray() : Result<JsonArray>(std::unexpected(Error{}));
  if (!list) return std::nullopt;
  for (const JsonValue layer : *list) {
    const auto type = layer.GetString("mediaType");
    const auto digest = layer.GetString("digest");
    if (!type || *type != "application/vnd.ollama.image.model" || !digest) continue;
    if (!digest->starts_with("sha256:") || !IsSha256(digest->substr(7))) continue;
    const fs::path blob = models / "blobs" / ("sha256-" + std::string(digest->substr(7)));
    char magic[4] = {};
    std::ifstream(blob, std::ios::binary).read(magic, 4);
    if (std::string_view(magic, 4) == "GGUF") return blob;
  }
  return std::nullopt;
}

}  // namespace

std::vector<fs::path> CheckpointFiles(const fs::path& folder) {
  auto files = FolderEntries(folder);
  std::erase_if(files, [](const fs::path& file) {
    std::error_code error;
    return !fs::is_regular_file(file, error) || IsGguf(file.filename().string());
  });
  return files;
}

std::vector<StoredModel> ModelsBelow(const fs::path& root, const std::string& origin) {
  std::vector<StoredModel> out;
  std::set<fs::path> folders;
  for (const fs::path& file : FilesBelow(root)) {
    const std::string name = file.filename().string();
    if (name.ends_with(".safetensors")) folders.insert(file.parent_path());
    if (!IsGguf(name)) continue;
    const auto split = ParseGgufShard(name);
    if (split && split->number != 1) continue;
    StoredModel model{Relative(file, root), file, SizeOf(file), origin};
    for (int part = 2; split && part <= split->count; ++part) {
      model.bytes += SizeOf(file.parent_path() / split->File(part, kGgufExtension));
    }
    out.push_back(std::move(model));
  }
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (!fs::is_regular_file(folder / "config.json", error)) continue;
    StoredModel model{Relative(folder, root), folder, 0, origin};
    for (const fs::path& file : CheckpointFiles(folder)) model.bytes += SizeOf(file);
    out.push_back(std::move(model));
  }
  return out;
}

std::vector<StoredModel> HuggingFaceModels(const fs::path& hub) {
  std::vector<StoredModel> out;
  for (const fs::path& folder : FolderEntries(hub)) {
    std::string repo = folder.filename().string();
    if (!repo.starts_with("models--")) continue;
    repo.erase(0, 8);
    if (const size_t dashes = repo.find("--"); dashes != repo.npos) repo.replace(dashes, 2, "/");
    const fs::path snapshot = CurrentSnapshot(folder);
    if (snapshot.empty()) continue;
    for (StoredModel& model : ModelsBelow(snapshot, "hugging face")) {
      model.name = model.name == "." ? repo : repo + "/" + model.name;
      out.push_back(std::move(model));
    }
  }
  return out;
}

std::vector<StoredModel> LlamaCppModels(const fs::path& cache) {
  auto models = ModelsBelow(cache, "llama.cpp");
  std::erase_if(models, [](const StoredModel& model) { return model.name == "."; });
  return models;
}

std::vector<StoredModel> OllamaModelsIn(const fs::path& models) {
  std::vector<StoredModel> out;
  const fs::path manifests = models / "manifests";
  for (const fs::path& manifest : FilesBelow(manifests)) {
    // registry.ollama.ai/library/llama3/8b is called llama3:8b.
    const std::string model = Relative(manifest.parent_path(), manifests);
    const auto blob = OllamaBlob(manifest, models);
    if (!blob) continue;
    std::string name = model;
    for (const std::string_view known : {"registry.ollama.ai/library/", "registry.ollama.ai/"}) {
      if (!name.starts_with(known)) continue;
      name.erase(0, known.size());
      break;
    }
    out.push_back({name + ":" + manifest.filename().string(), *blob, SizeOf(*blob), "ollama"});
  }
  return out;
}

}  // namespace nibble
