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

const StoredModel* Match(const std::vector<StoredModel>& models, const std::string& name) {
  for (const StoredModel& model : models) {
    if (model.name == name || model.name == name + ":latest" ||
        (!model.name.contains('/') && model.name == name + ".gguf")) {
      return &model;
    }
  }
  const auto repo = RepoName::Parse(name);
  if (!repo) return nullptr;
  const StoredModel* found = nullptr;
  for (const StoredModel& model : models) {
    if (!Means(*repo, model)) continue;
    // As a pull does: the usual 4-bit mix where no quantisation is named.
    if (!found || (repo->quant.empty() && HasQuantTag(model.name, "Q4_K_M"))) found = &model;
  }
  return found;
}

std::string KnownNames() {
  std::string out(kBuiltIn);
  for (const NamedModel& model : NamedModels()) out += ", " + std::string(model.name);
  return out;
}

// Removes a file, and folders above it that became empty, up to the store.
Status RemoveBelow(const fs::path& store, const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);  // of a link the link alone
  if (error) return IoError("{}: cannot remove: {}", path.string(), error.message());
  for (fs::path folder = path.parent_path(); folder != store && folder.has_relative_path();
       folder = folder.parent_path()) {
    if (!fs::is_empty(folder, error) || error || !fs::remove(folder, error)) break;
  }
  return {};
}

}  // namespace

fs::path ModelStore() {
  if (const auto models = Environment("NIBBLE_MODELS")) return *models;
  return CacheFolder() / "nibble" / "models";
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
  const fs::path store = ModelStore();
  const auto own = OwnModels();
  const StoredModel* model = Match(own, name);
  if (!model) {
    // The path of a model in the store, as `list` shows it.
    const auto it = std::ranges::find(own, fs::path(name).lexically_normal(), &StoredModel::path);
    if (it != own.end()) model = &*it;
  }
  if (!model) {
    const auto others = OtherModels();
    if (const StoredModel* other = Match(others, name)) {
      return BadInput("{}: lies in the cache of {} ({}); nibble deletes only from its own store",
                      name, other->origin, other->path.string());
    }
    if (name == kBuiltIn) return BadInput("{}: comes with nibble and is not removed", name);
    return BadInput("{}: not in {}", name, store.string());
  }
  if (model->path.lexically_normal() == store.lexically_normal()) {
    return BadInput("{}: is the store itself", name);
  }
  if (const auto split = ParseGgufShard(model->path.filename().string())) {
    for (int part = 2; part <= split->count; ++part) {
      NIBBLE_RETURN_IF_ERROR(
          RemoveBelow(store, model->path.parent_path() / split->File(part, kGgufExtension)));
    }
  }
  return RemoveBelow(store, model->path);
}

}  // namespace nibble
