#include "tokenizer/unigram.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/piece_trie.h"

namespace nibble {
namespace {

constexpr double kUnknownPenalty = 10.0;  // SentencePiece's kUnkPenalty
constexpr int32_t kUnknownId = -2;

template <class Real>
struct UnigramWorkspace final : TokenModel::Workspace {
  // The best way to reach each byte offset.
  struct Node {
    Real score = 0;
    int32_t id = -1;
    int32_t start = -1;  // offset where its last piece begins; -1: not reached
  };
  std::vector<Node> nodes;
  std::vector<Node> path;
};

template <class Real>
class Unigram final : public TokenModel {
 public:
  using Work = UnigramWorkspace<Real>;

  explicit Unigram(UnigramOptions options) : options_(std::move(options)) {
    std::vector<std::pair<std::string_view, int32_t>> texts;
    for (size_t id = 0; id < options_.pieces.size(); ++id) {
      texts.emplace_back(options_.pieces[id], static_cast<int32_t>(id));
      longest_ = std::max(longest_, options_.pieces[id].size());
    }
    trie_ = PieceTrie(std::move(texts));
    scores_.assign(options_.scores.begin(), options_.scores.end());
    unknown_score_ = static_cast<Real>(static_cast<Real>(options_.min_score) - kUnknownPenalty);
  }

  std::unique_ptr<TokenModel::Workspace> NewWorkspace(size_t) const override {
    return std::make_unique<Work>();
  }

  bool accepts_any_bytes() const override { return false; }

  bool SurelyMore(std::string_view piece, size_t most) const override {
    if (!options_.unknown.CountsEach() && options_.unknown.unknown) return false;
    return piece.size() / longest_ > most;
  }

  Status Tokenize(std::string_view piece, TokenModel::Workspace& workspace,
                  std::vector<TokenId>& out) const override {
    auto& work = static_cast<Work&>(workspace);
    FindBest(piece, work);
    // Walk back from the end, joining a run of unknown characters when they fuse.
    work.path.clear();
    for (auto end = static_cast<int32_t>(piece.size()); end > 0;) {
      const typename Work::Node& node = work.nodes[static_cast<size_t>(end)];
      const int32_t start = node.start;
      if (options_.unknown.fuse && node.id == kUnknownId && !work.path.empty() &&
          work.path.back().id == kUnknownId) {
        work.path.back().start = start;
      } else {
        work.path.push_back(node);
      }
      end = start;
    }
    for (size_t i = work.path.size(); i-- > 0;) {
      const auto& node = work.path[i];
      if (node.id != kUnknownId) {
        out.emplace_back(node.id);
        continue;
      }
      const size_t end = i == 0 ? piece.size() : static_cast<size_t>(work.path[i - 1].start);
      const auto start = static_cast<size_t>(node.start);
      NIBBLE_RETURN_IF_ERROR(EmitUnknown(piece.substr(start, end - start), out));
    }
    return {};
  }

 private:
  void FindBest(std::string_view piece, Work& work) const {
    auto& nodes = work.nodes;
    nodes.assign(piece.size() + 1, {});
    const auto reach = [&](size_t at, Real score, int32_t id, size_t start) {
      auto& node = nodes[at];
      if (node.start < 0 || score > node.score) node = {score, id, static_cast<int32_t>(start)};
    };
    for (size_t start = 0; start < piece.size();) {
      const Real before = start == 0 ? Real{0} : nodes[start].score;
      const size_t char_length = DecodeUtf8Safely(piece, start).length;
      bool single = false;
      trie_.ForEachPrefix(piece.substr(start), [&](size_t length, int32_t id) {
        // The unknown token's own text counts as unknown, and fuses (Hugging Face).
        const bool unknown = options_.unknown.unknown == TokenId{id};
        reach(start + length, ScoreOf(id, length) + before, unknown ? kUnknownId : id, start);
        single = single || length == char_length;
      });
      if (!single) reach(start + char_length, unknown_score_ + before, kUnknownId, start);
      start += char_length;
    }
  }

  Real ScoreOf(int32_t id, size_t length) const {
    const auto i = static_cast<size_t>(id);
    if (options_.user_defined.empty() || !options_.user_defined[i]) return scores_[i];
    return static_cast<Real>(static_cast<Real>(length) * static_cast<Real>(options_.max_score) -
                             0.1);
  }

  Status EmitUnknown(std::string_view text, std::vector<TokenId>& out) const {
    const UnknownRule& rule = options_.unknown;
    if (rule.unknown && text == options_.pieces[static_cast<size_t>(rule.unknown->value())]) {
      out.push_back(*rule.unknown);
      return {};
    }
    const bool all_bytes = rule.byte_fallback && std::ranges::all_of(text, [&](char c) {
                             return rule.byte_tokens[static_cast<uint8_t>(c)] >= 0;
                           });
    if (all_bytes) {
      for (const char c : text) out.emplace_back(rule.byte_tokens[static_cast<uint8_t>(c)]);
      return {};
    }
    if (!rule.unknown) {
      return BadInput("the vocabulary has no piece for '{}' and no unknown token",
                      ReplaceInvalidUtf8(text));
    }
    out.push_back(*rule.unknown);
    return {};
  }

  UnigramOptions options_;
  std::vector<Real> scores_;
  Real unknown_score_;
  size_t longest_ = 4;  // bytes of a piece, or of an unknown character
  PieceTrie trie_;
};

}  // namespace

std::unique_ptr<TokenModel> MakeUnigram(UnigramOptions options) {
  if (options.single_precision) return std::make_unique<Unigram<float>>(std::move(options));
  return std::make_unique<Unigram<double>>(std::move(options));
}

}  // namespace nibble
