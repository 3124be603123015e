#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/precompiled.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace nibble {

// One step of normalisation: text in, text out. Texts are valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual Result<std::string> Apply(std::string text) const = 0;
};
using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

std::unique_ptr<Normalizer> MakeUnicodeForm(NormalForm form);
std::unique_ptr<Normalizer> MakeLowercase();
std::unique_ptr<Normalizer> MakeStrip(bool left, bool right);
std::unique_ptr<Normalizer> MakeStripAccents();  // drops every mark, composes nothing
std::unique_ptr<Normalizer> MakeReplace(Regex pattern, std::string content);
std::unique_ptr<Normalizer> MakeReplaceText(std::string pattern, std::string content);
std::unique_ptr<Normalizer> MakePrepend(std::string prefix);  // not to an empty text
std::unique_ptr<Normalizer> MakeNmt();  // SentencePiece's nmt rules for controls and spaces
std::unique_ptr<Normalizer> MakeByteLevelNormalizer();
// SentencePiece's charsmap as the Hugging Face library applies it: by grapheme clusters.
std::unique_ptr<Normalizer> MakePrecompiled(Charsmap charsmap);

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
std::unique_ptr<Normalizer> MakeBert(BertOptions options);

struct SentencePieceOptions {
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool whitespace_as_suffix = false;
  std::vector<std::string> user_defined;  // left as they are
};
// SentencePiece's own normaliser.
std::unique_ptr<Normalizer> MakeSentencePiece(Charsmap charsmap, SentencePieceOptions options);

}  // namespace nibble
