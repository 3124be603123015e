#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja_interpreter.h"

namespace nibble::jinja {

Method FindStrMethod(std::string_view name);  // null: str has no such method

// str.isupper and str.islower.
bool IsUpperCased(std::string_view text);
bool IsLowerCased(std::string_view text);

// str.replace; count < 0: all. Raises when the result would be too large.
std::string CheckedReplace(Interpreter& in, const std::string& text, const std::string& from,
                           const std::string& to, int64_t count);

// str.ljust ('<'), rjust ('>') and center ('^').
std::string Justified(Interpreter& in, const Str& str, int64_t width, char align,
                      const std::string& fill);

}  // namespace nibble::jinja
