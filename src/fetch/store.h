#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

// Where models lie. nibble's own store is $NIBBLE_MODELS, else $XDG_CACHE_HOME/nibble/models, else
// ~/.cache/nibble/models, as an absolute path without links and detours; models in the caches of
// Hugging Face, llama.cpp and Ollama are used in place, never copied.
std::filesystem::path ModelStore();

// The file or folder of a model: a path that exists, the name of a model in the store or in another
// tool's cache, a named model ("smollm2-135m"), "org/repo:Q4_K_M" that has been pulled, or
// "shakespeare", which comes with nibble. Errors say how to get it.
Result<std::filesystem::path> ResolveModel(const std::string& name);

// Whether Pull knows how to fetch this: a named model, org/repo[:QUANT], or a URL.
bool CanPull(std::string_view name);

// A model that nibble knows by name.
struct NamedModel {
  std::string_view name;         // "smollm2-135m"
  std::string_view description;  // "SmolLM2 135M Instruct, Q4_1, Apache-2.0"
  std::string_view file;         // in the store
  uint64_t bytes;
  std::string_view sha256;
  std::string_view made_from = {};  // the named model whose float copy it is; empty: fetched
};
std::vector<NamedModel> NamedModels();

struct StoredModel {
  std::string name;  // what ResolveModel takes
  std::filesystem::path path;
  uint64_t bytes = 0;
  std::string origin;  // "nibble", "hugging face", "llama.cpp", "ollama"
};
std::vector<StoredModel> ListModels();

// Deletes the files of one model, named as ListModels names it (or as "org/repo:QUANT" where that
// is one model), from nibble's own store; other files stay. Errors: not there, in another tool's
// cache, several models are meant, not a name (empty, absolute, with "." or "..").
Status RemoveModel(const std::string& name);

struct PullOptions {
  std::filesystem::path to;  // folder; empty: the store
  std::string revision = "main";
  // Bytes done and of how many (0: unknown). False: stop (kCancelled; what is there is kept and
  // resumed next time).
  std::function<bool(uint64_t done, uint64_t total)> progress;
  // Makes the float copy of a model (NamedModel::made_from) at a path; without it such names are
  // refused.
  std::function<Status(const std::filesystem::path& model, const std::filesystem::path& copy)>
      make_float_copy = {};
};

struct PullResult {
  std::filesystem::path path;
  uint64_t bytes = 0;
  std::string sha256;  // of the file; empty for a folder of several
  double seconds = 0;
};

// Fetches a model, resuming what an earlier call left. Nothing stands under its final name before
// it is complete and its checksum, where one is known, is right.
Result<PullResult> Pull(const std::string& name, const PullOptions& options);

}  // namespace nibble
