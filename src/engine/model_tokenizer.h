#pragma once

#include <filesystem>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

class ModelFile;

// The tokenizer that lies in a model: inside a GGUF file (any shard), or beside the weights of a
// Hugging Face folder. A model that carries none gives an empty one (vocab_size() is 0): such a
// model can still be asked by ids.
Result<Tokenizer> LoadModelTokenizer(const ModelFile& file);
// The same where the file is not open.
Result<Tokenizer> LoadModelTokenizer(const std::filesystem::path& path);

}  // namespace nibble
