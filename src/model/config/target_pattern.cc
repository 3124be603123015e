#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/config/hf_quantization.h"

namespace nibble {
namespace {

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

constexpr size_t kMaxPattern = 4096;
// A name has some dozens of bytes; an expression that needs more steps than this is an attack.
constexpr uint32_t kMatchLimit = 200000;

}  // namespace

struct TargetPattern::Impl {
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::string text;
  std::unique_ptr<pcre2_code, FreeCode> code;
};

Result<TargetPattern> TargetPattern::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return BadInput("an expression of {} bytes is too long", pattern.size());
  }
  auto impl = std::make_shared<Impl>();
  impl->text = pattern;
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                 nullptr));
  if (impl->code == nullptr) {
    PCRE2_UCHAR text[128] = {};
    pcre2_get_error_message(error, text, sizeof text);
    return BadInput("expression '{}': {} at {}", pattern.substr(0, 128),
                    reinterpret_cast<const char*>(text), offset);
  }
  return TargetPattern(std::move(impl));
}

Result<bool> TargetPattern::Matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  if (match == nullptr || context == nullptr) return BadInput("no memory for an expression");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_depth_limit(context.get(), kMatchLimit);
  const int found = pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()),
                                name.size(), 0, 0, match.get(), context.get());
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return BadInput("expression '{}' gives up on '{}'", impl_->text.substr(0, 128), name);
}

}  // namespace nibble
