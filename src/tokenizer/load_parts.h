#pragma once

// What load.cc puts together; one function per kind of file.

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/hf_config.h"
#include "tokenizer/parts.h"

namespace nibble {

// tokenizer.json; config may be null.
Result<TokenizerParts> TokenizerJsonParts(std::string tokenizer_json,
                                          const hf::TokenizerConfig* config);

// A SentencePiece model (ModelProto as protobuf); config may be null.
Result<TokenizerParts> SentencePieceParts(std::string_view bytes,
                                          const hf::TokenizerConfig* config);

// Lines "base64 rank"; the expression and the special tokens by the file's name
// ("o200k_base.tiktoken"), else by the number of ranks.
Result<TokenizerParts> TiktokenParts(std::string_view text, std::string_view file_name);

// vocab.json (or GPT-2's encoder.json) and merges.txt (or vocab.bpe), CRLF too; config may be null.
Result<TokenizerParts> VocabMergesParts(std::string vocab_json, std::string_view merges,
                                        const hf::TokenizerConfig* config);

// tokenizer.bin of karpathy/llama2.c.
Result<TokenizerParts> Llama2cParts(std::string_view bytes);

}  // namespace nibble
