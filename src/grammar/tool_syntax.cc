#include "grammar/tool_syntax.h"

#include <algorithm>
#include <utility>

#include "grammar/char_dfa.h"
#include "grammar/json_grammar.h"
#include "grammar/json_schema.h"
#include "grammar/vocabulary.h"

namespace nibble::grammar {
namespace {

constexpr size_t kMostTools = 128;
constexpr int kIdLength = 9;  // Mistral's templates refuse others

CodePointSet LettersAndDigits() { return {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}; }

// The texts of an automaton in UTF-8.
ExprId PlainGraph(GrammarSource& source, const CharDfa& dfa) {
  GrammarSource::Graph graph(dfa.states().size());
  for (size_t i = 0; i < graph.size(); ++i) {
    graph[i].final = dfa.states()[i].final;
    for (const CharDfa::Edge& edge : dfa.states()[i].edges) {
      CodePointSet set;
      set.Add(edge.low, edge.high);
      graph[i].edges.push_back({source.Chars(set), edge.target});
    }
  }
  return source.Add(std::move(graph));
}

// A piece of the syntax, with what are tokens in it as such.
ExprId Literal(GrammarSource& source, const ToolSyntax& syntax, const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    const bool token = std::ranges::any_of(
        syntax.tokens, [&](const std::string& mark) { return rest.starts_with(mark); });
    if (token) bytes += kMarkByte;
    bytes += text[i];
  }
  return source.Bytes(bytes);
}

Result<ExprId> TextBesideCalls(GrammarSource& source, const ToolSyntax& syntax) {
  const ExprId any = source.Repeat(source.Chars(CodePointSet::All()), 0, kUnbounded);
  if (syntax.mark.empty()) {
    CodePointSet first = CodePointSet::All();
    const auto begins = static_cast<char32_t>((syntax.list_open + syntax.open).front());
    first = first.Minus({{begins, begins}});
    return source.Sequence({source.Chars(first), any});
  }
  if (std::ranges::find(syntax.tokens, syntax.mark) != syntax.tokens.end()) {
    return any;  // text has no such byte
  }
  return TextWithout(source, syntax.mark);
}

// Where the prompt has written the first `open`.
Result<ExprId> BehindOpen(GrammarSource& source, const ToolCalls& calls, ExprId call) {
  const ToolSyntax& syntax = calls.syntax;
  ExprId rest = source.Empty();
  if (calls.parallel && syntax.several) {
    rest =
        source.Repeat(source.Sequence({Literal(source, syntax, syntax.open), call}), 0, kUnbounded);
  }
  const ExprId only_calls = source.Sequence({call, rest});
  if (calls.required) return only_calls;
  NIBBLE_TRY(const ExprId text, TextWithout(source, syntax.open));
  const ExprId behind_text = source.Sequence({Literal(source, syntax, syntax.open), only_calls});
  return source.Choice(
      {only_calls, source.Sequence({source.Bytes(syntax.text_name + syntax.between), text,
                                    source.Optional(behind_text)})});
}

}  // namespace

Result<ExprId> TextWithout(GrammarSource& source, std::string_view mark) {
  std::string pattern;
  for (const char c : mark) {
    if (c > 0x20 && c < 0x7F && !std::isalnum(static_cast<unsigned char>(c)) && c != '_') {
      pattern += '\\';
    }
    pattern += c;
  }
  NIBBLE_TRY(const RegexTree tree, ParseRegex(pattern));
  NIBBLE_TRY(const CharDfa with, CharDfa::OfRegex(tree, false));
  return PlainGraph(source, with.Complement());
}

Result<GrammarSource> ToolSource(const ToolCalls& calls) {
  if (calls.tools.empty()) return BadInput("no tools, expected at least one");
  if (calls.tools.size() > kMostTools) {
    return BadInput("{} tools, expected at most {}", calls.tools.size(), kMostTools);
  }
  const ToolSyntax& syntax = calls.syntax;
  GrammarSource source;
  std::vector<ExprId> ways;
  for (const ToolCalls::Tool& tool : calls.tools) {
    const std::string schema = tool.schema.empty() ? R"({"type": "object"})" : tool.schema;
    auto arguments = AddSchema(source, schema, {.best_effort = tool.best_effort});
    if (!arguments) return Within("the tool '" + tool.name + "'", arguments.error());
    if (tool.name == syntax.text_name) {
      return BadInput("the tool '{}' has the name that the model gives to text", tool.name);
    }
    std::vector<ExprId> call = {source.Bytes(tool.name)};
    if (!syntax.id_mark.empty()) {
      call.push_back(Literal(source, syntax, syntax.id_mark));
      call.push_back(source.Repeat(source.Chars(LettersAndDigits()), kIdLength, kIdLength));
    }
    call.push_back(Literal(source, syntax, syntax.between));
    call.push_back(*arguments);
    call.push_back(Literal(source, syntax, syntax.close));
    ways.push_back(source.Sequence(call));
  }
  const ExprId behind_open = source.Use(source.AddRule("call", source.Choice(ways)));
  if (!syntax.text_name.empty()) {
    NIBBLE_TRY(const ExprId answer, BehindOpen(source, calls, behind_open));
    source.SetRoot(source.AddRule("answer", answer));
    return source;
  }
  const ExprId call = source.Sequence({Literal(source, syntax, syntax.open), behind_open});
  std::vector<ExprId> list;
  if (!syntax.list_open.empty()) list.push_back(Literal(source, syntax, syntax.list_open));
  list.push_back(call);
  if (calls.parallel && syntax.several) {
    list.push_back(source.Repeat(source.Sequence({Literal(source, syntax, syntax.separator), call}),
                                 0, kUnbounded));
  }
  if (!syntax.list_close.empty()) list.push_back(Literal(source, syntax, syntax.list_close));
  const ExprId all = source.Sequence(list);
  if (calls.required) {
    source.SetRoot(source.AddRule("calls", all));
    return source;
  }
  NIBBLE_TRY(const ExprId text, TextBesideCalls(source, syntax));
  const ExprId answer = syntax.mark.empty() ? source.Choice({text, all})
                                            : source.Sequence({text, source.Optional(all)});
  source.SetRoot(source.AddRule("answer", answer));
  return source;
}

}  // namespace nibble::grammar
