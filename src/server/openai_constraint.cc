#include "server/openai_constraint.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/constraints.h"
#include "server/tool_calls.h"

namespace nibble::server {
namespace {

using Kind = grammar::Wanted::Kind;

constexpr std::array<std::string_view, 8> kMembers = {
    "response_format", "guided_json",        "guided_regex", "guided_choice",
    "guided_grammar",  "structured_outputs", "grammar",      "json_schema"};

grammar::Wanted Of(Kind kind, std::string text) {
  grammar::Wanted wanted;
  wanted.kind = kind;
  wanted.text = std::move(text);
  return wanted;
}

// A schema as an object, or as its text.
Result<grammar::Wanted> SchemaOf(JsonValue value) {
  if (value.is_string()) return Of(Kind::kJsonSchema, std::string(*value.AsString()));
  if (value.is_object() || value.is_bool()) return Of(Kind::kJsonSchema, value.ToString());
  return BadInput("expected a schema, found {}", JsonKindName(value.kind()));
}

Result<grammar::Wanted> ChoicesOf(JsonValue value) {
  grammar::Wanted wanted = Of(Kind::kChoice, "");
  NIBBLE_TRY(const JsonArray list, value.AsArray());
  for (const JsonValue one : list) {
    NIBBLE_TRY(const std::string_view text, one.AsString());
    wanted.choices.emplace_back(text);
  }
  return wanted;
}

Result<grammar::Wanted> TextOf(Kind kind, JsonValue value) {
  NIBBLE_TRY(const std::string_view text, value.AsString());
  if (text.empty()) return BadInput("expected a form, found an empty text");
  return Of(kind, std::string(text));
}

Result<std::optional<grammar::Wanted>> FormatOf(JsonValue format) {
  NIBBLE_TRY(const std::string_view type, format.GetString("type"));
  if (type == "text") return std::nullopt;
  if (type == "json_object") {
    const auto schema = format.Find("schema");  // llama.cpp's
    if (!schema || schema->is_null()) return Of(Kind::kJsonObject, "");
    NIBBLE_TRY(grammar::Wanted wanted, SchemaOf(*schema));
    return wanted;
  }
  if (type != "json_schema") {
    return BadInput("expected type text, json_object or json_schema, found {}", QuoteJson(type));
  }
  NIBBLE_TRY(const JsonValue inside, format.Get("json_schema"));
  if (!inside.is_object()) {
    return BadInput("'json_schema': expected an object, found {}", JsonKindName(inside.kind()));
  }
  NIBBLE_TRY(const JsonValue schema, inside.Get("schema"));
  NIBBLE_TRY(grammar::Wanted wanted, SchemaOf(schema));
  NIBBLE_TRY(const bool strict, inside.GetBoolOr("strict", true));
  wanted.best_effort = !strict;
  return wanted;
}

Result<grammar::Wanted> OutputsOf(JsonValue outputs) {
  if (!outputs.is_object()) {
    return BadInput("expected an object, found {}", JsonKindName(outputs.kind()));
  }
  std::optional<grammar::Wanted> wanted;
  const JsonObject members = *outputs.AsObject();
  for (const auto& [key, value] : members) {
    if (value.is_null()) continue;
    if (wanted) return BadInput("expected one of json, regex, choice, grammar, json_object");
    if (key == "json") {
      NIBBLE_TRY(wanted, SchemaOf(value));
    } else if (key == "regex") {
      NIBBLE_TRY(wanted, TextOf(Kind::kRegex, value));
    } else if (key == "choice") {
      NIBBLE_TRY(wanted, ChoicesOf(value));
    } else if (key == "grammar") {
      NIBBLE_TRY(wanted, TextOf(Kind::kGbnf, value));
    } else if (key == "json_object") {
      NIBBLE_TRY(const bool any, value.AsBool());
      if (!any) return BadInput("'json_object': expected true");
      wanted = Of(Kind::kJsonObject, "");
    } else {
      return BadInput("{} is not supported", QuoteJson(key));
    }
  }
  if (!wanted) return BadInput("expected one of json, regex, choice, grammar, json_object");
  return *std::move(wanted);
}

Result<std::optional<grammar::Wanted>> WantedOf(std::string_view key, JsonValue value) {
  if (key == "response_format") return FormatOf(value);
  if (key == "structured_outputs") return OutputsOf(value);
  if (key == "guided_json" || key == "json_schema") return SchemaOf(value);
  if (key == "guided_choice") return ChoicesOf(value);
  if (key == "guided_regex") return TextOf(Kind::kRegex, value);
  return TextOf(Kind::kGbnf, value);
}

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

Result<grammar::ToolCalls::Tool> ReadTool(JsonValue tool) {
  NIBBLE_TRY(const std::string_view type, tool.GetStringOr("type", "function"));
  if (type != "function") return BadInput("tools of type {} are not supported", QuoteJson(type));
  NIBBLE_TRY(const JsonValue function, tool.Get("function"));
  NIBBLE_TRY(const std::string_view name, function.GetString("name"));
  if (!IsToolName(name)) {
    return BadInput("expected a name of 1 to 64 letters, digits, _ - and ., found {}",
                    QuoteJson(name));
  }
  grammar::ToolCalls::Tool out{.name = std::string(name), .schema = {}};
  if (const auto schema = function.Find("parameters"); schema && !schema->is_null()) {
    if (!schema->is_object()) {
      return BadInput("'parameters': expected a schema, found {}", JsonKindName(schema->kind()));
    }
    Json copy = Json::parse(schema->ToString(), nullptr, false);
    if (!copy.contains("type")) copy["type"] = "object";
    out.schema = DumpJson(copy);
  }
  NIBBLE_TRY(const bool strict, function.GetBoolOr("strict", true));
  out.best_effort = !strict;
  return out;
}

// tool_choice: none, auto, required, or a function's name.
struct ToolChoice {
  bool none = false;
  bool required = false;
  std::string name;
};

Result<ToolChoice> ReadChoice(JsonValue body) {
  ToolChoice out;
  const auto choice = body.Find("tool_choice");
  if (!choice || choice->is_null()) return out;
  if (choice->is_string()) {
    const std::string_view word = *choice->AsString();
    out.none = word == "none";
    out.required = word == "required" || word == "any";
    if (!out.none && !out.required && word != "auto") {
      return BadInput("expected none, auto, required or a function, found {}", QuoteJson(word));
    }
    return out;
  }
  NIBBLE_TRY(const JsonValue function, choice->Get("function"));
  NIBBLE_TRY(const std::string_view name, function.GetString("name"));
  out.name = name;
  out.required = true;
  return out;
}

Status ReadToolList(JsonValue tools, const ToolChoice& choice, WantedTools& out) {
  const auto list = tools.AsArray();
  if (!list) return std::unexpected(list.error());
  int number = 0;
  for (const JsonValue one : *list) {
    if (!one.is_object()) {
      return BadInput("number {}: expected an object, found {}", number, JsonKindName(one.kind()));
    }
    auto tool = ReadTool(one);
    if (!tool) return Within(fmt::format("number {}", number), tool.error());
    ++number;
    if (!choice.name.empty() && tool->name != choice.name) continue;
    out.calls->tools.push_back(*std::move(tool));
  }
  return {};
}

}  // namespace

bool IsConstraintMember(std::string_view key) {
  return std::ranges::find(kMembers, key) != kMembers.end() || key == "tools" ||
         key == "tool_choice";
}

Result<WantedTools> ReadTools(JsonValue body, const OpenAiContext& context) {
  WantedTools out;
  const auto choice = ReadChoice(body);
  if (!choice) return Within("'tool_choice'", choice.error());
  NIBBLE_TRY(const bool parallel, body.GetBoolOr("parallel_tool_calls", true));
  const auto tools = body.Find("tools");
  const bool given =
      tools && !tools->is_null() && !(tools->is_array() && tools->AsArray()->empty());
  if (!given) {
    if (choice->required) return BadInput("'tool_choice': there are no tools");
    return out;
  }
  if (choice->none) return out;
  if (context.constraints == nullptr || context.chat == nullptr) {
    return BadInput("'tools': the model has no chat template");
  }
  const auto syntax = FindToolSyntax(context.chat->source(), *context.tokenizer);
  if (!syntax) {
    return BadInput("'tools': how this model's template writes calls is not supported");
  }
  out.calls.emplace();
  out.calls->syntax = *syntax;
  out.calls->required = choice->required;
  out.calls->parallel = parallel;
  if (!choice->name.empty()) out.calls->parallel = false;
  const auto read = ReadToolList(*tools, *choice, out);
  if (!read) return Within("'tools'", read.error());
  if (out.calls->tools.empty()) {
    return BadInput("'tool_choice': there is no tool {}", QuoteJson(choice->name));
  }
  out.for_template = tools->ToString();
  return out;
}

Result<std::shared_ptr<grammar::Constraint>> ReadConstraint(
    JsonValue body, const OpenAiContext& context, const WantedTools& tools,
    const std::optional<ReasoningMarks>& reasoning) {
  std::optional<grammar::Wanted> wanted;
  std::string name;
  for (const std::string_view key : kMembers) {
    const auto value = body.Find(key);
    if (!value || value->is_null()) continue;
    auto one = WantedOf(key, *value);
    if (!one) return Within(fmt::format("'{}'", key), one.error());
    if (!*one) continue;
    if (wanted) return BadInput("'{}': there is '{}' already", key, name);
    wanted = **std::move(one);
    name = key;
  }
  if (tools.calls) {
    if (wanted)
      return BadInput("'{}': there is 'tools' already, and one form holds at a time", name);
    wanted = Of(Kind::kTools, "");
    wanted->tools = *tools.calls;
    name = "tools";
  }
  if (!wanted) return nullptr;
  if (context.constraints == nullptr) return BadInput("'{}' is not supported", name);
  // Reasoning that the prompt has begun comes first; the answer begins behind it.
  if (reasoning && reasoning->begun) wanted->behind = reasoning->close;
  if (context.constraint_is_missing != nullptr) {
    if (auto kept = context.constraints->Find(*wanted)) return kept;
    *context.constraint_is_missing = true;
    return BadInput("'{}': not compiled yet", name);
  }
  auto constraint = context.constraints->Get(*wanted);
  if (!constraint) return Within(fmt::format("'{}'", name), constraint.error());
  return *std::move(constraint);
}

}  // namespace nibble::server
