#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_interpreter.h"

namespace nibble::jinja {

// jinja2's built-in filters and tests by name, with transformers' tojson; null: no such name.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);

struct NamedFilter {
  std::string_view name;
  FilterFunction filter;
};
// The two halves of the table.
const std::vector<NamedFilter>& TextFilters();
const std::vector<NamedFilter>& SequenceFilters();

}  // namespace nibble::jinja
