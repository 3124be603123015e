#include "tokenizer/load.h"

#include <fstream>
#include <new>
#include <optional>

#include "container/gguf.h"
#include "container/json.h"
#include "tokenizer/load_parts.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxFileBytes = uintmax_t{256} << 20;

Result<std::string> ReadText(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return IoError("{}: {}", path.string(), error.message());
  if (size > kMaxFileBytes) {
    return BadInput("{}: {} bytes is more than a tokenizer file has: the limit is {}",
                    path.string(), size, kMaxFileBytes);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) return IoError("{}: could not be read", path.string());
  return text;
}

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The files beside a tokenizer.
struct Folder {
  std::optional<hf::TokenizerConfig> config;
  const hf::TokenizerConfig* config_or_null() const { return config ? &*config : nullptr; }
};

Result<Folder> ReadFolder(const fs::path& folder) {
  Folder out;
  const fs::path config_path = folder / "tokenizer_config.json";
  if (IsFile(config_path)) {
    NIBBLE_TRY(const JsonDocument document, JsonDocument::ReadFile(config_path.string()));
    auto config = hf::ParseTokenizerConfig(document.root());
    if (!config) return Within(config_path.string(), config.error());
    out.config = *std::move(config);
  }
  return out;
}

// chat_template.jinja wins over tokenizer_config.json, as in transformers.
Status ReadTemplateFile(const fs::path& folder, TokenizerParts& parts) {
  const fs::path path = folder / "chat_template.jinja";
  if (!IsFile(path)) return {};
  NIBBLE_TRY(parts.chat_template, ReadText(path));
  return {};
}

// End tokens of generation_config.json, else of config.json.
Status ReadEndTokens(const fs::path& folder, TokenizerParts& parts) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    if (!IsFile(path)) continue;
    NIBBLE_TRY(const JsonDocument document, JsonDocument::ReadFile(path.string()));
    auto ids = hf::ParseEndTokenIds(document.root());
    if (!ids) return Within(path.string(), ids.error());
    for (const TokenId id : *ids) {
      if (parts.vocabulary.Has(id.value())) parts.end_tokens.push_back(id);
    }
    if (!ids->empty()) return {};
  }
  return {};
}

fs::path MergesBeside(const fs::path& vocab) {
  for (const char* name : {"merges.txt", "vocab.bpe"}) {
    if (IsFile(vocab.parent_path() / name)) return vocab.parent_path() / name;
  }
  return {};
}

Result<TokenizerParts> VocabFileParts(const fs::path& path, std::string text,
                                      const Folder& folder) {
  const fs::path merges_path = MergesBeside(path);
  if (merges_path.empty()) {
    return BadInput("no merges.txt or vocab.bpe beside it");
  }
  NIBBLE_TRY(const std::string merges, ReadText(merges_path));
  return VocabMergesParts(std::move(text), merges, folder.config_or_null());
}

// A line of base64, a space and a number.
bool LooksLikeTiktoken(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space > 64 || line.size() > 80) return false;
  return line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos &&
         line.substr(0, space).find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
             "uvwxyz0123456789+/=") == std::string_view::npos;
}

Result<TokenizerParts> FileParts(const fs::path& path, const Folder& folder) {
  NIBBLE_TRY(std::string text, ReadText(path));
  const std::string name = path.filename().string();
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && text[begin] == '{') {
    const bool whole = name.find("vocab") == std::string::npos && name != "encoder.json";
    if (whole) return TokenizerJsonParts(std::move(text), folder.config_or_null());
    return VocabFileParts(path, std::move(text), folder);
  }
  if (LooksLikeTiktoken(text)) return TiktokenParts(text, name);
  if (name.ends_with(".bin")) return Llama2cParts(text);
  return SentencePieceParts(text, folder.config_or_null());
}

Result<Tokenizer> Load(const fs::path& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const fs::path file = is_folder ? FindTokenizerFile(path) : path;
  if (file.empty()) {
    return BadInput(
        "{}: no tokenizer.json, *.model, *.tiktoken, tokenizer.bin or vocab.json with "
        "merges.txt in this folder",
        path.string());
  }
  if (!IsFile(file)) return IoError("{}: no such file", file.string());
  if (file.extension() == ".gguf") {
    NIBBLE_TRY(const GgufFile gguf, GgufFile::Open(file));
    auto tokenizer = LoadGgufTokenizer(gguf);
    if (!tokenizer) return Within(file.string(), tokenizer.error());
    return tokenizer;
  }
  NIBBLE_TRY(const Folder folder, ReadFolder(file.parent_path()));
  auto parts = FileParts(file, folder);
  if (!parts) return Within(file.string(), parts.error());
  if (is_folder) {
    NIBBLE_RETURN_IF_ERROR(ReadTemplateFile(path, *parts));
    NIBBLE_RETURN_IF_ERROR(ReadEndTokens(path, *parts));
  }
  auto tokenizer = Tokenizer::Make(*std::move(parts));
  if (!tokenizer) return Within(file.string(), tokenizer.error());
  return tokenizer;
}

}  // namespace

fs::path FindTokenizerFile(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model",
                           "sentencepiece.bpe.model", "vocab.json", "encoder.json"}) {
    if (IsFile(folder / name)) return folder / name;
  }
  fs::path found;  // the first by name: a folder's own order is any
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != ".tiktoken" && path.extension() != ".model") continue;
    if (IsFile(path) && (found.empty() || path < found)) found = path;
  }
  if (found.empty() && IsFile(folder / "tokenizer.bin")) return folder / "tokenizer.bin";
  return found;
}

Result<Tokenizer> LoadTokenizer(const fs::path& path) {
  try {
    return Load(path);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorKind::kNoRoom, "{}: no memory for the tokenizer", path.string());
  }
}

}  // namespace nibble
