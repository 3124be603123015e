#pragma once

// Tokens in pieces whose number is known when the code is compiled.
namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int NextPiece(int tokens) { return tokens == 5 ? 3 : (tokens + 1) / 2; }

// Calls fn.template operator()<T>(first) for pieces of at most kMax tokens.
template <int kMax, class Fn>
void ForPieces(int count, int first, const Fn& fn) {
  while (count - first >= kMax) {
    fn.template operator()<kMax>(first);
    first += kMax;
  }
  if constexpr (kMax > 1) {
    if (first < count) ForPieces<NextPiece(kMax)>(count, first, fn);
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
