// deps: eval
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "eval/logits_base.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto base = nibble::LogitsBase::Parse(std::as_bytes(std::span(data, size)));
  if (!base) return 0;
  static_cast<void>(base->Ids());
  std::vector<float> row(static_cast<size_t>(base->vocabulary()));
  for (int window = 0; window < base->windows(); ++window) {
    for (int at = base->context() / 2; at + 1 < base->context(); ++at) {
      static_cast<void>(base->Row(window, nibble::Position{at}, row));
      static_cast<void>(base->Logprob(window, nibble::Position{at}, nibble::TokenId{0}));
    }
  }
  return 0;
}
