#include "fetch/hugging_face.h"

#include <algorithm>
#include <fstream>

#include "base/text.h"
#include "container/json.h"
#include "fetch/curl_handle.h"
#include "fetch/download.h"
#include "fetch/paths.h"

namespace nibble {
namespace {

constexpr size_t kMaxListing = 32u << 20;
constexpr int kMaxPages = 100;

bool IsNamePart(std::string_view text) {
  if (text.empty() || text.size() > 200 || text.front() == '.') return false;
  return std::ranges::all_of(
      text, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

// Paths come from the network and become names of files.
bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > 1000 || path.front() == '/' || path.find('\\') != path.npos) {
    return false;
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return std::ranges::none_of(path, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

std::string Escaped(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) || std::string_view("-._~/").contains(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string StringOr(const JsonValue& object, std::string_view key) {
  const auto found = object.Find(key);
  const auto text = found ? found->AsString() : Result<std::string_view>("");
  return text ? std::string(*text) : "";
}

std::optional<uint64_t> BytesOf(const JsonValue& object, std::string_view key) {
  const auto found = object.Find(key);
  const auto number = found ? found->AsInt() : Result<int64_t>(-1);
  return number && *number >= 0 ? std::optional(uint64_t(*number)) : std::nullopt;
}

// An entry of /tree ({path, size, lfs: {oid, size}}) or of siblings ({rfilename, size, lfs: {…}}).
RepoFile FileOf(const JsonValue& entry, std::string_view name_key) {
  RepoFile file{StringOr(entry, name_key), BytesOf(entry, "size"), ""};
  const auto lfs = entry.Find("lfs");
  if (!lfs || !lfs->is_object()) return file;
  if (const auto bytes = BytesOf(*lfs, "size")) file.bytes = bytes;
  for (const char* key : {"oid", "sha256"}) {
    std::string digest = AsciiLower(StringOr(*lfs, key));
    if (digest.starts_with("sha256:")) digest.erase(0, 7);
    if (IsSha256(digest)) file.sha256 = digest;
  }
  return file;
}

void AddFiles(const JsonValue& list, std::string_view name_key, std::vector<RepoFile>& files) {
  const auto entries = list.AsArray();
  if (!entries) return;
  for (const JsonValue entry : *entries) {
    if (StringOr(entry, "type") == "directory") continue;
    RepoFile file = FileOf(entry, name_key);
    if (IsSafePath(file.path)) files.push_back(std::move(file));
  }
}

bool IsSupplement(const std::string& path) {
  if (path.find('/') != path.npos) return false;
  const std::string name = AsciiLower(path);
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  return ends(".json") || ends(".model") || ends(".tiktoken") || ends(".jinja") ||
         name == "merges.txt" || name == "vocab.txt";
}

// Weights of a checkpoint: model*.safetensors, and others only where there are none of that name.
std::vector<RepoFile> Checkpoint(const std::vector<RepoFile>& available) {
  std::vector<RepoFile> weights, supplements;
  for (const bool only_model : {true, false}) {
    if (!weights.empty()) break;
    for (const RepoFile& file : available) {
      const bool top_level = file.path.find('/') == std::string::npos;
      if (!top_level || !AsciiLower(file.path).ends_with(".safetensors")) continue;
      if (!only_model || AsciiLower(file.path).starts_with("model")) weights.push_back(file);
    }
  }
  if (weights.empty()) return {};
  for (const RepoFile& file : available) {
    if (IsSupplement(file.path) && file.path != "config.json") supplements.push_back(file);
  }
  std::vector<RepoFile> out;
  const auto config = std::ranges::find(available, "config.json", &RepoFile::path);
  if (config != available.end()) out.push_back(*config);
  out.insert(out.end(), weights.begin(), weights.end());
  out.insert(out.end(), supplements.begin(), supplements.end());
  return out;
}

// All parts of the file that `first` is the first part of.
Result<std::vector<RepoFile>> AllParts(const RepoFile& first,
                                       const std::vector<RepoFile>& available) {
  const auto split = ParseGgufShard(first.path);
  if (!split) return std::vector<RepoFile>{first};
  std::vector<RepoFile> parts;
  for (int part = 1; part <= split->count; ++part) {
    const std::string name = split->File(part, kGgufExtension);
    const auto it = std::ranges::find(available, name, &RepoFile::path);
    if (it == available.end()) return IoError("the repository lacks the part {}", name);
    parts.push_back(*it);
  }
  return parts;
}

// Files that are no language model by themselves.
bool IsSideFile(const std::string& path) {
  const std::string name = AsciiLower(path);
  return name.find("mmproj") != name.npos || name.find("imatrix") != name.npos ||
         name.find("lora") != name.npos;
}

std::string Listed(const std::vector<const RepoFile*>& files) {
  std::string out;
  for (size_t i = 0; i < files.size() && i < 40; ++i) out += "\n  " + files[i]->path;
  return out;
}

}  // namespace

std::optional<RepoName> RepoName::Parse(std::string_view text) {
  RepoName out;
  const size_t colon = text.find(':');
  if (colon != text.npos) {
    out.quant = text.substr(colon + 1);
    if (!IsNamePart(out.quant)) return std::nullopt;
    text = text.substr(0, colon);
  }
  const size_t slash = text.find('/');
  if (slash == text.npos || !IsNamePart(text.substr(0, slash)) ||
      !IsNamePart(text.substr(slash + 1))) {
    return std::nullopt;
  }
  const std::string name = AsciiLower(text);
  if (name.ends_with(kGgufExtension) || name.ends_with(".safetensors")) return std::nullopt;
  out.repo = text;
  return out;
}

bool IsGguf(std::string_view path) { return AsciiLower(path).ends_with(kGgufExtension); }

std::optional<ShardName> ParseGgufShard(std::string_view path) {
  return ParseShardName(path, kGgufExtension);
}

bool HasQuantTag(std::string_view file, std::string_view quant) {
  const std::string name = AsciiLower(file), tag = AsciiLower(quant);
  const auto is_border = [](char c) {
    return !std::isalnum(static_cast<unsigned char>(c)) && c != '_';
  };
  for (size_t at = name.find(tag); at != name.npos; at = name.find(tag, at + 1)) {
    const size_t end = at + tag.size();
    if ((at == 0 || is_border(name[at - 1])) && (end == name.size() || is_border(name[end]))) {
      return true;
    }
  }
  return false;
}

Result<std::vector<RepoFile>> ChooseFiles(const RepoName& name,
                                          const std::vector<RepoFile>& available) {
  std::vector<const RepoFile*> ggufs;
  for (const RepoFile& file : available) {
    const auto split = ParseGgufShard(file.path);
    if (IsGguf(file.path) && !IsSideFile(file.path) && (!split || split->number == 1)) {
      ggufs.push_back(&file);
    }
  }
  std::ranges::sort(ggufs, [](const RepoFile* a, const RepoFile* b) {
    return std::pair(a->path.size(), a->path) < std::pair(b->path.size(), b->path);
  });
  if (ggufs.empty()) {
    auto checkpoint = Checkpoint(available);
    if (checkpoint.empty()) {
      return BadInput("{}: the repository holds neither GGUF nor safetensors files", name.repo);
    }
    if (!name.quant.empty()) {
      return BadInput(
          "{}: the repository holds no GGUF, so there is no '{}' in it; pull '{}' for "
          "its safetensors",
          name.repo, name.quant, name.repo);
    }
    return checkpoint;
  }
  // Not said: the usual 4-bit mix, else the only or first one.
  for (const std::string& quant : {name.quant, std::string("Q4_K_M")}) {
    if (quant.empty()) continue;
    for (const RepoFile* file : ggufs) {
      if (HasQuantTag(file->path, quant)) return AllParts(*file, available);
    }
    if (!name.quant.empty()) {
      return BadInput("{}: no GGUF with '{}' in its name; there are:{}", name.repo, name.quant,
                      Listed(ggufs));
    }
  }
  return AllParts(*ggufs.front(), available);
}

Hub Hub::FromEnvironment() {
  std::string endpoint = Environment("HF_ENDPOINT").value_or("https://huggingface.co");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  std::string token = Environment("HF_TOKEN").value_or("");
  if (token.empty()) {
    // Where huggingface-cli login leaves it.
    const auto home = Environment("HF_HOME");
    const auto folder = home ? std::filesystem::path(*home) : CacheFolder() / "huggingface";
    std::ifstream(folder / "token") >> token;
  }
  return Hub(std::move(endpoint), std::move(token));
}

std::string Hub::UrlOf(const std::string& repo, const std::string& revision,
                       const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint_, repo, Escaped(revision), Escaped(path));
}

Result<std::vector<RepoFile>> Hub::ListFiles(const std::string& repo,
                                             const std::string& revision) const {
  std::vector<RepoFile> files;
  std::string url =
      fmt::format("{}/api/models/{}/tree/{}?recursive=true", endpoint_, repo, Escaped(revision));
  int status = 0;
  for (int page = 0; !url.empty() && page < kMaxPages; ++page) {
    // A following page is asked for only where the first one was.
    if (!url.starts_with(endpoint_ + "/")) break;
    NIBBLE_TRY(TextAnswer answer, FetchText(url, token_, kMaxListing));
    status = answer.status;
    if (status != 200) break;
    auto document = JsonDocument::Parse(std::move(answer.body));
    if (!document) return Within(ShownUrl(url), document.error());
    AddFiles(document->root(), "path", files);
    url = answer.next_url;
  }
  // Mirrors that have no tree list the files with the model.
  for (const std::string& form : {fmt::format("{}/revision/{}?blobs=true", repo, Escaped(revision)),
                                  fmt::format("{}?blobs=true", repo)}) {
    if (status != 404 && !(status == 200 && files.empty())) break;
    url = endpoint_ + "/api/models/" + form;
    NIBBLE_TRY(TextAnswer answer, FetchText(url, token_, kMaxListing));
    status = answer.status;
    if (status != 200) continue;
    auto document = JsonDocument::Parse(std::move(answer.body));
    if (!document) return Within(ShownUrl(url), document.error());
    if (const auto siblings = document->root().Find("siblings")) {
      AddFiles(*siblings, "rfilename", files);
    }
  }
  if (status == 404) {
    return BadInput("{}: no such model (or revision '{}') at {}", repo, revision, endpoint_);
  }
  if (status != 200) return IoError("{}", DescribeStatus(status, url, !token_.empty()));
  return files;
}

}  // namespace nibble
