#include "engine/model_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "container/gguf.h"
#include "tokenizer/load.h"
#include "tokenizer/parts.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

Result<Tokenizer> FromGguf(const fs::path& path) {
  NIBBLE_TRY(const GgufFile file, GgufFile::Open(path));
  NIBBLE_TRY(const std::string_view kind, file.GetStringOr("tokenizer.ggml.model", "none"));
  if (kind == "none" || kind == "no_vocab") return Tokenizer::Make({});
  auto tokenizer = LoadGgufTokenizer(file);
  if (!tokenizer) return Within(path.string(), std::move(tokenizer).error());
  return tokenizer;
}

bool HasTokenizer(const fs::path& folder) {
  constexpr std::string_view kNames[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                         "encoder.json", "tokenizer.bin"};
  return std::ranges::any_of(kNames, [&](std::string_view name) {
    std::error_code ignored;
    return fs::exists(folder / name, ignored);
  });
}

Result<Tokenizer> FromFolder(const fs::path& folder) {
  if (!HasTokenizer(folder)) return Tokenizer::Make({});
  return LoadTokenizer(folder);
}

}  // namespace

Result<Tokenizer> LoadModelTokenizer(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return FromFolder(path);
  const bool safetensors = path.extension() == ".safetensors" || path.extension() == ".json";
  if (!safetensors) return FromGguf(path);
  return FromFolder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace nibble
