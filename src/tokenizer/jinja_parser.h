#pragma once

#include <memory>
#include <string_view>

#include "tokenizer/jinja.h"
#include "tokenizer/jinja_ast.h"

namespace nibble::jinja {

// jinja2's grammar and its compile-time checks. Raises TemplateError with a line.
std::shared_ptr<const Program> ParseTemplate(std::string_view source, const JinjaOptions& options);

}  // namespace nibble::jinja
