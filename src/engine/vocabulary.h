#pragma once

#include <memory>

#include "grammar/vocabulary.h"

namespace nibble {

class Tokenizer;

// What constraints know of a tokenizer's tokens: control tokens are marks, end tokens end. At least
// `size` tokens: a model may have more logits than its tokenizer has tokens; those are never
// allowed.
std::shared_ptr<const grammar::Vocabulary> MakeVocabulary(const Tokenizer& tokenizer, int size);

}  // namespace nibble
