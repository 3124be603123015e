#include "cost/nearest.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace nibble {
namespace {

constexpr size_t kLongestName = 64;

// Levenshtein's distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestNames(std::string_view name, std::span<const std::string_view> names) {
  constexpr size_t kOffered = 3;
  const std::string wanted = AsciiLower(name.substr(0, kLongestName));
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const std::string_view one : names) near.emplace_back(EditDistance(wanted, one), one);
  std::ranges::stable_sort(near, {}, &std::pair<size_t, std::string_view>::first);
  near.resize(std::min(near.size(), kOffered));
  std::string text;
  for (size_t i = 0; i < near.size(); ++i) {
    if (i > 0) text += i + 1 == near.size() ? " and " : ", ";
    text += near[i].second;
  }
  return text;
}

}  // namespace nibble
