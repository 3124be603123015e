#pragma once

#include <string>

#include "base/result.h"

namespace nibble {

class GgufFile;
class Tokenizer;

// The texts of a Hugging Face folder that cut as a GGUF file's tokenizer.
struct HfTokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
};

// From tokenizer.ggml.*: byte-level BPE ("gpt2" with any tokenizer.ggml.pre that is known) and
// SentencePiece's BPE ("llama"), whose merges are all cuts of every piece into two others, best
// score first, as transformers' converter makes them. Errors: another kind of tokenizer.
Result<HfTokenizerFiles> HfTokenizerFromGguf(const GgufFile& file, const Tokenizer& tokenizer);

}  // namespace nibble
