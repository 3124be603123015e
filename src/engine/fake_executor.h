#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/executor.h"
#include "tokenizer/parts.h"
#include "tokenizer/tokenizer.h"

namespace nibble::testing {

// For tests: a model whose logits are a hash of every token that attention would see, read back
// through the page tables. A page that is lost, shared or read outside its window changes them.
class FakeExecutor : public Executor {
 public:
  FakeExecutor(int vocabulary, std::span<const PoolSpec> pools) : vocabulary_(vocabulary) {
    for (const PoolSpec& pool : pools) {
      windows_.push_back(pool.window);
      unit_tokens_.push_back(pool.open_pages > 0 ? pool.unit_pages * kPageTokens : 0);
      memory_.emplace_back(static_cast<size_t>(pool.pages) * kPageTokens, -1);
      open_.emplace_back(static_cast<size_t>(pool.open_pages) * kPageTokens, -1);
    }
  }

  // The token that follows position p, where it is to be forced.
  std::map<int, TokenId> script;
  // A token that makes every logit NaN from its position on.
  TokenId poison = kNoToken;
  // Called at the start of every step; an error fails it.
  std::function<Status(const ExecuteInput&)> before;
  int block_rows = 3;  // rows per call of the sink
  int64_t steps = 0;

  int vocabulary() const override { return vocabulary_; }
  size_t WeightBytesPerStep() const override { return 1000; }
  double KvBytesRead(int position) const override { return position + 1; }

  Status Execute(const ExecuteInput& input, LogitsSink& sink) override {
    ++steps;
    if (before) {
      const Status status = before(input);
      if (!status) return status;
    }
    for (const PageCopy& copy : input.copies) Copy(copy);
    std::vector<std::pair<const ExecuteSpan*, int>> rows;  // span and position of every row
    for (const ExecuteSpan& span : input.spans) {
      for (int i = 0; i < span.rows; ++i) {
        const int position = span.first + i;
        for (size_t g = 0; g < memory_.size(); ++g) {
          *Slot(g, span, position, false) = input.tokens[rows.size()].value();
          Seal(g, span, position);
        }
        rows.emplace_back(&span, position);
      }
    }
    std::vector<float> block;
    for (size_t begin = 0; begin < input.logit_rows.size();) {
      const size_t end = std::min(begin + static_cast<size_t>(block_rows), input.logit_rows.size());
      block.clear();
      for (size_t i = begin; i < end; ++i) {
        const auto& [span, position] = rows[static_cast<size_t>(input.logit_rows[i])];
        AppendLogits(*span, position, block);
      }
      sink.Rows(static_cast<int>(begin),
                DenseView(block.data(), static_cast<int>(end - begin), vocabulary_));
      begin = end;
    }
    return {};
  }

 private:
  // Where a position lies: in its page, or, where pages have two forms, in the form asked for.
  int32_t* Slot(size_t group, const ExecuteSpan& span, int position, bool sealed) {
    const bool open = unit_tokens_[group] > 0 && !sealed;
    const auto g = static_cast<int>(group);
    const PageId page =
        (open ? span.pages->open_table(g) : span.pages->table(g))[position / kPageTokens];
    return &(open ? open_ : memory_)[group].at(static_cast<size_t>(page.value()) * kPageTokens +
                                               static_cast<size_t>(position % kPageTokens));
  }

  // The last position of a unit puts all of it into its other form, which looks different.
  void Seal(size_t group, const ExecuteSpan& span, int position) {
    const int unit = unit_tokens_[group];
    if (unit == 0 || (position + 1) % unit != 0) return;
    for (int p = position + 1 - unit; p <= position; ++p) {
      *Slot(group, span, p, true) = *Slot(group, span, p, false) + 1000;
    }
  }

  void Copy(const PageCopy& copy) {
    const auto group = static_cast<size_t>(copy.group);
    std::vector<int32_t>& slots = unit_tokens_[group] > 0 ? open_[group] : memory_[group];
    for (int i = 0; i < kPageTokens; ++i) {
      slots.at(static_cast<size_t>(copy.to.value() * kPageTokens + i)) =
          i < copy.filled ? slots.at(static_cast<size_t>(copy.from.value() * kPageTokens + i)) : -1;
    }
  }

  void AppendLogits(const ExecuteSpan& span, int position, std::vector<float>& block) {
    uint64_t hash = 1;
    bool poisoned = false;
    for (size_t g = 0; g < memory_.size(); ++g) {
      const int from = windows_[g] == 0 ? 0 : std::max(0, position - windows_[g] + 1);
      for (int p = from; p <= position; ++p) {
        const int unit = unit_tokens_[g];
        const bool sealed = unit > 0 && p < position / unit * unit;
        const int32_t token = *Slot(g, span, p, sealed);
        poisoned |= token == poison.value() || token == poison.value() + 1000;
        hash = (hash ^ static_cast<uint64_t>(token + 7)) * 0x100000001b3ULL;
        hash ^= hash >> 29;
      }
    }
    const auto forced = script.find(position);
    for (int id = 0; id < vocabulary_; ++id) {
      const uint64_t x = (hash + static_cast<uint64_t>(id)) * 0x9E3779B97F4A7C15ULL;
      float logit = static_cast<float>(x >> 40) / (1 << 21) - 4;
      if (forced != script.end() && forced->second.value() == id) logit = 50;
      block.push_back(poisoned ? std::nanf("") : logit);
    }
  }

  int vocabulary_;
  std::vector<int> windows_;
  std::vector<int> unit_tokens_;              // per group; 0: pages have one form
  std::vector<std::vector<int32_t>> memory_;  // [group][page * 32 + slot] token
  std::vector<std::vector<int32_t>> open_;    // the same of open pages, where they are others
};

// A tokenizer that is a list of texts; `end` are its end tokens, which are control tokens, too.
inline Tokenizer ListTokenizer(const std::vector<std::string>& texts,
                               const std::vector<int>& end = {}) {
  TokenizerParts parts;
  for (size_t i = 0; i < texts.size(); ++i) {
    const int id = static_cast<int>(i);
    const bool is_end = std::ranges::find(end, id) != end.end();
    // Spellings must be UTF-8 and differ; the bytes need not.
    const Status set = parts.vocabulary.Set(id, "t" + std::to_string(id),
                                            is_end ? TokenKind::kControl : TokenKind::kNormal);
    NIBBLE_CHECK(set.has_value());
    parts.bytes.push_back(texts[i]);
  }
  for (int id : end) parts.end_tokens.emplace_back(id);
  auto tokenizer = Tokenizer::Make(std::move(parts));
  NIBBLE_CHECK(tokenizer.has_value());
  return *std::move(tokenizer);
}

}  // namespace nibble::testing
