#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/expression.h"

namespace nibble::grammar {

// How a model writes calls of tools:
//   list_open, call (separator call)*, list_close
// with call = open name (id_mark id)? between arguments close, the arguments a JSON object, and an
// id of nine letters and digits where there is an id_mark.
struct ToolSyntax {
  std::string list_open;
  std::string open;
  std::string between;
  std::string close;
  std::string separator;
  std::string list_close;
  // What calls begin with and other text has nowhere; empty: text may be anything that does not
  // begin with `open`'s first character.
  std::string mark;
  std::vector<std::string> tokens = {};  // pieces of these that are control tokens, written as such
  bool several = true;                   // more than one call in an answer
  // The prompt ends with `open`. Then a call of this name is no call but text, up to the next
  // `open`, and has no arguments. Empty: text is what stands beside calls.
  std::string text_name = {};
  std::string id_mark = {};

  bool operator==(const ToolSyntax&) const = default;
};

struct ToolCalls {
  struct Tool {
    std::string name;
    std::string schema;  // of its arguments, JSON; empty: any object
    bool best_effort = false;
  };
  ToolSyntax syntax;
  std::vector<Tool> tools;
  bool required = false;  // at least one call and nothing else; else text, calls, or both
  bool parallel = true;   // more than one call
};

// Texts that have `mark` nowhere.
Result<ExprId> TextWithout(GrammarSource& source, std::string_view mark);

// Answers that call tools. Errors name the tool and what is wrong with its schema.
Result<GrammarSource> ToolSource(const ToolCalls& calls);

}  // namespace nibble::grammar
