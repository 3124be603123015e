#include "tokenizer/bpe.h"

#include <bit>

#include "base/utf8.h"
#include "tokenizer/bpe_engine.h"
#include "tokenizer/token_reach.h"
#include "tokenizer/word_cuts.h"

namespace nibble {

namespace bpe {

std::unique_ptr<Workspace> NewWorkspace(size_t total_bytes) {
  auto work = std::make_unique<Workspace>();
  if (total_bytes >= 256) {
    work->cache.resize(std::bit_ceil(std::min<size_t>(total_bytes / 4, size_t{1} << 15)));
  }
  return work;
}

}  // namespace bpe

MergeTable::MergeTable(const std::vector<BpeMerge>& merges) {
  slots_.resize(std::bit_ceil(std::max<size_t>(merges.size() * 2, 2)));
  mask_ = slots_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& m = merges[rank];
    const uint64_t key = static_cast<uint64_t>(m.left) << 32 | static_cast<uint32_t>(m.right);
    size_t i = SlotOf(key);
    while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
    if (slots_[i].key == kFree) slots_[i] = {key, static_cast<uint32_t>(rank), m.merged};
  }
}

namespace {

class MergeBpe final : public TokenModel {
 public:
  MergeBpe(BpeOptions options, TokenIndex index, MergeTable merges)
      : options_(std::move(options)),
        index_(std::move(index)),
        merges_(std::move(merges)),
        plain_bytes_(options_.bytes && options_.continuing_prefix.empty() &&
                     options_.end_of_word_suffix.empty()),
        cuts_(index_, !options_.bytes && !options_.whole_piece &&
                          options_.continuing_prefix.empty() &&
                          options_.end_of_word_suffix.empty()) {
    reach_.Add(index_);
    for (int b = 0; b < 256; ++b) {
      const char c = static_cast<char>(b);
      byte_ids_[static_cast<size_t>(b)] = index_.Find({&c, 1});
    }
  }

  std::unique_ptr<TokenModel::Workspace> NewWorkspace(size_t total_bytes) const override {
    return bpe::NewWorkspace(total_bytes);
  }

  bool accepts_any_bytes() const override { return options_.bytes; }

  bool SurelyMore(std::string_view piece, size_t most) const override {
    if (!plain_bytes_) return SurelyMoreOfCharacters(piece, most);
    return reach_.SurelyMore(piece, most, [&](uint8_t byte) { return byte_ids_[byte] < 0; });
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
  // Known characters join into nothing but tokens.
  bool SurelyMoreOfCharacters(std::string_view piece, size_t most) const {
    if (!options_.continuing_prefix.empty() || !options_.end_of_word_suffix.empty()) return false;
    const auto covered = reach_.Covered(piece, most);
    if (!covered) return false;
    for (size_t i = 0; i < *covered;) {
      const uint32_t n = options_.bytes ? 1 : DecodeUtf8Safely(piece, i).length;
      if (index_.Find(piece.substr(i, n)) < 0) return false;
      i += n;
    }
    return true;
  }

  Status Compute(std::string_view piece, bpe::Workspace& work, std::vector<TokenId>& out) const {
    if (options_.whole_piece) {
      if (const int32_t id = index_.Find(piece); id >= 0) {
        out.emplace_back(id);
        return {};
      }
    }
    work.symbols.clear();
    if (plain_bytes_) {
      AddBytes(piece, work.symbols);
    } else {
      AddCharacters(piece, work.symbols);
    }
    bpe::Merge(
        work, [&](const bpe::Symbol& l, const bpe::Symbol& r) { return merges_.Find(l.id, r.id); });
    for (const bpe::Symbol& s : work.symbols) out.emplace_back(s.id);
    return {};
  }

  void AddBytes(std::string_view piece, std::vector<bpe::Symbol>& symbols) const {
    UnknownRun unknown;
    for (uint32_t i = 0; i < piece.size(); ++i) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(piece[i])];
      Add(id, piece.substr(i, 1), i, unknown, symbols);
    }
    Flush(unknown, symbols);
  }

  void AddCharacters(std::string_view piece, std::vector<bpe::Symbol>& symbols) const {
    UnknownRun unknown;
    std::string spelled;
    for (uint32_t i = 0; i < piece.size();) {
      const uint32_t n = options_.bytes ? 1 : DecodeUtf8Safely(piece, i).length;
      std::string_view text = piece.substr(i, n);
      const bool prefix = i > 0 && !options_.continuing_prefix.empty();
      const bool suffix = i + n == piece.size() && !options_.end_of_word_suffix.empty();
      if (prefix || suffix) {
        spelled = prefix ? options_.continuing_prefix : "";
        spelled += text;
        if (suffix) spelled += options_.end_of_word_suffix;
        text = spelled;
      }
      Add(index_.Find(text), text, i, unknown, symbols);
      i += n;
    }
    Flush(unknown, symbols);
  }

  // Unknown characters wait here, because fuse joins a run of them.
  struct UnknownRun {
    bool any = false;
    uint32_t begin = 0, size = 0;
  };

  void Add(int32_t id, std::string_view text, uint32_t begin, UnknownRun& unknown,
           std::vector<bpe::Symbol>& symbols) const {
    const auto size = static_cast<uint32_t>(text.size());
    if (id >= 0) {
      Flush(unknown, symbols);
      symbols.push_back({begin, size, id, -1, -1});
      return;
    }
    const UnknownRule& rule = options_.unknown;
    if (rule.byte_fallback && HaveBytes(text)) {
      for (uint32_t i = 0; i < size; ++i) {
        symbols.push_back({begin + i, 1, rule.byte_tokens[static_cast<uint8_t>(text[i])], -1, -1});
      }
      return;
    }
    if (!rule.unknown) return;
    if (unknown.any && rule.fuse) {
      unknown.size += size;
      return;
    }
    Flush(unknown, symbols);
    unknown = {true, begin, size};
  }

  bool HaveBytes(std::string_view text) const {
    return std::ranges::all_of(
        text, [&](char c) { return options_.unknown.byte_tokens[static_cast<uint8_t>(c)] >= 0; });
  }

  void Flush(UnknownRun& unknown, std::vector<bpe::Symbol>& symbols) const {
    if (!unknown.any) return;
    symbols.push_back({unknown.begin, unknown.size, options_.unknown.unknown->value(), -1, -1});
    unknown.any = false;
  }

  BpeOptions options_;
  TokenIndex index_;
  MergeTable merges_;
  bool plain_bytes_;  // symbols are the bytes themselves
  WordCuts cuts_;
  TokenReach reach_;
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace

std::unique_ptr<TokenModel> MakeMergeBpe(BpeOptions options, TokenIndex index, MergeTable merges) {
  return std::make_unique<MergeBpe>(std::move(options), std::move(index), std::move(merges));
}

}  // namespace nibble
