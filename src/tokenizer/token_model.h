#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace nibble {

// Turns one pre-tokenised piece into token ids.
class TokenModel {
 public:
  // What one thread needs while it encodes one text: caches and scratch memory.
  class Workspace {
   public:
    virtual ~Workspace() = default;
    // Tokenize may stop when it has given more; what it gave beyond means nothing then.
    size_t most_tokens = SIZE_MAX;
  };

  virtual ~TokenModel() = default;
  // total_bytes: length of the text to come, which sizes the caches.
  virtual std::unique_ptr<Workspace> NewWorkspace(size_t total_bytes) const = 0;
  // workspace: from this model's NewWorkspace. Errors: a character that has no token where the
  // vocabulary has no unknown token.
  virtual Status Tokenize(std::string_view piece, Workspace& workspace,
                          std::vector<TokenId>& out) const = 0;
  // True when pieces may be any bytes; else they must be valid UTF-8.
  virtual bool accepts_any_bytes() const = 0;
  // Whether a piece certainly gives more tokens than `most`, told without cutting it.
  virtual bool SurelyMore(std::string_view /*piece*/, size_t /*most*/) const { return false; }
};

}  // namespace nibble
