#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/shared_tokens.h"
#include "kv/page_book.h"

namespace nibble {

// Order of service: lower priority values first, then who came first.
struct ServiceOrder {
  int priority = 0;
  uint64_t arrival = 0;  // unique
  auto operator<=>(const ServiceOrder&) const = default;
};

// A request as the scheduler sees it: a list of tokens and a count of how many are computed. There
// is no other state: a prompt, a chunk of it, the next token of an answer and the recomputation
// after a preemption differ in these two numbers only.
struct Sequence {
  Sequence(RequestId request, ServiceOrder service, PageBook& book)
      : id(request), order(service), pages(book) {}

  RequestId id;
  ServiceOrder order;
  SharedTokens prompt;
  std::vector<TokenId> answer;
  int max_positions = 0;  // most tokens that are ever computed
  int preemptions = 0;
  SequencePages pages;

  // Tokens known: prompt, then answer.
  int tokens() const { return static_cast<int>(prompt->size() + answer.size()); }
  // Puts tokens [first, first + count) behind `out`.
  void AppendTokens(int first, int count, std::vector<TokenId>& out) const {
    const int prompt_tokens = static_cast<int>(prompt->size());
    for (int i = first; i < first + count; ++i) {
      out.push_back(i < prompt_tokens ? (*prompt)[i] : answer[i - prompt_tokens]);
    }
  }

  int computed() const { return pages.committed(); }
  int pending() const { return tokens() - computed(); }
  // The next token of an answer: one row that a user waits for.
  bool generating() const { return pending() == 1 && !answer.empty(); }
};

}  // namespace nibble
