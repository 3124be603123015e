#include "cli/constraint_flags.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "cli/output.h"
#include "grammar/compile.h"
#include "grammar/constraint.h"

namespace nibble::cli {
namespace {

// A grammar and where it came from.
struct Compiled {
  std::string place;
  grammar::Wanted wanted;
};

Result<Compiled> ReadWanted(const ConstraintFlags& flags) {
  using Kind = grammar::Wanted::Kind;
  Compiled out;
  if (!flags.grammar.empty()) {
    out = {flags.grammar, {.kind = Kind::kGbnf, .text = {}, .choices = {}}};
    NIBBLE_TRY(out.wanted.text, ReadTextFile(flags.grammar));
  } else if (!flags.json_schema.empty()) {
    out = {flags.json_schema, {.kind = Kind::kJsonSchema, .text = {}, .choices = {}}};
    NIBBLE_TRY(out.wanted.text, ReadTextFile(flags.json_schema));
    out.wanted.best_effort = flags.best_effort;
  } else if (!flags.regex.empty()) {
    out = {"--regex", {.kind = Kind::kRegex, .text = flags.regex, .choices = {}}};
  } else if (!flags.choices.empty()) {
    out = {"--choice", {.kind = Kind::kChoice, .text = {}, .choices = flags.choices}};
  } else {
    out = {"--json-object", {.kind = Kind::kJsonObject, .text = {}, .choices = {}}};
  }
  return out;
}

Result<std::shared_ptr<const grammar::Automaton>> CompileFlags(const ConstraintFlags& flags) {
  NIBBLE_TRY(const Compiled given, ReadWanted(flags));
  auto automaton = grammar::Compile(given.wanted);
  if (!automaton) return Within(given.place, automaton.error());
  return automaton;
}

}  // namespace

void AddConstraintFlags(CLI::App& command, ConstraintFlags& flags) {
  const std::string group = "What the answer must be (one of them)";
  std::vector<CLI::Option*> ways = {
      command.add_option("--grammar", flags.grammar, "Matched by this grammar (GBNF)")
          ->type_name("FILE"),
      command.add_option("--json-schema", flags.json_schema, "JSON that this schema takes")
          ->type_name("FILE"),
      command.add_option("--regex", flags.regex, "Matched by this expression from end to end"),
      command.add_option("--choice", flags.choices, "One of these; given once for each")
          ->allow_extra_args(false),
      command.add_flag("--json-object", flags.json_object, "Any JSON object")};
  for (size_t i = 0; i < ways.size(); ++i) {
    ways[i]->group(group);
    for (size_t j = 0; j < i; ++j) ways[i]->excludes(ways[j]);
  }
  command
      .add_flag("--best-effort", flags.best_effort,
                "What a schema says and nibble cannot promise is left out, not refused")
      ->group(group);
}

Status CheckConstraint(const ConstraintFlags& flags) {
  if (!flags.any()) return {};
  const auto automaton = CompileFlags(flags);
  if (!automaton) return std::unexpected(automaton.error());
  return {};
}

Result<std::shared_ptr<grammar::Constraint>> MakeConstraint(const ConstraintFlags& flags,
                                                            const Engine& engine) {
  if (!flags.any()) return nullptr;
  NIBBLE_TRY(auto automaton, CompileFlags(flags));
  return std::make_shared<grammar::Constraint>(std::move(automaton), engine.vocabulary());
}

}  // namespace nibble::cli
