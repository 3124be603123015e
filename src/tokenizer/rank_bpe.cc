#include <map>
#include <unordered_map>

#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_engine.h"
#include "tokenizer/token_reach.h"
#include "tokenizer/word_cuts.h"

namespace nibble {
namespace {

class RankBpe final : public TokenModel {
 public:
  RankBpe(RankBpeOptions options, TokenIndex index)
      : options_(std::move(options)),
        index_(std::move(index)),
        cuts_(index_, !options_.bytes && !options_.whole_piece) {
    reach_.Add(index_);
    reach_.Add(options_.frozen);
  }

  std::unique_ptr<TokenModel::Workspace> NewWorkspace(size_t total_bytes) const override {
    return bpe::NewWorkspace(total_bytes);
  }

  bool accepts_any_bytes() const override { return options_.bytes; }

  bool SurelyMore(std::string_view piece, size_t most) const override {
    // Unknown characters that fuse give fewer tokens; where there is no unknown token, an error.
    if (!options_.unknown.CountsEach() && options_.unknown.unknown) return false;
    return reach_.SurelyMore(piece, most, [](uint8_t) { return false; });
  }

  Status Tokenize(std::string_view piece, TokenModel::Workspace& workspace,
                  std::vector<TokenId>& out) const override {
    auto& work = static_cast<bpe::Workspace&>(workspace);
    return cuts_.ForEachWord(piece, work, out, [&](std::string_view word) {
      return bpe::Cached(work, word, out,
                         [&](std::vector<TokenId>& ids) { return Compute(word, work, ids); });
    });
  }

 private:
  // Where the text of an unused token was joined, to take it apart again.
  using Joints = std::unordered_map<std::string, uint32_t>;

  Status Compute(std::string_view piece, bpe::Workspace& work, std::vector<TokenId>& out) const {
    if (options_.whole_piece) {
      if (const int32_t id = index_.Find(piece); id >= 0) {
        out.emplace_back(id);
        return {};
      }
    }
    AddSymbols(piece, work.symbols);
    Joints joints;
    bpe::Merge(work, [&](const bpe::Symbol& l, const bpe::Symbol& r) -> MergeTable::Found {
      if (l.frozen || r.frozen) return {};
      const std::string_view text = piece.substr(l.begin, l.size + r.size);
      const int32_t id = index_.Find(text);
      if (id < 0) return {};
      if (IsUnused(id)) joints[std::string(text)] = l.size;
      return {options_.ranks[static_cast<size_t>(id)], id};
    });
    bool after_unknown = false;
    for (const bpe::Symbol& s : work.symbols) {
      NIBBLE_RETURN_IF_ERROR(Emit(piece.substr(s.begin, s.size), s.id, joints, after_unknown, out));
    }
    return {};
  }

  bool IsUnused(int32_t id) const {
    return !options_.unused.empty() && options_.unused[static_cast<size_t>(id)];
  }

  void AddSymbols(std::string_view piece, std::vector<bpe::Symbol>& symbols) const {
    symbols.clear();
    for (uint32_t i = 0; i < piece.size();) {
      if (const uint32_t frozen = FrozenAt(piece.substr(i)); frozen > 0) {
        symbols.push_back({i, frozen, options_.frozen.Find(piece.substr(i, frozen)), -1, -1, true});
        i += frozen;
        continue;
      }
      const uint32_t n = options_.bytes ? 1 : DecodeUtf8Safely(piece, i).length;
      symbols.push_back({i, n, index_.Find(piece.substr(i, n)), -1, -1});
      i += n;
    }
  }

  // Length of the longest frozen text that begins here.
  uint32_t FrozenAt(std::string_view rest) const {
    for (size_t n = std::min(rest.size(), options_.frozen.longest()); n > 0; --n) {
      if (options_.frozen.Find(rest.substr(0, n)) >= 0) return static_cast<uint32_t>(n);
    }
    return 0;
  }

  Status Emit(std::string_view text, int32_t id, const Joints& joints, bool& after_unknown,
              std::vector<TokenId>& out) const {
    if (id >= 0 && IsUnused(id)) {
      if (const auto joint = joints.find(std::string(text)); joint != joints.end()) {
        const std::string_view left = text.substr(0, joint->second);
        const std::string_view right = text.substr(joint->second);
        NIBBLE_RETURN_IF_ERROR(Emit(left, index_.Find(left), joints, after_unknown, out));
        return Emit(right, index_.Find(right), joints, after_unknown, out);
      }
    }
    if (id >= 0) {
      out.emplace_back(id);
      after_unknown = false;
      return {};
    }
    const UnknownRule& rule = options_.unknown;
    if (rule.byte_fallback &&
        std::ranges::all_of(text, [&](char c) { return rule.byte_tokens[uint8_t(c)] >= 0; })) {
      for (const char c : text) out.emplace_back(rule.byte_tokens[static_cast<uint8_t>(c)]);
      after_unknown = false;
      return {};
    }
    if (!rule.unknown) {
      return BadInput("the vocabulary has no token for '{}' and no unknown token",
                      ReplaceInvalidUtf8(text));
    }
    if (!(after_unknown && rule.fuse)) out.push_back(*rule.unknown);
    after_unknown = true;
    return {};
  }

  RankBpeOptions options_;
  TokenIndex index_;
  WordCuts cuts_;
  TokenReach reach_;
};

}  // namespace

std::unique_ptr<TokenModel> MakeRankBpe(RankBpeOptions options, TokenIndex index) {
  return std::make_unique<RankBpe>(std::move(options), std::move(index));
}

}  // namespace nibble
