#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr size_t kMaxContent = 1024;

DecodedChar LastChar(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 &&
         (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  return DecodeUtf8Safely(text, start);
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && IsWordChar(LastChar(text).code);
}

bool BeginsWithWord(std::string_view text) {
  return !text.empty() && IsWordChar(DecodeUtf8Safely(text, 0).code);
}

size_t WhitespaceBefore(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const DecodedChar c = LastChar(text.substr(0, end));
    if (!IsUnicodeWhitespace(c.code)) break;
    end -= c.length;
  }
  return text.size() - end;
}

size_t WhitespaceBehind(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const DecodedChar c = DecodeUtf8Safely(text, n);
    if (!IsUnicodeWhitespace(c.code)) break;
    n += c.length;
  }
  return n;
}

}  // namespace

Result<AddedTokenMatcher> AddedTokenMatcher::Make(std::vector<AddedToken> tokens) {
  AddedTokenMatcher matcher;
  matcher.tokens_ = std::move(tokens);
  std::vector<std::pair<std::string_view, int32_t>> texts;
  for (size_t i = 0; i < matcher.tokens_.size(); ++i) {
    const std::string& content = matcher.tokens_[i].content;
    if (content.size() > kMaxContent) {
      return BadInput("added token {} has {} bytes: the limit is {}", matcher.tokens_[i].id.value(),
                      content.size(), kMaxContent);
    }
    texts.emplace_back(content, static_cast<int32_t>(i));
  }
  matcher.trie_ = PieceTrie(std::move(texts));
  return matcher;
}

void AddedTokenMatcher::Split(std::string_view text, bool parse_special,
                              std::vector<Part>& out) const {
  size_t done = 0;
  size_t i = 0;
  while (i < text.size()) {
    if (!trie_.MayBeginWith(text[i])) {
      ++i;
      continue;
    }
    const PieceTrie::Match match = trie_.Longest(text.substr(i));
    if (match.length == 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.value)];
    size_t begin = i;
    size_t end = i + match.length;
    i = end;
    if (token.special && !parse_special) continue;
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || BeginsWithWord(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      begin = std::max(done, begin - WhitespaceBefore(text.substr(0, begin)));
    }
    if (token.rstrip) end += WhitespaceBehind(text.substr(end));
    if (begin > done) out.push_back({text.substr(done, begin - done), kNoToken});
    out.push_back({text.substr(begin, end - begin), token.id});
    done = end;
    i = std::max(i, end);
  }
  if (done < text.size()) out.push_back({text.substr(done), kNoToken});
}

}  // namespace nibble
