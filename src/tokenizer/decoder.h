#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"

namespace nibble {

// One step from token spellings to text, over all tokens of a sequence (Hugging Face's
// Decoder::decode_chain).
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void Apply(std::vector<std::string>& tokens) const = 0;
  // What the step makes of one token in the middle of a text, where neighbours do not matter.
  virtual std::string Middle(std::string token) const = 0;
  // True when the first token loses a leading space.
  virtual bool DropsLeadingSpace() const { return false; }
};
using DecoderSteps = std::vector<std::unique_ptr<DecoderStep>>;

std::unique_ptr<DecoderStep> MakeByteLevelDecoder();
std::unique_ptr<DecoderStep> MakeMetaspaceDecoder(std::string replacement, bool drop_first);
std::unique_ptr<DecoderStep> MakeWordPieceDecoder(std::string prefix, bool cleanup);
std::unique_ptr<DecoderStep> MakeBpeDecoder(std::string suffix);
std::unique_ptr<DecoderStep> MakeByteFallbackDecoder();
std::unique_ptr<DecoderStep> MakeFuseDecoder();
std::unique_ptr<DecoderStep> MakeStripDecoder(std::string content, size_t start, size_t stop);
std::unique_ptr<DecoderStep> MakeReplaceDecoder(std::string pattern, std::string content);
std::unique_ptr<DecoderStep> MakeRegexReplaceDecoder(Regex pattern, std::string content);
std::unique_ptr<DecoderStep> MakeCtcDecoder(std::string pad, std::string delimiter, bool cleanup);

// The byte of "<0x0A>"; -1 for other spellings.
int ByteOfToken(std::string_view token);

}  // namespace nibble
