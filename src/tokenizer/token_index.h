#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// Multiply-and-fold hash of a short byte string (after wyhash): 1-2 ns for a word.
inline uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kMul = 0x9E3779B97F4A7C15ULL;
  const auto fold = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t h = bytes.size() * kMul;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    h = fold(h ^ word, kMul);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
  return fold(h ^ tail ^ 0xD6E8FEB86659FD93ULL, kMul);
}

// Byte strings to ids: open addressing, linear probing, the strings in one block.
class TokenIndex {
 public:
  void Reserve(size_t tokens, size_t bytes);
  // False when the text is there already; the first id stays.
  bool Insert(std::string_view text, int32_t id);
  int32_t Find(std::string_view text) const;  // -1: not there
  template <class Visit>
  void ForEach(Visit&& visit) const {
    for (const Entry& e : entries_) visit(TextOf(e));
  }
  size_t size() const { return entries_.size(); }
  size_t longest() const { return longest_; }  // bytes

 private:
  struct Entry {
    uint64_t offset;
    uint32_t size;
    int32_t id;
  };
  void Grow(size_t slots);
  std::string_view TextOf(const Entry& e) const {
    return std::string_view(arena_).substr(e.offset, e.size);
  }

  std::string arena_;
  std::vector<Entry> entries_;
  struct Slot {
    uint32_t tag = 0;    // upper half of the hash
    uint32_t entry = 0;  // index + 1; 0: free
  };
  std::vector<Slot> slots_;  // a power of two
  size_t longest_ = 0;
};

}  // namespace nibble
