#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/shard_name.h"

namespace nibble {

// "org/repo" or "org/repo:Q4_K_M".
struct RepoName {
  std::string repo;   // "org/repo"
  std::string quant;  // empty: not said
  static std::optional<RepoName> Parse(std::string_view text);
};

struct RepoFile {
  std::string path;  // inside the repository
  std::optional<uint64_t> bytes;
  std::string sha256;  // empty: not known (small files)
};

// Whether a GGUF's name says that it is of this quantisation: "…-Q4_K_M.gguf",
// ".q4_k_m-00001-of-…".
bool HasQuantTag(std::string_view file, std::string_view quant);

inline constexpr std::string_view kGgufExtension = ".gguf";
// Nothing for a GGUF in one file. `path` may have folders before the name.
std::optional<ShardName> ParseGgufShard(std::string_view path);

// The files to fetch: one GGUF with its further parts, or, when there is no GGUF, a checkpoint of
// safetensors with its configuration and tokenizer. Fetched from the last to the first: the first
// is what makes a model of them (the first part; config.json). Errors list what there is.
Result<std::vector<RepoFile>> ChooseFiles(const RepoName& name,
                                          const std::vector<RepoFile>& available);
bool IsGguf(std::string_view path);

// The Hugging Face hub, or what stands in for it.
class Hub {
 public:
  // $HF_ENDPOINT (default https://huggingface.co) and $HF_TOKEN.
  static Hub FromEnvironment();
  Hub(std::string endpoint, std::string token)
      : endpoint_(std::move(endpoint)), token_(std::move(token)) {}

  Result<std::vector<RepoFile>> ListFiles(const std::string& repo,
                                          const std::string& revision) const;
  std::string UrlOf(const std::string& repo, const std::string& revision,
                    const std::string& path) const;
  const std::string& token() const { return token_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::string endpoint_;
  std::string token_;
};

}  // namespace nibble
