#pragma once

namespace nibble {

// Positions per KV page: pages are counted by the bookkeeping and laid out by the kernels.
inline constexpr int kPageTokens = 32;

}  // namespace nibble
