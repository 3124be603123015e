#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

class GgufFile;

// tokenizer.ggml.* of a GGUF file. Errors name the key, what was expected and what was found;
// a tokenizer.ggml.pre that is not known is refused with the list of known ones.
Result<Tokenizer> LoadGgufTokenizer(const GgufFile& file);

// The tokenizer file of a model's folder, in order of preference: tokenizer.json, tokenizer.model,
// spiece.model, sentencepiece.bpe.model, vocab.json, encoder.json, any *.tiktoken or *.model,
// tokenizer.bin. Empty when there is none.
std::filesystem::path FindTokenizerFile(const std::filesystem::path& folder);

// A Hugging Face folder (tokenizer.json, else tokenizer.model, else vocab.json + merges.txt; with
// tokenizer_config.json, special_tokens_map.json, chat_template.jinja and generation_config.json
// where they are), or one file: tokenizer.json, *.model (SentencePiece), *.tiktoken,
// vocab.json/encoder.json beside merges.txt/vocab.bpe, llama2.c's tokenizer.bin, *.gguf.
// A single file is loaded alone, except that tokenizer_config.json beside it is read.
Result<Tokenizer> LoadTokenizer(const std::filesystem::path& path);

// tokenizer.json and, where there is one, tokenizer_config.json, as text.
Result<Tokenizer> ParseTokenizerJson(std::string_view tokenizer_json,
                                     std::string_view tokenizer_config_json = {});

}  // namespace nibble
