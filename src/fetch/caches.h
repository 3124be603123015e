#pragma once

#include <filesystem>
#include <vector>

#include "fetch/store.h"

namespace nibble {

// Models below one folder: GGUF files (of a split one the first part, with the bytes of all) and
// folders of safetensors with a config.json. Names are paths relative to `root`;
// "." is a checkpoint in `root` itself.
std::vector<StoredModel> ModelsBelow(const std::filesystem::path& root, const std::string& origin);

// The files of a checkpoint's folder: all but GGUFs, which are models of their own, and folders.
std::vector<std::filesystem::path> CheckpointFiles(const std::filesystem::path& folder);

// What other tools have downloaded. Names: "org/repo/file.gguf" or "org/repo" (Hugging Face, the
// revision that main points to), the file's name (llama.cpp), "model:tag" (Ollama).
std::vector<StoredModel> HuggingFaceModels(const std::filesystem::path& hub);
std::vector<StoredModel> LlamaCppModels(const std::filesystem::path& cache);
std::vector<StoredModel> OllamaModelsIn(const std::filesystem::path& models);

}  // namespace nibble
