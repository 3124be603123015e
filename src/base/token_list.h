#pragma once

#include <span>

#include "base/ids.h"

namespace nibble {

// A prompt and its answer read as one list, without a copy.
struct TokenList {
  std::span<const TokenId> prompt = {};
  std::span<const TokenId> answer = {};

  int size() const { return static_cast<int>(prompt.size() + answer.size()); }
  TokenId operator[](int i) const {
    const auto at = static_cast<size_t>(i);
    return at < prompt.size() ? prompt[at] : answer[at - prompt.size()];
  }
};

}  // namespace nibble
