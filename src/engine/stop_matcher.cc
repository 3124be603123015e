#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace nibble {

std::string StopMatcher::Add(std::string_view piece) {
  if (matched_) return {};
  held_ += piece;
  size_t first = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at < first) {
      first = at;
      found = &stop;
    }
  }
  if (found != nullptr) {
    matched_ = *found;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  const size_t keep = HeldBytes();
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

// Length of the longest end of held_ that begins a stop string. Stop strings are short and pieces
// are tokens: plain comparison is enough.
size_t StopMatcher::HeldBytes() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    const size_t most = std::min(stop.size() - 1, held_.size());
    for (size_t n = most; n > longest; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

}  // namespace nibble
