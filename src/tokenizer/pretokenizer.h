#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/regex.h"

namespace nibble {

// A text cut into pieces, in order; pieces are never empty.
struct Pieces {
  struct Piece {
    uint32_t begin = 0;
    uint32_t end = 0;
    bool at_start = false;  // begins the whole text that is being encoded
  };
  std::string text;
  std::vector<Piece> pieces;
  // Steps may leave the rest of the text out when there are more pieces than this, and say so.
  size_t most = SIZE_MAX;
  bool cut = false;

  std::string_view View(const Piece& p) const {
    return std::string_view(text).substr(p.begin, p.end - p.begin);
  }
};

// One step of pre-tokenisation: cuts pieces further and may change their text. Steps accept
// ill-formed UTF-8.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status Apply(Pieces& pieces) const = 0;
};
using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

// What becomes of a match, by Hugging Face's names.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

enum class MetaspacePrepend : uint8_t { kAlways, kFirst, kNever };

using CharPredicate = bool (*)(char32_t);

std::unique_ptr<PreTokenizer> MakeRegexSplit(Regex regex, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> MakeCharSplit(CharPredicate matches, SplitBehavior behavior);
// Every occurrence of one character.
std::unique_ptr<PreTokenizer> MakeDelimiterSplit(char32_t delimiter, SplitBehavior behavior);
std::unique_ptr<PreTokenizer> MakeFixedLength(size_t characters);
// Runs of digits in groups of three from the right, in linear time; what `(?=(\d{3})+(?!\d))` and
// `\d{1,3}(?=(?:\d{3})*\b)` do in quadratic time. With need_boundary a run that a word character
// follows is left whole.
struct DigitGroupOptions {
  bool need_boundary = false;
  bool isolate_run = false;   // cut before and behind the run too
  bool decimal_only = false;  // category Nd, else all of N
};
std::unique_ptr<PreTokenizer> MakeDigitGroups(DigitGroupOptions options);
// The expression's matches and what lies between them, each a piece: a regex split with behaviour
// Isolated, or digit groups where the expression is known to mean them. Oniguruma's spelling.
Result<std::unique_ptr<PreTokenizer>> MakeIsolatedSplit(std::string_view pattern);
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, MetaspacePrepend prepend,
                                            bool split);
// A space before pieces without one (ByteLevel's add_prefix_space).
std::unique_ptr<PreTokenizer> MakePrefixSpace();
// Bytes to their GPT-2 characters, and back.
std::unique_ptr<PreTokenizer> MakeByteLevelMap();
std::unique_ptr<PreTokenizer> MakeByteLevelUnmap();

// GPT-2's own expression.
extern const std::string_view kGpt2Pattern;

}  // namespace nibble
