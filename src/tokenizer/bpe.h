#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/token_index.h"
#include "tokenizer/token_model.h"

namespace nibble {

// What becomes of a character that is no token.
struct UnknownRule {
  std::optional<TokenId> unknown;  // nothing: it is dropped (Hugging Face's BPE does so)
  bool fuse = false;               // one token for a run of unknown characters
  bool byte_fallback = false;      // its bytes' tokens, where all of them are there
  std::array<int32_t, 256> byte_tokens = [] {
    std::array<int32_t, 256> none;
    none.fill(-1);
    return none;
  }();

  // Whether each unknown character gives a token of its own at least.
  bool CountsEach() const {
    if (byte_fallback && std::ranges::none_of(byte_tokens, [](int32_t id) { return id < 0; })) {
      return true;
    }
    return unknown && !fuse;
  }
};

struct BpeOptions {
  bool bytes = false;        // symbols start as bytes, else as characters
  bool whole_piece = false;  // a piece that is a token is not merged (ignore_merges, tiktoken)
  UnknownRule unknown;
  std::string continuing_prefix;   // of symbols that do not begin a piece ("##")
  std::string end_of_word_suffix;  // of the symbol that ends a piece ("</w>")
};

struct BpeMerge {
  int32_t left, right;  // token ids
  int32_t merged;
};

// Byte-pair encoding from an ordered list of merges (Sennrich et al. 2016, GPT-2). Of all
// neighbours that can merge the one with the lowest rank does, the leftmost first.
class MergeTable {
 public:
  // Lower index: merged earlier. Of a pair that comes twice the first counts.
  explicit MergeTable(const std::vector<BpeMerge>& merges);
  struct Found {
    uint32_t rank = UINT32_MAX;
    int32_t merged = -1;
  };
  Found Find(int32_t left, int32_t right) const {
    if ((left | right) < 0) return {};
    const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    for (size_t i = SlotOf(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return {slots_[i].rank, slots_[i].merged};
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t key = kFree;
    uint32_t rank = 0;
    int32_t merged = 0;
  };
  size_t SlotOf(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ULL >> 32) & mask_; }
  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// index: what a symbol's text looks up (raw bytes when options.bytes).
std::unique_ptr<TokenModel> MakeMergeBpe(BpeOptions options, TokenIndex index, MergeTable merges);

struct RankBpeOptions : BpeOptions {
  // ranks[id]: order in which texts form, lowest first (tiktoken: the id; SentencePiece: by falling
  // score, equal scores equal ranks).
  std::vector<uint32_t> ranks;
  // Texts that are one symbol from the start and never merge (SentencePiece's user-defined).
  TokenIndex frozen;
  // Tokens that may form on the way but are taken apart at the end (SentencePiece's unused).
  std::vector<bool> unused;
};

// BPE where any two neighbours merge whose joint text is a token: tiktoken, SentencePiece.
std::unique_ptr<TokenModel> MakeRankBpe(RankBpeOptions options, TokenIndex index);

}  // namespace nibble
