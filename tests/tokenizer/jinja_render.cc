// For tools/template_differential.py. Reads one JSON object {"t": template, "c": context} a line
// and answers with one line: "O" and the text, or "E" and the error, behind a tab, with line breaks
// and backslashes escaped.
#include <iostream>
#include <string>

#include "tokenizer/jinja.h"

namespace {

nibble::Result<std::string> Render(const std::string& line) {
  NIBBLE_TRY(const nibble::JinjaValue request, nibble::JinjaValue::FromJson(line));
  const auto source = request.Get("t"), context = request.Get("c");
  if (!source || !context) return nibble::BadInput("expected {{\"t\": ..., \"c\": ...}}");
  NIBBLE_TRY(const auto parsed, nibble::JinjaTemplate::Parse(source->ToString()));
  return parsed.Render(*context);
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\\':
        out += "\\\\";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = Render(line);
    std::cout << (text ? "O\t" + Escaped(*text) : "E\t" + Escaped(text.error().message))
              << std::endl;
  }
}
