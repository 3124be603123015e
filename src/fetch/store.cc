#include "fetch/store.h"

#include <algorithm>

#include "base/text.h"
#include "fetch/caches.h"
#include "fetch/hugging_face.h"
#include "fetch/named_models.h"
#include "fetch/paths.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kBuiltIn = "shakespeare";
constexpr std::string_view kOwn = "nibble";

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Models of nibble's own store; named ones under their names.
std::vector<StoredModel> OwnModels() {
  auto models = ModelsBelow(ModelStore(), std::string(kOwn));
  // A checkpoint that lies in the store's own folder has no name there.
  std::erase_if(models, [](const StoredModel& model) { return model.name == "."; });
  for (StoredModel& model : models) {
    for (const NamedModel& named : NamedModels()) {
      if (model.name == named.file) model.name = named.name;
    }
  }
  return models;
}

std::vector<StoredModel> OtherModels() {
  auto out = HuggingFaceModels(HuggingFaceHub());
  std::ranges::move(LlamaCppModels(LlamaCppCache()), std::back_inserter(out));
  std::ranges::move(OllamaModelsIn(OllamaModels()), std::back_inserter(out));
  return out;
}

// Whether "org/repo:TAG" means this model, whose name is "org/repo" or "org/repo/file.gguf".
bool Means(const RepoName& wanted, const StoredModel& model) {
  if (model.name == wanted.repo) return wanted.quant.empty();
  if (!model.name.starts_with(wanted.repo + "/")) return false;
  const std::string file = model.name.substr(wanted.repo.size() + 1);
  return wanted.quant.empty() || HasQuantTag(file, wanted.quant);
}

// The models that a name may mean: the one of exactly that name, else the one it is short for, else
// those of a repository.
std::vector<const StoredModel*> Meant(const std::vector<StoredModel>& models,
                                      const std::string& name) {
  for (const std::string_view ending : {"", ":latest", ".gguf"}) {
    if (name.contains('/') && ending == ".gguf") continue;
    const auto it = std::ranges::find(models, name + std::string(ending), &StoredModel::name);
    if (it != models.end()) return {&*it};
  }
  std::vector<const StoredModel*> out;
  const auto repo = RepoName::Parse(name);
  for (const StoredModel& model : models) {
    if (repo && Means(*repo, model)) out.push_back(&model);
  }
  return out;
}

const StoredModel* Match(const std::vector<StoredModel>& models, const std::string& name) {
  const auto meant = Meant(models, name);
  // As a pull does: the usual 4-bit mix where no quantisation is named.
  for (const StoredModel* model : meant) {
    if (HasQuantTag(model->name, "Q4_K_M")) return model;
  }
  return meant.empty() ? nullptr : meant.front();
}

std::string KnownNames() {
  std::string out(kBuiltIn);
  for (const NamedModel& model : NamedModels()) out += ", " + std::string(model.name);
  return out;
}

bool IsStrictlyBelow(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && relative != "." && *relative.begin() != "..";
}

// Removes one file, of a link the link alone, and folders above it that became empty, up to the
// store.
Status RemoveFile(const fs::path& store, const fs::path& path) {
  if (!IsStrictlyBelow(path, store)) {
    return BadInput("{}: not in {}, nothing is removed", path.string(), store.string());
  }
  std::error_code error;
  fs::remove(path, error);
  if (error) return IoError("{}: cannot remove: {}", path.string(), error.message());
  // Folders that are not empty stay: removing them fails.
  for (fs::path folder = path.parent_path(); IsStrictlyBelow(folder, store);
       folder = folder.parent_path()) {
    if (!fs::remove(folder, error)) break;
  }
  return {};
}

