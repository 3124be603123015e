#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/shared_tokens.h"
#include "base/token_list.h"
#include "kv/page_book.h"
#include "sched/policy.h"

namespace nibble {

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
  // Tokens that may follow (Scheduler::Propose), and the chance of each where those before it are
  // accepted. A step verifies some of them, and only what is accepted then joins the answer.
  std::vector<TokenId> draft;
  std::vector<double> draft_chances;
  int max_positions = 0;  // most tokens that are ever computed
  int most_taken = 0;     // positions that may be taken over instead of computed
  // Another choice of the same request, which computes the prompt for this one, too.
  std::optional<RequestId> leader;

  int preemptions = 0;
  int taken = 0;   // positions that were taken over when it was admitted last
  int passes = 0;  // see WaitingView
  bool running = false;
  PrefixCursor cursor;
  SequencePages pages;

  // Tokens known: prompt, then answer.
  TokenList list() const { return {.prompt = *prompt, .answer = answer}; }
  int tokens() const { return static_cast<int>(prompt->size() + answer.size()); }
  // Puts tokens [first, first + count) behind `out`; those behind the known ones are drafted.
  void AppendTokens(int first, int count, std::vector<TokenId>& out) const {
    const TokenList all = list();
    for (int i = first; i < first + count; ++i) {
      out.push_back(i < all.size() ? all[i] : draft[static_cast<size_t>(i - all.size())]);
    }
  }

  int computed() const { return pages.committed(); }
  int pending() const { return tokens() - computed(); }
  // The next token of an answer: one row that a user waits for.
  bool generating() const { return pending() == 1 && !answer.empty(); }
};

}  // namespace nibble
