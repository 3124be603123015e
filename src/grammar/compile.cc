#include "grammar/compile.h"

#include <utility>

#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/json_grammar.h"
#include "grammar/json_schema.h"
#include "grammar/regex_syntax.h"
#include "grammar/vocabulary.h"

namespace nibble::grammar {
namespace {

constexpr size_t kMostChoices = 10'000;

Result<GrammarSource> ChoiceSource(const std::vector<std::string>& choices) {
  if (choices.empty()) return BadInput("no choices, expected at least one");
  if (choices.size() > kMostChoices) {
    return BadInput("{} choices, expected at most {}", choices.size(), kMostChoices);
  }
  GrammarSource source;
  std::vector<ExprId> ways;
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    if (choice.empty()) return BadInput("a choice is empty");
    if (!IsValidUtf8(choice)) return BadInput("a choice is no UTF-8");
    bytes += choice.size();
    if (bytes > kMostGrammarBytes) {
      return BadInput("the choices have more than {} bytes", kMostGrammarBytes);
    }
    ways.push_back(source.Bytes(choice));
  }
  source.SetRoot(source.AddRule("choice", source.Choice(ways)));
  return source;
}

Result<GrammarSource> SourceOf(const Wanted& wanted) {
  switch (wanted.kind) {
    case Wanted::Kind::kGbnf:
      return ParseGbnf(wanted.text);
    case Wanted::Kind::kRegex: {
      NIBBLE_TRY(const RegexTree tree, ParseRegex(wanted.text));
      GrammarSource source;
      NIBBLE_TRY(const ExprId body, WholeMatch(tree, source));
      source.SetRoot(source.AddRule("regex", body));
      return source;
    }
    case Wanted::Kind::kChoice:
      return ChoiceSource(wanted.choices);
    case Wanted::Kind::kJsonObject: {
      GrammarSource source;
      source.SetRoot(AddJsonRules(source, JsonSpace::kFew).object);
      return source;
    }
    case Wanted::Kind::kTools:
      return ToolSource(wanted.tools);
    case Wanted::Kind::kJsonSchema:
      break;
  }
  return SchemaSource(wanted.text, {.best_effort = wanted.best_effort});
}

}  // namespace

Result<std::shared_ptr<const Automaton>> Compile(const Wanted& wanted) {
  NIBBLE_TRY(GrammarSource source, SourceOf(wanted));
  if (!wanted.behind.empty()) {
    NIBBLE_TRY(const ExprId before, TextWithout(source, wanted.behind));
    const ExprId mark =
        source.Choice({source.Bytes(wanted.behind), source.Bytes(kMarkByte + wanted.behind)});
    const ExprId space = source.Repeat(source.Chars({{' ', ' '}, {'\n', '\n'}}), 0, 4);
    source.SetRoot(source.AddRule(
        "reasoned", source.Sequence({before, mark, space, source.Use(source.root())})));
  }
  AutomatonLimits limits;
  limits.refuse_useless_rules = wanted.kind == Wanted::Kind::kGbnf;
  NIBBLE_TRY(Automaton automaton, AutomatonOf(source, limits));
  return std::make_shared<const Automaton>(std::move(automaton));
}

}  // namespace nibble::grammar
