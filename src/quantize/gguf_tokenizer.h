#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

class GgufWriter;

// Writes the tokenizer of a Hugging Face folder as GGUF's keys (tokenizer.ggml.*, chat template):
// BPE of tokenizer.json over bytes as "gpt2" with the pre-tokenizer that llama.cpp knows for it,
// BPE with byte fallback (tokenizer.json or tokenizer.model) as "llama". What was written is read
// back and must cut `sample`, and texts that are hard to cut, into the same ids; of the
// pre-tokenizers the first that does counts.
//
// vocabulary: the model's; ids that the tokenizer lacks become unused ones. scratch: a path beside
// which files may be made for the time of the call. An empty tokenizer writes "no_vocab". Errors: a
// kind of tokenizer that GGUF has no keys for, no pre-tokenizer that cuts the same.
Status WriteGgufTokenizer(const std::filesystem::path& model, const Tokenizer& tokenizer,
                          int vocabulary, std::string_view sample,
                          const std::filesystem::path& scratch, GgufWriter& writer);

}  // namespace nibble
