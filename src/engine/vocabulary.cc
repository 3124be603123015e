#include "engine/vocabulary.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace nibble {

std::shared_ptr<const grammar::Vocabulary> MakeVocabulary(const Tokenizer& tokenizer, int size) {
  std::vector<std::string> tokens(static_cast<size_t>(std::max(size, tokenizer.vocab_size())));
  for (int i = 0; i < tokenizer.vocab_size(); ++i) {
    const TokenId id{i};
    std::string& bytes = tokens[static_cast<size_t>(i)];
    bytes = tokenizer.Bytes(id);
    if (tokenizer.IsControl(id) && !bytes.empty()) bytes.insert(0, 1, grammar::kMarkByte);
  }
  const auto ends = tokenizer.end_tokens();
  return std::make_shared<const grammar::Vocabulary>(
      std::move(tokens), std::vector<TokenId>(ends.begin(), ends.end()));
}

}  // namespace nibble
