#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "tokenizer/parts.h"

namespace nibble::hf {

// What tokenizer_config.json says; absent keys are empty.
struct TokenizerConfig {
  std::string tokenizer_class;
  std::string bos, eos, unknown, pad;
  std::optional<bool> add_bos, add_eos;
  std::vector<AddedToken> added;        // added_tokens_decoder
  std::vector<std::string> additional;  // additional_special_tokens: control tokens
  std::string chat_template;
};
Result<TokenizerConfig> ParseTokenizerConfig(JsonValue json);

// Applies it: names become ids, added tokens that are missing are added, and (as transformers does)
// add_bos_token or add_eos_token replace what tokenizer.json says is put around a text.
Status ApplyConfig(const TokenizerConfig& config, TokenizerParts& parts);

// One entry of added_tokens or added_tokens_decoder.
Result<AddedToken> ParseAddedToken(JsonValue json, int64_t id);

// Adds the token to vocabulary and parts.added unless it is there. Error: its id is taken.
Status AddToken(AddedToken token, TokenizerParts& parts);

// eos_token_id of generation_config.json (or config.json): a number or a list.
Result<std::vector<TokenId>> ParseEndTokenIds(JsonValue json);

// BOS by what stands before a text, when no file names it; end tokens by their texts; the
// description's count.
void FinishParts(TokenizerParts& parts);

}  // namespace nibble::hf
