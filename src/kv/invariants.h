#pragma once

#include <optional>
#include <span>
#include <string>

#include "kv/page_book.h"

namespace nibble {

// Walks pools and all living sequences and says what is wrong, or nothing: every table entry is a
// page whose reference count is the number of tables that hold it, free pages are held by nobody
// and listed once, no page is neither free nor held, every committed position that its window
// still shows has a page, and none that it does not show has one. For tests, between steps.
std::optional<std::string> FindPageProblem(const PageBook& book,
                                           std::span<const SequencePages* const> sequences);

}  // namespace nibble
