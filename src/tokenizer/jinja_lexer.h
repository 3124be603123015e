#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja.h"
#include "tokenizer/jinja_value.h"

namespace nibble::jinja {

enum class TokenKind {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // data, a name, a string's contents, an operator
  Value number;      // of kInteger and kFloat
};

// Splits a template as jinja2's lexer does, white-space control applied. Raises TemplateError with
// its line. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source, const JinjaOptions& options);

}  // namespace nibble::jinja
