#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// Ranks for RankBpeOptions from SentencePiece's scores: the highest score is 0, equal scores are
// equal. No score may be NaN.
inline std::vector<uint32_t> RanksByScore(std::span<const float> scores) {
  std::vector<uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  std::vector<uint32_t> ranks(scores.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) rank = static_cast<uint32_t>(i);
    ranks[order[i]] = rank;
  }
  return ranks;
}

// "▁the" to " the".
inline std::string UnescapeSpaces(std::string_view piece) {
  constexpr std::string_view kSpace = "\xE2\x96\x81";
  std::string out;
  size_t previous = 0;
  for (size_t at; (at = piece.find(kSpace, previous)) != std::string_view::npos;) {
    out += piece.substr(previous, at - previous);
    out += ' ';
    previous = at + kSpace.size();
  }
  out += piece.substr(previous);
  return out;
}

}  // namespace nibble
