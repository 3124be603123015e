// deps: tokenizer
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/jinja.h"

// The input is a template, or a template and behind a zero byte a JSON context.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto parsed = nibble::JinjaTemplate::Parse(input.substr(0, zero));
  if (!parsed) return 0;
  auto context = nibble::JinjaValue::FromJson(
      zero == input.npos ? R"({"messages": [{"role": "user", "content": "hi"}], "n": 3})"
                         : input.substr(zero + 1));
  if (!context || !context->IsObject()) return 0;
  nibble::JinjaRenderOptions options;
  options.now = nibble::JinjaTime{2026, 3, 7, 9, 5, 3, 0};
  options.limits.max_steps = 20'000;
  options.limits.max_output_bytes = 1 << 16;
  options.limits.max_string_bytes = 1 << 20;
  static_cast<void>(parsed->Render(*context, options));
  return 0;
}
