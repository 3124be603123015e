#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace nibble {

// An integer with a meaning: ids of different tags do not mix and have no arithmetic.
template <class Tag, class Int>
class StrongId {
 public:
  using ValueType = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;

 private:
  Int value_ = 0;
};

using TokenId = StrongId<struct TokenIdTag, int32_t>;  // index into the vocabulary
using PageId = StrongId<struct PageIdTag, int32_t>;    // page of one KV group; -1: none
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
using Position = StrongId<struct PositionTag, int32_t>;  // 0-based place in a sequence

inline constexpr PageId kNoPage{-1};
inline constexpr TokenId kNoToken{-1};

constexpr Position operator+(Position p, int n) { return Position{p.value() + n}; }
constexpr int operator-(Position a, Position b) { return a.value() - b.value(); }

}  // namespace nibble

template <class Tag, class Int>
struct std::hash<nibble::StrongId<Tag, Int>> {
  size_t operator()(nibble::StrongId<Tag, Int> id) const noexcept {
    return std::hash<Int>{}(id.value());
  }
};
