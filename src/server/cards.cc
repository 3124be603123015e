#include "server/cards.h"

#include <string>
#include <system_error>

#include "fetch/paths.h"
#include "model/config/model_file.h"
#include "quantize/card.h"

namespace nibble::server {
namespace {

constexpr size_t kMostModels = 256;

bool IsModel(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return std::filesystem::is_regular_file(path / "config.json", ignored);
  }
  return path.extension() == ".gguf" && std::filesystem::is_regular_file(path, ignored);
}

Json ModelCard(const std::filesystem::path& path) {
  Json out = {{"name", path.stem().string()}, {"path", path.string()}};
  const auto file = ModelFile::Open(path);
  if (!file) {
    out["problem"] = file.error().message;
    return out;
  }
  const ModelConfig& config = file->config();
  const auto bytes = static_cast<double>(file->source().total_bytes());
  out["architecture"] = config.architecture;
  out["parameters"] = config.parameters;
  out["file_bytes"] = file->file_bytes();
  out["weight_bytes"] = file->source().total_bytes();
  out["bits_per_weight"] = 8 * bytes / static_cast<double>(config.parameters);
  out["card"] = nullptr;
  if (const auto text = StoredCard(*file)) {
    Json card = Json::parse(*text, nullptr, false);
    if (card.is_object()) out["card"] = std::move(card);
  }
  return out;
}

}  // namespace

Json CardsJson(const std::filesystem::path& folder) {
  Json models = Json::array();
  for (const std::filesystem::path& path : FolderEntries(folder)) {
    if (models.size() == kMostModels) break;
    if (IsModel(path)) models.push_back(ModelCard(path));
  }
  return {{"folder", folder.string()}, {"models", std::move(models)}};
}

}  // namespace nibble::server
