#include "engine/same_vocabulary.h"

#include <string>
#include <string_view>

#include "base/text.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

std::string Describe(const Tokenizer& tokenizer, TokenId id) {
  return fmt::format("'{}'{}{}", tokenizer.Piece(id), tokenizer.IsControl(id) ? ", control" : "",
                     tokenizer.IsEnd(id) ? ", end" : "");
}

}  // namespace

Status CheckSameVocabulary(const Tokenizer& model, const Tokenizer& draft) {
  if (model.vocab_size() != draft.vocab_size()) {
    return BadInput("the draft model has {} tokens and the model {}: both need one vocabulary",
                    draft.vocab_size(), model.vocab_size());
  }
  for (int i = 0; i < model.vocab_size(); ++i) {
    const TokenId id{i};
    if (model.Bytes(id) == draft.Bytes(id) && model.Piece(id) == draft.Piece(id) &&
        model.IsControl(id) == draft.IsControl(id) && model.IsEnd(id) == draft.IsEnd(id)) {
      continue;
    }
    return BadInput(
        "token {} is {} in the draft model and {} in the model: both need one "
        "vocabulary",
        i, Describe(draft, id), Describe(model, id));
  }
  return {};
}

}  // namespace nibble
