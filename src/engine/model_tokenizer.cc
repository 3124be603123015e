#include "engine/model_tokenizer.h"

#include <string_view>

#include "container/gguf.h"
#include "model/config/model_file.h"
#include "tokenizer/load.h"
#include "tokenizer/parts.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

Result<Tokenizer> FromGguf(const GgufFile& file, const fs::path& path) {
  NIBBLE_TRY(const std::string_view kind, file.GetStringOr("tokenizer.ggml.model", "none"));
  if (kind == "none" || kind == "no_vocab") return Tokenizer::Make({});
  auto tokenizer = LoadGgufTokenizer(file);
  if (!tokenizer) return Within(path.string(), std::move(tokenizer).error());
  return tokenizer;
}

// path: the folder, or a file in it.
Result<Tokenizer> FromFolder(const fs::path& path) {
  std::error_code ignored;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path folder = fs::is_directory(path, ignored) ? path : parent;
  if (FindTokenizerFile(folder).empty()) return Tokenizer::Make({});
  return LoadTokenizer(folder);
}

}  // namespace

Result<Tokenizer> LoadModelTokenizer(const ModelFile& file) {
  if (file.gguf() != nullptr) return FromGguf(*file.gguf(), file.path());
  if (file.path().empty()) return Tokenizer::Make({});  // random weights
  return FromFolder(file.path());
}

Result<Tokenizer> LoadModelTokenizer(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored) || path.extension() == ".safetensors" ||
      path.extension() == ".json") {
    return FromFolder(path);
  }
  NIBBLE_TRY(const GgufFile file, GgufFile::Open(path));
  return FromGguf(file, path);
}

}  // namespace nibble
