#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

// A variable of the environment; nothing when unset or empty.
std::optional<std::string> Environment(const char* name);

std::filesystem::path HomeFolder();      // $HOME, else "."
std::filesystem::path CacheFolder();     // $XDG_CACHE_HOME, else ~/.cache
std::filesystem::path HuggingFaceHub();  // $HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub
std::filesystem::path LlamaCppCache();   // $LLAMA_CACHE, else ~/.cache/llama.cpp
std::filesystem::path OllamaModels();    // $OLLAMA_MODELS, else ~/.ollama/models

// models/shakespeare beside the installed program (<program>/../share/nibble); nothing when it is
// not there.
std::optional<std::filesystem::path> BuiltInModel();

// What lies in a folder, sorted; nothing when it cannot be read.
std::vector<std::filesystem::path> FolderEntries(const std::filesystem::path& folder);

// The one way to write a path that may not exist yet: absolute, links followed, without "." and
// "..", and without a slash at its end.
std::filesystem::path Normalised(const std::filesystem::path& path);

// Creates a folder and those above it.
Status MakeFolder(const std::filesystem::path& folder);

// A fresh folder inside `parent`, removed with all it holds when the value goes.
class ScratchFolder {
 public:
  static Result<ScratchFolder> Create(const std::filesystem::path& parent);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// SHA-256 of a file in hexadecimal digits.
Result<std::string> HashFile(const std::filesystem::path& path);

// Error with both figures when the file system of `folder` has less than `bytes` free.
Status CheckFreeSpace(const std::filesystem::path& folder, uint64_t bytes);

}  // namespace nibble
