#include "kv/invariants.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

namespace nibble {
namespace {

using Problem = std::optional<std::string>;

Problem CountOwner(PageId page, int group, std::vector<int>& owners) {
  if (page.value() < 0 || page.value() >= static_cast<int>(owners.size())) {
    return fmt::format("group {}: page id {} does not exist", group, page.value());
  }
  ++owners[static_cast<size_t>(page.value())];
  return std::nullopt;
}

// Owners of a group's pages by form.
struct Owners {
  std::vector<int> pages;
  std::vector<int> open;
};

// Counts the sequence's pages of one group into owners; a problem with its tables' shape, if any.
Problem WalkTable(const PageBook& book, const SequencePages& sequence, int group, Owners& owners) {
  const std::span<const PageId> table = sequence.table(group);
  const int committed = sequence.committed();
  const FormPages ends = book.Ends(group, committed);
  if (std::ssize(table) != ends.pages) {
    return fmt::format("group {}: {} pages for {} committed positions", group, table.size(),
                       committed);
  }
  const int first = book.FirstVisible(group, committed);
  for (int p = 0; p < ends.pages; ++p) {
    const PageId page = table[static_cast<size_t>(p)];
    if ((page != kNoPage) != (p >= first)) {
      return fmt::format("group {}: page {} of a sequence of {} positions is {}", group, p,
                         committed, p >= first ? "missing" : "kept outside the window");
    }
    if (page == kNoPage) continue;
    if (auto problem = CountOwner(page, group, owners.pages)) return problem;
  }
  if (!book.two_forms(group)) return std::nullopt;
  const std::span<const PageId> open = sequence.open_table(group);
  if (std::ssize(open) != ends.open) {
    return fmt::format("group {}: {} open pages for {} committed positions", group, open.size(),
                       committed);
  }
  for (int p = 0; p < ends.open; ++p) {
    const PageId page = open[static_cast<size_t>(p)];
    if ((page != kNoPage) != (p >= ends.pages)) {
      return fmt::format("group {}: open page {} of a sequence of {} positions is {}", group, p,
                         committed, p >= ends.pages ? "missing" : "kept behind its sealing");
    }
    if (page == kNoPage) continue;
    if (auto problem = CountOwner(page, group, owners.open)) return problem;
  }
  return std::nullopt;
}

Problem ComparePool(const PagePool& pool, int group, const std::vector<int>& owners) {
  std::vector<int> free(owners.size(), 0), evictable(owners.size(), 0);
  for (const PageId page : pool.free_list()) ++free[static_cast<size_t>(page.value())];
  for (const PageId page : pool.EvictionOrder()) ++evictable[static_cast<size_t>(page.value())];
  int idle = 0;
  for (int i = 0; i < pool.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const PageId page{i};
    const int references = pool.references(page);
    if (references != owners[at]) {
      return fmt::format("group {}: page {} has {} references and {} owners", group, i, references,
                         owners[at]);
    }
    const bool listed = pool.unit(page) != kNoUnit;
    const bool touched = i < pool.touched();
    if (free[at] != (touched && references == 0 && !listed ? 1 : 0) ||
        evictable[at] != (references == 0 && listed ? 1 : 0)) {
      return fmt::format(
          "group {}: page {} with {} references is {} times in the free list and {} times in the "
          "evictable one",
          group, i, references, free[at], evictable[at]);
    }
    idle += references == 0 ? 1 : 0;
  }
  if (idle != pool.available_pages()) {
    return fmt::format("group {}: {} pages have no owner and {} are available", group, idle,
                       pool.available_pages());
  }
  return std::nullopt;
}

// A unit's pages: listed on both sides, and a global one only behind another.
Problem CheckUnitPages(const PageBook& book, UnitId unit, int& pages) {
  const PrefixIndex& index = *book.index();
  const UnitId parent = index.parent(unit);
  for (int g = 0; g < book.groups(); ++g) {
    for (int i = 0; i < book.unit_pages(); ++i) {
      const int slot = g * book.unit_pages() + i;
      const PageId page = index.page(unit, slot);
      if (page == kNoPage) continue;
      ++pages;
      if (book.pool(g).unit(page) != unit) {
        return fmt::format("group {}: page {} is listed in unit {} and says {}", g, page.value(),
                           unit.value(), book.pool(g).unit(page).value());
      }
      if (book.window(g) == 0 && parent != kNoUnit && index.page(parent, slot) == kNoPage) {
        return fmt::format("group {}: unit {} has page {} and its parent none", g, unit.value(), i);
      }
    }
  }
  return std::nullopt;
}

Problem CheckIndex(const PageBook& book, std::span<const CheckedSequence> sequences) {
  const PrefixIndex& index = *book.index();
  std::map<UnitId, PrefixIndex::Counts> expected;
  int listed = 0;
  for (const CheckedSequence& sequence : sequences) {
    if (sequence.pages->unit() != kNoUnit) ++expected[sequence.pages->unit()].holders;
  }
  for (const UnitId unit : index.All()) {
    if (!index.HashIsRight(unit)) return fmt::format("unit {}: wrong hash", unit.value());
    if (index.parent(unit) != kNoUnit) ++expected[index.parent(unit)].children;
    if (auto problem = CheckUnitPages(book, unit, expected[unit].pages)) return problem;
    listed += expected[unit].pages;
  }
  for (const auto& [unit, counts] : expected) {
    const PrefixIndex::Counts own = index.counts(unit);
    if (own.children != counts.children || own.pages != counts.pages ||
        own.holders != counts.holders) {
      return fmt::format("unit {}: counts {} children, {} pages, {} holders, but has {}, {}, {}",
                         unit.value(), own.children, own.pages, own.holders, counts.children,
                         counts.pages, counts.holders);
    }
    if (own.children + own.pages + own.holders == 0) {
      return fmt::format("unit {} is listed for nobody", unit.value());
    }
  }
  for (int g = 0; g < book.groups(); ++g) {
    for (int page = 0; page < book.pool(g).size(); ++page) {
      listed -= book.pool(g).unit(PageId{page}) != kNoUnit ? 1 : 0;
    }
  }
  if (listed != 0) return fmt::format("{} more pages listed than pages that say so", listed);
  return std::nullopt;
}

// The units of a sequence hold its tokens and, where it has a listed page, are that page's.
Problem CheckUnitsOf(const PageBook& book, const CheckedSequence& sequence) {
  const PrefixIndex& index = *book.index();
  UnitId unit = sequence.pages->unit();
  for (int k = sequence.pages->units() - 1; k >= 0; --k, unit = index.parent(unit)) {
    if (unit == kNoUnit) return fmt::format("a chain of units is too short");
    const std::span<const TokenId> tokens = index.tokens(unit);
    for (int i = 0; i < index.unit_tokens() && sequence.tokens.size() > 0; ++i) {
      if (sequence.tokens[k * index.unit_tokens() + i] != tokens[static_cast<size_t>(i)]) {
        return fmt::format("unit {} of a sequence has other tokens", k);
      }
    }
    for (int g = 0; g < book.groups(); ++g) {
      for (int i = 0; i < book.unit_pages(); ++i) {
        const auto p = static_cast<size_t>(k * book.unit_pages() + i);
        const PageId own = sequence.pages->table(g)[p];
        if (own != kNoPage && index.page(unit, g * book.unit_pages() + i) != own) {
          return fmt::format("group {}: unit {} of a sequence lists another page", g, k);
        }
      }
    }
  }
  if (unit != kNoUnit) return fmt::format("a chain of units is too long");
  return std::nullopt;
}

}  // namespace

Problem FindPageProblem(const PageBook& book, std::span<const CheckedSequence> sequences) {
  for (int g = 0; g < book.groups(); ++g) {
    Owners owners{.pages = std::vector<int>(static_cast<size_t>(book.pool(g).size()), 0),
                  .open = std::vector<int>(static_cast<size_t>(book.open_pool(g).size()), 0)};
    for (const CheckedSequence& sequence : sequences) {
      if (auto problem = WalkTable(book, *sequence.pages, g, owners)) return problem;
    }
    if (auto problem = ComparePool(book.pool(g), g, owners.pages)) return problem;
    if (auto problem = ComparePool(book.open_pool(g), g, owners.open)) return problem;
  }
  if (book.index() == nullptr) return std::nullopt;
  if (auto problem = CheckIndex(book, sequences)) return problem;
  for (const CheckedSequence& sequence : sequences) {
    if (auto problem = CheckUnitsOf(book, sequence)) return problem;
  }
  return std::nullopt;
}

}  // namespace nibble
