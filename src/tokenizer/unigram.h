#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/token_model.h"

namespace nibble {

struct UnigramOptions {
  std::vector<std::string> pieces;  // by id; empty: cannot be produced
  std::vector<double> scores;       // by id, log-probabilities
  std::vector<bool> user_defined;   // by id, or empty; wins over every other segmentation
  double min_score = 0;             // of ordinary pieces; an unknown character costs 10 more
  double max_score = 0;
  UnknownRule unknown;
  // SentencePiece adds scores in float, Hugging Face and llama.cpp in double: ties differ.
  bool single_precision = false;
};

// The most probable segmentation under a unigram language model (Kudo 2018), by Viterbi over a
// trie: O(text × longest piece).
std::unique_ptr<TokenModel> MakeUnigram(UnigramOptions options);

}  // namespace nibble
