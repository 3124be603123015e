#include "quantize/tokenizer_samples.h"

#include <algorithm>
#include <utility>

namespace nibble {
namespace {

// Contractions, digits, white space, other scripts, code: where pre-tokenizers differ.
constexpr std::string_view kHardText =
    "I'll SAY it'S 1234567 times, 3.14 or 12,345.67!\n\n\n  if (x==0) {\n\t\treturn "
    "y->z[10];\n}\r\n"
    "  trailing   spaces   \n \n naïve café — “quotes”… 你好，世界 こんにちは 한국어 Привет мир "
    "العربية हिन्दी \xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD ½ ² ① x² a_b_c HTTPServer "
    "camelCase don't we've they'd 'tis ##### --- ___ http://a.b/c?d=e&f=1%20g\n";

}  // namespace

std::vector<TokenizerSample> TokenizerSamples(const Tokenizer& tokenizer, std::string_view more,
                                              bool texts) {
  std::vector<std::string> all;
  std::vector<TokenId> pieces;
  for (int i = 0; i < std::min(tokenizer.vocab_size(), 1 << 12); ++i) {
    if (!tokenizer.IsControl(TokenId{i})) pieces.emplace_back(i);
    if (pieces.size() < 32 && i + 1 < tokenizer.vocab_size()) continue;
    all.push_back(tokenizer.Decode(pieces));
    pieces.clear();
  }
  if (texts) all.insert(all.end(), {std::string(kHardText), std::string(more)});
  std::vector<TokenizerSample> samples;
  for (std::string& text : all) {
    if (auto ids = tokenizer.Encode(text)) samples.push_back({std::move(text), *std::move(ids)});
  }
  return samples;
}

const TokenizerSample* FindDifference(const Tokenizer& found, const Tokenizer& tokenizer,
                                      const std::vector<TokenizerSample>& samples) {
  constexpr DecodeOptions kText = {.skip_special = true};
  for (const TokenizerSample& sample : samples) {
    const auto ids = found.Encode(sample.text);
    if (!ids || *ids != sample.ids) return &sample;
    // Without the marks: a space behind one is dropped by some and not by others.
    if (found.Decode(*ids, kText) != tokenizer.Decode(sample.ids, kText)) return &sample;
  }
  return nullptr;
}

}  // namespace nibble
