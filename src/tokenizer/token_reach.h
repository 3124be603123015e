#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/token_index.h"

namespace nibble {

// How few tokens a text can have, told without cutting it: from each byte on, a token covers at
// most as much as the longest one that begins with the same two bytes. The farthest end of k + 1
// tokens is the farthest that one reaches which begins at or before the farthest end of k. For
// letters that is some 15 bytes a token, where the longest of all may be a run of a hundred blanks.
class TokenReach {
 public:
  TokenReach() : longest_(size_t{1} << 16, kCharacter) {}

  void Add(const TokenIndex& index) {
    index.ForEach([&](std::string_view token) {
      if (token.size() < 2) return;
      uint16_t& longest = longest_[PairAt(token, 0)];
      longest = static_cast<uint16_t>(
          std::max<size_t>(longest, std::min<size_t>(token.size(), UINT16_MAX)));
    });
  }

  // Whether text certainly has more tokens than `most`. is_left_out(byte): tokens join over it, so
  // that nothing is certain where one is.
  template <class IsLeftOut>
  bool SurelyMore(std::string_view text, size_t most, IsLeftOut&& is_left_out) const {
    const std::optional<size_t> covered = Covered(text, most);
    return covered && std::ranges::none_of(text.substr(0, *covered), [&](char c) {
             return is_left_out(static_cast<uint8_t>(c));
           });
  }

  // The bytes that most + 1 tokens cover at most, where `most` cannot cover the text; else nothing.
  std::optional<size_t> Covered(std::string_view text, size_t most) const {
    size_t reach = 0;  // that so many tokens cover at most
    size_t next = 0;   // bytes before it were looked at
    for (size_t tokens = 0; tokens <= most; ++tokens) {
      if (reach >= text.size()) return std::nullopt;
      size_t farther = reach;
      for (; next <= reach; ++next) {
        const bool last = next + 1 == text.size();
        farther = std::max<size_t>(farther, next + (last ? 1 : longest_[PairAt(text, next)]));
      }
      reach = farther;
    }
    return reach;
  }

 private:
  static constexpr uint16_t kCharacter = 4;  // bytes, of one that is unknown
  static size_t PairAt(std::string_view text, size_t at) {
    return static_cast<size_t>(static_cast<uint8_t>(text[at])) << 8 |
           static_cast<uint8_t>(text[at + 1]);
  }
  std::vector<uint16_t> longest_;
};

}  // namespace nibble
