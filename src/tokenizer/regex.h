#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

// Whose spelling an expression is in; both are translated to PCRE2 (regex_translate.cc).
enum class RegexDialect : uint8_t {
  kOniguruma,  // Hugging Face tokenizer.json: Ruby syntax, ^ and $ are line anchors
  kRust,       // tiktoken (fancy-regex); possessive {n,m}+
};

struct MatchRange {
  uint32_t begin = 0;  // bytes
  uint32_t end = 0;
};

// The expression in PCRE2's spelling, with the classes \s \w \d \p{Han} … as the dialect defines
// them. Errors name the construct that has no counterpart.
Result<std::string> TranslateRegex(std::string_view pattern, RegexDialect dialect);

// A compiled expression (PCRE2, UTF mode, JIT where the machine allows). Immutable.
class Regex {
 public:
  static Result<Regex> Compile(std::string_view pattern, RegexDialect dialect);
  // An expression whose matches are exactly a given text.
  static Result<Regex> Literal(std::string_view text);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

 private:
  friend class RegexMatcher;
  struct Impl;
  explicit Regex(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Working memory for one expression, for one thread. All its searches share a time budget (5 s
// and 5 s per MB of text), because an expression from a file may need exponential time.
class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex, size_t total_bytes);
  ~RegexMatcher();
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  // All matches in text, from left to right, without overlaps, appended to out; empty ones count,
  // except directly behind another match. Ill-formed UTF-8 matches nothing and ends what is before
  // it. Stops when out has more than `most`. Errors: an expression that backtracks beyond its
  // bounds.
  Status FindAll(std::string_view text, std::vector<MatchRange>& out, size_t most = SIZE_MAX);

 private:
  struct Impl;
  Status FindInValid(std::string_view text, uint32_t base, size_t most,
                     std::vector<MatchRange>& out);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
