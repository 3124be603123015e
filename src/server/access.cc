#include "server/access.h"

#include <algorithm>

#include "base/sha256.h"

namespace nibble::server {
namespace {

bool IsToken(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

// Whether a text that ends in one = looks like base64 of a key, not like a name without one.
bool IsPadded(std::string_view text) {
  constexpr size_t kLeast = 20;
  return text.size() >= kLeast && text.size() % 4 == 0;
}

// Looks at every byte whatever it finds.
bool SameBytes(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  // The compiler must not see that the first difference decides.
  volatile unsigned result = difference;
  return result == 0;
}

}  // namespace

Status AccessKeys::Add(std::string_view given) {
  // Keys may end in =, as base64 does, so only a name before and something else behind count.
  std::string name = keys_.empty() ? "default" : "key" + std::to_string(keys_.size() + 1);
  const size_t equals = given.find('=');
  if (equals != given.npos && given.find_first_not_of('=', equals) != given.npos) {
    name = given.substr(0, equals);
    given.remove_prefix(equals + 1);
  } else if (equals + 1 == given.size() && !IsPadded(given)) {
    return BadInput("the key behind = is empty; a key that ends in = needs a name: NAME=KEY");
  }
  if (name.empty()) return BadInput("the name before = is empty");
  if (given.empty()) return BadInput("the key is empty");
  if (!IsToken(given))
    return BadInput("the key holds what no HTTP header can: blanks or non-ASCII");
  std::string digest = Sha256Hex(given);
  for (const Key& key : keys_) {
    if (key.name == name) return BadInput("the name {} is given twice", name);
    if (key.digest == digest) return BadInput("the keys of {} and {} are the same", key.name, name);
  }
  keys_.push_back({std::move(name), std::move(digest)});
  return {};
}

Status AccessKeys::AddLines(std::string_view text) {
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    if (const Status added = Add(line); !added) {
      return Within(fmt::format("line {}", number), added.error());
    }
  }
  if (keys_.empty()) return BadInput("no key");
  return {};
}

std::optional<std::string> AccessKeys::Find(std::string_view presented) const {
  // Hashes have one length, and tell nothing of how much of a key was right.
  const std::string digest = Sha256Hex(presented);
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    if (SameBytes(key.digest, digest)) found = &key;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

}  // namespace nibble::server
