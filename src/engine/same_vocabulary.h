#pragma once

#include "base/result.h"

namespace nibble {

class Tokenizer;

// Whether a draft model's tokens are the model's, id by id: bytes, and which are control and end
// tokens. The error names the first that differs.
Status CheckSameVocabulary(const Tokenizer& model, const Tokenizer& draft);

}  // namespace nibble
