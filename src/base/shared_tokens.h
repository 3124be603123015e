#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace nibble {

// A prompt that many hold and nobody changes: a request's choices, their sequences and samplers.
using SharedTokens = std::shared_ptr<const std::vector<TokenId>>;

inline SharedTokens ShareTokens(std::vector<TokenId> tokens) {
  return std::make_shared<const std::vector<TokenId>>(std::move(tokens));
}

}  // namespace nibble
