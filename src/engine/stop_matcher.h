#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// Cuts a text that arrives in pieces before the first stop string, wherever the pieces' borders
// are. Text that may be the beginning of a stop string is held back until that is decided.
class StopMatcher {
 public:
  // Stop strings are not empty.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The text that is safe to show now. After a match: the text before the stop string, and from
  // then on nothing.
  std::string Add(std::string_view piece);
  // What is still held back, at the end of the text.
  std::string Flush();

  // The stop string that was found: of those that begin first the one listed first.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  size_t HeldBytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace nibble
