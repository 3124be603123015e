// deps: server
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/reasoning.h"

// An answer is split the same however its pieces fall, and nothing is made up. The first byte says
// whether it begins inside, the second how long pieces are; a byte below 3 in the rest stands for a
// mark, because marks are long.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nibble::server::ReasoningSplitter;
  if (size < 2) return 0;
  std::string answer;
  for (size_t i = 2; i < size; ++i) {
    constexpr std::string_view kMarks[] = {"<think>", "</think>", "</thin"};
    if (data[i] < 3) {
      answer += kMarks[data[i]];
    } else {
      answer += static_cast<char>(data[i]);
    }
  }
  const auto split = [&](size_t piece) {
    ReasoningSplitter splitter({"<think>", "</think>", (data[0] & 1) != 0});
    ReasoningSplitter::Parts all;
    const auto add = [&](const ReasoningSplitter::Parts& parts) {
      all.reasoning += parts.reasoning;
      all.text += parts.text;
    };
    for (size_t at = 0; at < answer.size(); at += piece) {
      add(splitter.Add(std::string_view(answer).substr(at, piece)));
    }
    add(splitter.End());
    return all;
  };
  const auto whole = split(std::max<size_t>(answer.size(), 1));
  const auto pieces = split(size_t{1} + data[1] % 16);
  if (whole.reasoning != pieces.reasoning || whole.text != pieces.text) std::abort();
  if (answer.find(whole.reasoning) == answer.npos || !answer.ends_with(whole.text)) std::abort();
  return 0;
}
