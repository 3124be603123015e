#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>
#include <optional>

#include "base/utf8.h"

namespace nibble {
namespace {

// Steps of one search; a hostile expression needs more and is refused. The published expressions
// stay below 100 on ordinary text and below 2 per byte on long runs of one character.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackMax = size_t{32} << 20;
constexpr size_t kMaxPatternBytes = 64 * 1024;

struct CodeDeleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct StackDeleter {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

std::string PcreMessage(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// Patterns may be long (DeepSeek's letters): show their start.
std::string Shown(std::string_view pattern) {
  size_t n = std::min<size_t>(pattern.size(), 120);
  while (n < pattern.size() && n > 0 && (static_cast<uint8_t>(pattern[n]) & 0xC0) == 0x80) --n;
  return std::string(pattern.substr(0, n)) + (n < pattern.size() ? "…" : "");
}

}  // namespace

struct Regex::Impl {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool jit = false;
  std::string source;
};

namespace {

template <class Impl>
Result<std::unique_ptr<const Impl>> CompileTranslated(const std::string& translated,
                                                      std::string_view shown, uint32_t options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->source = Shown(shown);
  impl->code.reset(
      pcre2_compile(Bytes(translated), translated.size(), options, &error, &offset, nullptr));
  if (!impl->code) {
    return BadInput("the expression '{}' is not valid: {} (at byte {} of '{}')", impl->source,
                    PcreMessage(error), offset, Shown(translated));
  }
  impl->jit = pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return impl;
}

}  // namespace

Regex::Regex(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Result<Regex> Regex::Compile(std::string_view pattern, RegexDialect dialect) {
  if (pattern.size() > kMaxPatternBytes) {
    return BadInput("an expression of {} bytes is longer than the limit of {}", pattern.size(),
                    kMaxPatternBytes);
  }
  NIBBLE_TRY(const std::string translated, TranslateRegex(pattern, dialect));
  uint32_t options = PCRE2_UTF | PCRE2_UCP;
  options |= dialect == RegexDialect::kOniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY;
  NIBBLE_TRY(auto impl, CompileTranslated<Impl>(translated, pattern, options));
  return Regex(std::move(impl));
}

Result<Regex> Regex::Literal(std::string_view text) {
  NIBBLE_TRY(auto impl,
             CompileTranslated<Impl>(std::string(text), text, PCRE2_UTF | PCRE2_LITERAL));
  return Regex(std::move(impl));
}

struct RegexMatcher::Impl {
  const Regex::Impl* regex = nullptr;
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data;
  std::unique_ptr<pcre2_match_context, ContextDeleter> context;
  std::unique_ptr<pcre2_jit_stack, StackDeleter> stack;
  std::chrono::steady_clock::time_point deadline;
  uint32_t calls = 0;

  int Search(std::string_view text, size_t start, uint32_t options) {
    const pcre2_code* code = regex->code.get();
    if (regex->jit) {
      int rc = pcre2_jit_match(code, Bytes(text), text.size(), start, options, data.get(),
                               context.get());
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
        // The 32 KiB of the machine stack did not do; from now on use a larger one.
        stack.reset(pcre2_jit_stack_create(64 * 1024, kJitStackMax, nullptr));
        if (!stack) return PCRE2_ERROR_NOMEMORY;
        pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
        rc = pcre2_jit_match(code, Bytes(text), text.size(), start, options, data.get(),
                             context.get());
      }
      return rc;
    }
    return pcre2_match(code, Bytes(text), text.size(), start, options | PCRE2_NO_UTF_CHECK,
                       data.get(), context.get());
  }
};

RegexMatcher::RegexMatcher(const Regex& regex, size_t total_bytes)
    : impl_(std::make_unique<Impl>()) {
  impl_->regex = regex.impl_.get();
  impl_->data.reset(pcre2_match_data_create(1, nullptr));
  impl_->context.reset(pcre2_match_context_create(nullptr));
  if (!impl_->data || !impl_->context) throw std::bad_alloc();
  pcre2_set_match_limit(impl_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl_->context.get(), kHeapLimitKib);
  const auto budget =
      std::chrono::milliseconds(5000 + static_cast<int64_t>(total_bytes / 1024) * 5);
  impl_->deadline = std::chrono::steady_clock::now() + budget;
}

RegexMatcher::~RegexMatcher() = default;

Status RegexMatcher::FindInValid(std::string_view text, uint32_t base, size_t most,
                                 std::vector<MatchRange>& out) {
  size_t start = 0;
  std::optional<size_t> last_end;
  while (start <= text.size() && out.size() <= most) {
    if ((++impl_->calls & 15) == 0 && std::chrono::steady_clock::now() > impl_->deadline) {
      return BadInput("the expression '{}' is too slow on this text: stopped",
                      impl_->regex->source);
    }
    const int rc = impl_->Search(text, start, 0);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return BadInput("the expression '{}' needs too much work on this text: {}",
                      impl_->regex->source, PcreMessage(rc));
    }
    const PCRE2_SIZE* where = pcre2_get_ovector_pointer(impl_->data.get());
    const size_t begin = where[0];
    const size_t end = where[1];
    if (begin > end) return BadInput("the expression '{}' matches backwards", impl_->regex->source);
    const bool empty = begin == end;
    if (!empty || last_end != end) {
      out.push_back({base + static_cast<uint32_t>(begin), base + static_cast<uint32_t>(end)});
      last_end = end;
    }
    start = end;
    if (empty) start += end < text.size() ? DecodeUtf8(text, end).length : 1;
  }
  return {};
}

Status RegexMatcher::FindAll(std::string_view text, std::vector<MatchRange>& out, size_t most) {
  if (text.size() > std::numeric_limits<uint32_t>::max()) {
    return BadInput("a text of {} bytes is too long: the limit is 4 GiB", text.size());
  }
  if (IsValidUtf8(text)) return FindInValid(text, 0, most, out);
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t n = Utf8CharLength(text.substr(i));
    if (n == 0) {
      NIBBLE_RETURN_IF_ERROR(
          FindInValid(text.substr(begin, i - begin), static_cast<uint32_t>(begin), most, out));
      if (out.size() > most) return {};
      i += Utf8InvalidLength(text.substr(i));
      begin = i;
    } else {
      i += n;
    }
  }
  return FindInValid(text.substr(begin), static_cast<uint32_t>(begin), most, out);
}

}  // namespace nibble
