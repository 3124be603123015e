#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

// Moves whole characters from pending to the result, U+FFFD for bytes that no more bytes can make
// a character. What stays is a proper prefix of one character.
std::string TakeWhole(std::string& pending) {
  std::string out;
  size_t i = 0;
  while (i < pending.size()) {
    const std::string_view rest = std::string_view(pending).substr(i);
    if (const size_t n = Utf8CharLength(rest)) {
      out += rest.substr(0, n);
      i += n;
    } else if (IsUtf8Prefix(rest)) {
      break;
    } else {
      AppendUtf8(out, kReplacementChar);
      i += Utf8InvalidLength(rest);
    }
  }
  pending.erase(0, i);
  return out;
}

}  // namespace

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      options_(options),
      at_start_(options.at_start && tokenizer.drops_leading_space()) {}

std::string StreamingDetokenizer::Add(TokenId id) {
  if (tokenizer_->IsControl(id)) {
    // A control token ends a character that was under way.
    std::string out = Flush();
    if (!options_.skip_special) out += ReplaceInvalidUtf8(tokenizer_->Bytes(id));
    return out;
  }
  std::string_view bytes = tokenizer_->Bytes(id);
  if (bytes.empty()) return {};
  if (at_start_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
  at_start_ = false;
  pending_ += bytes;
  return TakeWhole(pending_);
}

std::string StreamingDetokenizer::Flush() {
  std::string out = ReplaceInvalidUtf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace nibble
