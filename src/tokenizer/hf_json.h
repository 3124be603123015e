#pragma once

// The parts of tokenizer.json; details of load_json.cc.

#include <span>
#include <string>

#include "base/result.h"
#include "container/json.h"
#include "tokenizer/bpe.h"
#include "tokenizer/parts.h"

namespace nibble::hf {

Status ParseNormalizer(JsonValue json, int depth, Normalizers& out);

// How a pre-tokeniser turned text into GPT-2's byte characters.
struct PreTokenizerState {
  bool byte_level = false;  // some step maps bytes to characters
  bool map_is_last = false;
};
Status ParsePreTokenizer(JsonValue json, int depth, PreTokenizers& out, PreTokenizerState& state);

Status ParseDecoder(JsonValue json, int depth, DecoderSteps& out);

// Reads model into parts.vocabulary; the model itself is built by BuildModel, because it needs to
// know whether it sees bytes.
Status ParseVocabulary(JsonValue model, TokenizerParts& parts);
Status BuildModel(JsonValue model, bool bytes, TokenizerParts& parts);

// Ids before and behind a text.
Status ParsePostProcessor(JsonValue json, int depth, TokenizerParts& parts);

// {"String": …} or {"Regex": …}, or (older files) a plain string.
struct Pattern {
  std::string text;
  bool is_regex = false;
};
Result<Pattern> ParsePattern(JsonValue json);

inline constexpr int kMaxDepth = 16;  // of Sequences inside Sequences
inline constexpr std::string_view kMetaspaceChar = "\xE2\x96\x81";

// Ordered merges as pairs of spellings; used by merges.txt too. Errors name the merge.
struct MergeText {
  std::string_view left, right;
};
Result<MergeTable> BuildMerges(std::span<const MergeText> merges, const TokenIndex& by_piece,
                               std::string_view continuing_prefix);
Result<MergeText> SplitMerge(std::string_view line, size_t number);
// What a model with raw bytes looks up: all spellings that are made of GPT-2's byte characters.
TokenIndex ByteIndex(const Vocabulary& vocabulary);
TokenIndex PieceIndex(const Vocabulary& vocabulary);
// rule.byte_tokens from "<0x00>" …; false when some are missing.
bool FillByteTokens(const TokenIndex& by_piece, UnknownRule& rule);

}  // namespace nibble::hf
