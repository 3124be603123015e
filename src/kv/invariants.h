#pragma once

#include <optional>
#include <span>
#include <string>

#include "kv/page_book.h"

namespace nibble {

struct CheckedSequence {
  const SequencePages* pages = nullptr;
  TokenList tokens = {};  // of its committed positions; none: not compared with the index
};

// Walks pools, prefix index and all living sequences and says what is wrong, or nothing: every
// table entry is a page whose reference count is the number of tables that hold it; a page without
// one is free, or evictable and listed in the index, once; every committed position that its window
// still shows has a page in the form that is due, and none that it does not show has one; units
// have the right hashes, parents, counts and tokens, and a global page only where their parents
// have one. For tests, between steps.
std::optional<std::string> FindPageProblem(const PageBook& book,
                                           std::span<const CheckedSequence> sequences);

}  // namespace nibble
