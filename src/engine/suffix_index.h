#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/token_list.h"

namespace nibble {

// Where the last tokens of a text occurred before, as in the matchers of compressors (LZ77): tables
// of the last place of every 4 and every 2 tokens, with a chain of the places before. 16 to 24
// bytes a token. Each token is added once, in constant time.
class SuffixIndex {
 public:
  static constexpr int kMostMatch = 64;  // a longer one counts as this

  struct Match {
    int end = 0;     // tokens [end - length, end) are the last `length` ones
    int length = 0;  // 0: none
  };
  // Adds what has been appended to the list since the last call, and finds the longest match of its
  // end among the last kMostTried places of each table; of equal ones the last. The list only ever
  // grows.
  Match Find(const TokenList& tokens);

 private:
  static constexpr int kMostTried = 32;
  struct Table {
    int order = 0;
    std::vector<int32_t> heads;     // [a power of two] the last place, or -1
    std::vector<int32_t> previous;  // [place] the one before with the same hash, or -1
  };
  static size_t Slot(const Table& table, const TokenList& tokens, int end);
  static void Insert(Table& table, const TokenList& tokens, int end);
  static void Grow(Table& table, const TokenList& tokens);
  static Match Longest(const Table& table, const TokenList& tokens);

  std::array<Table, 2> tables_ = {Table{.order = 4, .heads = {}, .previous = {}},
                                  Table{.order = 2, .heads = {}, .previous = {}}};
  int indexed_ = 0;  // ends [0, indexed_) are in the tables: the list's own end never is
};

}  // namespace nibble
