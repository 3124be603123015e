#pragma once

#include <filesystem>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace nibble {

class Engine;

// Computes one sequence and writes the logits after every token as a NumPy file: float32
// [tokens, vocabulary], little-endian, C order. Written under a temporary name and renamed when
// complete. Errors: those of Engine::Submit, and of the file system.
Status WriteLogits(Engine& engine, std::span<const TokenId> ids, const std::filesystem::path& path);

}  // namespace nibble