// The files that ListModels counts as this model, those that make a model of them last, so that
// what an error leaves can still be named.
std::vector<fs::path> FilesOf(const StoredModel& model) {
  std::error_code error;
  if (fs::is_directory(model.path, error)) {
    auto files = CheckpointFiles(model.path);
    std::ranges::stable_partition(
        files, [](const fs::path& file) { return file.extension() != ".safetensors"; });
    std::ranges::stable_partition(
        files, [](const fs::path& file) { return file.filename() != "config.json"; });
    return files;
  }
  std::vector<fs::path> files;
  const auto split = ParseGgufShard(model.path.filename().string());
  for (int part = split ? split->count : 1; part > 1; --part) {
    files.push_back(model.path.parent_path() / split->File(part, kGgufExtension));
  }
  files.push_back(model.path);
  return files;
}

// Names of models are relative paths without detours.
bool IsPlainName(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() &&
         std::ranges::none_of(path, [](const fs::path& part) {
           return part.empty() || part == "." || part == "..";
         });
}

}  // namespace

fs::path ModelStore() {
  const auto models = Environment("NIBBLE_MODELS");
  return Normalised(models ? fs::path(*models) : CacheFolder() / "nibble" / "models");
}

bool CanPull(std::string_view name) {
  return FindNamedModel(name) || name.starts_with("http://") || name.starts_with("https://") ||
         RepoName::Parse(name);
}

Result<fs::path> ResolveModel(const std::string& name) {
  if (name.empty()) return BadInput("no model given");
  if (Exists(name)) return fs::path(name);
  if (const auto named = FindNamedModel(name)) {
    if (const fs::path path = ModelStore() / named->file; Exists(path)) return path;
    return BadInput("{}: not here yet; `nibble pull {}` fetches it ({})", name, name,
                    FormatBytes(static_cast<double>(named->bytes)));
  }
  if (name == kBuiltIn) {
    if (const auto folder = BuiltInModel()) return *folder;
  }
  if (const auto own = OwnModels(); const StoredModel* model = Match(own, name)) {
    return model->path;
  }
  if (const auto others = OtherModels(); const StoredModel* model = Match(others, name)) {
    return model->path;
  }
  if (name == kBuiltIn) {
    return BadInput(
        "{}: its folder is missing; it is installed as share/nibble/models/{} beside "
        "the program's folder",
        name, name);
  }
  if (CanPull(name)) return BadInput("{}: not here yet; `nibble pull {}` fetches it", name, name);
  return BadInput(
      "{}: no such file or folder, and no model of that name (known: {}, org/repo:QUANT "
      "of Hugging Face, URLs; `nibble list` shows what is here)",
      name, KnownNames());
}

std::vector<StoredModel> ListModels() {
  auto out = OwnModels();
  if (const auto folder = BuiltInModel()) {
    auto built_in = ModelsBelow(*folder, "built in");
    if (!built_in.empty()) {
      built_in[0].name = kBuiltIn;
      out.push_back(std::move(built_in[0]));
    }
  }
  std::ranges::move(OtherModels(), std::back_inserter(out));
  return out;
}

Status RemoveModel(const std::string& name) {
  if (!IsPlainName(name)) {
    return BadInput("'{}': not the name of a model; `nibble list` shows the names", name);
  }
  const fs::path store = ModelStore();
  const auto own = OwnModels();
  const auto meant = Meant(own, name);
  if (meant.size() > 1) {
    std::string names;
    for (const StoredModel* model : meant) names += "\n  " + model->name;
    return BadInput("{}: may mean any of these, name one:{}", name, names);
  }
  if (meant.empty()) {
    const auto others = OtherModels();
    if (const StoredModel* other = Match(others, name)) {
      return BadInput("{}: lies in the cache of {} ({}); nibble deletes only from its own store",
                      name, other->origin, other->path.string());
    }
    if (name == kBuiltIn) return BadInput("{}: comes with nibble and is not removed", name);
    return BadInput("{}: not in {}", name, store.string());
  }
  for (const fs::path& file : FilesOf(*meant.front())) {
    NIBBLE_RETURN_IF_ERROR(RemoveFile(store, file));
  }
  return {};
}

}  // namespace nibble
