#pragma once

#include <span>
#include <vector>

#include "kv/page_book.h"
#include "model/kv_groups.h"

namespace nibble {

// What decides how many pages a cache needs beside its tokens.
struct PoolLimits {
  int max_rows = 512;    // most rows of a step
  int max_running = 16;  // most sequences that hold pages
  bool prefix_cache = true;
};

inline constexpr int kMostKvTokens = 1 << 28;

// Pools of each group so that the global layers hold `tokens` tokens. A windowed group needs no
// more than max_running sequences can hold at once, and with a prefix cache as much again for what
// it keeps. Open pages, where they are others: a unit of each running sequence and a step's rows.
std::vector<PoolSpec> PoolsForTokens(std::span<const KvGroup> groups, int tokens,
                                     const PoolLimits& limits);

// As KvStorage takes them: open pages, or all where the forms are one, and sealed ones.
std::vector<int> OpenPagesOf(std::span<const PoolSpec> pools);
std::vector<int> SealedPagesOf(std::span<const PoolSpec> pools);

// Bytes of the pools for so many tokens.
size_t KvBytesFor(std::span<const KvGroup> groups, int tokens, const PoolLimits& limits);

// Most tokens (whole pages), up to `most`, whose pools take at most `bytes`; 0 when not even one
// page does.
int TokensIn(std::span<const KvGroup> groups, size_t bytes, int most, const PoolLimits& limits);

}  // namespace nibble
