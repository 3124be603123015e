#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
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
  std::vector<TokenId> tokens;  // prompt, then answer
  int prompt_tokens = 0;
  int max_positions = 0;  // most tokens that are ever computed
  int preemptions = 0;
  SequencePages pages;

  int computed() const { return pages.committed(); }
  int pending() const { return static_cast<int>(tokens.size()) - computed(); }
  // The next token of an answer: one row that a user waits for.
  bool generating() const {
    return pending() == 1 && static_cast<int>(tokens.size()) > prompt_tokens;
  }
};

}  // namespace nibble
