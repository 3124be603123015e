// deps: tokenizer
// A tokenizer.json, a NUL byte, and a text to encode and decode with it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tokenizer/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view json = input.substr(0, end);
  const std::string_view text =
      end == std::string_view::npos ? std::string_view("the cat") : input.substr(end + 1);
  const auto tokenizer = nibble::ParseTokenizerJson(json);
  if (!tokenizer) return 0;
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->Encode(text.substr(0, 2000), {special, special});
    if (!ids) continue;
    nibble::StreamingDetokenizer stream(*tokenizer);
    for (const nibble::TokenId id : *ids) {
      if (id.value() < 0 || id.value() >= tokenizer->vocab_size()) std::abort();
      stream.Add(id);
    }
    stream.Flush();
    tokenizer->Decode(*ids);
    // A bound tells a text that keeps it from one that does not.
    for (const size_t most : {size_t{0}, ids->size() / 2, ids->size()}) {
      const auto some = tokenizer->Encode(text.substr(0, 2000), {special, special, most});
      if (!some) std::abort();
      if (ids->size() <= most ? *some != *ids : some->size() <= most) std::abort();
    }
  }
  return 0;
}
