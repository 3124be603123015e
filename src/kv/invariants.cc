#include "kv/invariants.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace nibble {
namespace {

// Counts the sequence's pages of one group into owners; a problem with its table's shape, if any.
std::optional<std::string> WalkTable(const SequencePages& sequence, int group, int window,
                                     std::vector<int>& owners) {
  const std::span<const PageId> table = sequence.table(group);
  if (static_cast<int>(table.size()) != PagesFor(sequence.committed())) {
    return fmt::format("group {}: {} pages for {} committed positions", group, table.size(),
                       sequence.committed());
  }
  const int hidden = window == 0 ? 0 : std::max(0, sequence.committed() - window + 1);
  for (int p = 0; p < static_cast<int>(table.size()); ++p) {
    const bool visible = (p + 1) * kPageTokens > hidden;
    if ((table[p] != kNoPage) != visible) {
      return fmt::format("group {}: page {} of a sequence of {} positions is {}", group, p,
                         sequence.committed(), visible ? "missing" : "kept outside the window");
    }
    if (table[p] == kNoPage) continue;
    if (table[p].value() < 0 || table[p].value() >= static_cast<int>(owners.size())) {
      return fmt::format("group {}: page id {} does not exist", group, table[p].value());
    }
    ++owners[table[p].value()];
  }
  return std::nullopt;
}

std::optional<std::string> ComparePool(const PagePool& pool, int group,
                                       const std::vector<int>& owners) {
  std::vector<int> listed(pool.size(), 0);
  for (PageId page : pool.free_list()) ++listed[page.value()];
  for (int page = 0; page < pool.size(); ++page) {
    const int references = pool.references(PageId{page});
    if (references != owners[page]) {
      return fmt::format("group {}: page {} has {} references and {} owners", group, page,
                         references, owners[page]);
    }
    if (listed[page] != (references == 0 ? 1 : 0)) {
      return fmt::format("group {}: page {} with {} references is {} times in the free list", group,
                         page, references, listed[page]);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> FindPageProblem(const PageBook& book,
                                           std::span<const SequencePages* const> sequences) {
  for (int g = 0; g < book.groups(); ++g) {
    std::vector<int> owners(book.pool(g).size(), 0);
    for (const SequencePages* sequence : sequences) {
      if (auto problem = WalkTable(*sequence, g, book.window(g), owners)) return problem;
    }
    if (auto problem = ComparePool(book.pool(g), g, owners)) return problem;
  }
  return std::nullopt;
}

}  // namespace nibble
