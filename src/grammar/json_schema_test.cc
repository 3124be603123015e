#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/fixture_test.h"
#include "grammar/string_formats.h"

namespace nibble::grammar {
namespace {

Rules MustSchema(std::string_view schema, const SchemaOptions& options = {}) {
  const auto source = SchemaSource(schema, options);
  if (!source) {
    ADD_FAILURE() << source.error().message;
    return nullptr;
  }
  return MustAutomaton(AutomatonOf(*source));
}

std::string Refusal(std::string_view schema) {
  const auto source = SchemaSource(schema);
  if (!source) return source.error().message;
  const auto automaton = AutomatonOf(*source);
  return automaton ? "none" : automaton.error().message;
}

TEST(JsonSchema, MembersComeInTheOrderOfTheSchema) {
  const Rules rules = MustSchema(R"({"type": "object", "properties": {"name": {"type": "string"},
      "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array",
      "items": {"enum": ["a", "b"]}, "maxItems": 2}}, "required": ["name", "age"],
      "additionalProperties": false})");
  EXPECT_TRUE(Matches(rules, R"({"name": "Ada", "age": 36})"));
  EXPECT_TRUE(Matches(rules, R"({"name": "\u00e9é\n", "age": 0, "tags": ["a", "b"]})"));
  EXPECT_FALSE(Matches(rules, R"({"age": 36, "name": "Ada"})"));
  EXPECT_FALSE(Matches(rules, R"({"name": "Ada"})"));
  EXPECT_FALSE(Matches(rules, R"({"name": "Ada", "age": 151})"));
  EXPECT_FALSE(Matches(rules, R"({"name": "Ada", "age": 36, "tags": ["c"]})"));
  EXPECT_FALSE(Matches(rules, R"({"name": "Ada", "age": 36, "tags": ["a", "a", "a"]})"));
  EXPECT_FALSE(Matches(rules, R"({"name": "Ada", "age": 36, "x": 1})"));
}

TEST(JsonSchema, OtherNamesAreNotThoseThatAreDeclared) {
  const Rules rules = MustSchema(R"({"type": "object", "properties": {"ab": {"type": "null"}},
      "additionalProperties": {"type": "integer"}})");
  EXPECT_TRUE(Matches(rules, R"({"ab": null, "a": 1, "abc": 2})"));
  EXPECT_FALSE(Matches(rules, R"({"ab": null, "ab": 1})"));
  EXPECT_FALSE(Matches(rules, R"({"a\u0062": 1})"));  // no spelling of json.dumps
}

TEST(JsonSchema, RecursionIsRecursionOfRules) {
  const Rules rules = MustSchema(R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object",
      "properties": {"left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
      "required": ["left"], "additionalProperties": false}}})");
  EXPECT_TRUE(Matches(rules, R"({"left": {"left": {"left": null}}})"));
  EXPECT_FALSE(Matches(rules, R"({"left": {"left": {"left": 1}}})"));
}

TEST(JsonSchema, NumbersCompareByValue) {
  const auto number = [](const std::string& rest) {
    return MustSchema("{\"type\": \"number\", " + rest + "}");
  };
  const Rules above = number(R"("exclusiveMinimum": -1.5, "maximum": 20)");
  for (const char* good : {"-1.4", "-1.49", "0", "20", "20.0", "19.999", "3"}) {
    EXPECT_TRUE(Matches(above, good)) << good;
  }
  for (const char* bad : {"-1.5", "-1.50", "-2", "20.01", "21", "100", "1e1"}) {
    EXPECT_FALSE(Matches(above, bad)) << bad;
  }
  const Rules cents = number(R"("multipleOf": 0.25)");
  for (const char* good : {"0", "1", "0.5", "-17.75", "100000.25", "0.750"}) {
    EXPECT_TRUE(Matches(cents, good)) << good;
  }
  for (const char* bad : {"0.1", "0.255", "3.33"}) EXPECT_FALSE(Matches(cents, bad)) << bad;
  const Rules not_one = MustSchema(R"({"type": "number", "not": {"const": 1}})");
  for (const char* bad : {"1", "1.0", "1.000"}) EXPECT_FALSE(Matches(not_one, bad)) << bad;
  EXPECT_TRUE(Matches(not_one, "1.001"));
}

TEST(JsonSchema, OneOfIsExactlyOne) {
  const Rules rules = MustSchema(R"({"oneOf": [{"type": "integer"}, {"type": "number",
      "minimum": 2}]})");
  EXPECT_TRUE(Matches(rules, "1"));
  EXPECT_TRUE(Matches(rules, "2.5"));
  EXPECT_FALSE(Matches(rules, "3"));
  EXPECT_FALSE(Matches(rules, "1.5"));
}

TEST(JsonSchema, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(Refusal(R"({"properties": {"a": {"type": "array", "uniqueItems": true}}})"),
            "#/properties/a: 'uniqueItems' is not supported");
  EXPECT_EQ(Refusal(R"({"type": "string", "pattern": "(a)\\1"})"),
            "#: 'pattern': the expression \"(a)\\\\1\" is not supported: at byte 5: references to "
            "groups are not supported");
  EXPECT_EQ(Refusal(R"({"type": "string", "format": "color"})"),
            "#: 'format' is not supported: the format 'color' is not supported");
  EXPECT_EQ(Refusal(R"({"$ref": "http://example.com/x"})"),
            "#: '$ref' \"http://example.com/x\" leads to another document");
  EXPECT_EQ(Refusal(R"({"$ref": "#/$defs/x"})"), "#: '$ref' \"#/$defs/x\" leads nowhere");
  EXPECT_EQ(Refusal(R"({"type": "text"})"),
            "#: 'type': expected null, boolean, number, integer, string, array, object, or a list "
            "of them");
  EXPECT_EQ(Refusal(R"({"allOf": [{"$ref": "#"}]})"),
            "#/allOf/0: a schema refers to itself with no value in between");
  EXPECT_EQ(Refusal(R"({"type": "string", "minLength": 3, "maxLength": 2})"),
            "nothing matches the grammar: rule 'answer' can never end");
  EXPECT_EQ(
      Refusal("{"),
      "the schema: line 1, column 2: expected a key in double quotes, found the end of the text");
  EXPECT_NE(Refusal(std::string(100'000, '[')), "none");
  EXPECT_NE(Refusal("{\"title\": \"" + std::string(2'000'000, 'x') + "\"}"), "none");
}

TEST(JsonSchema, BestEffortLeavesOutWhatIsNotSupported) {
  const Rules rules =
      MustSchema(R"({"type": "array", "uniqueItems": true, "items": {"type": "null"}})",
                 {.best_effort = true});
  EXPECT_TRUE(Matches(rules, "[null, null]"));
  EXPECT_FALSE(Matches(rules, "[1]"));
}

TEST(JsonSchema, FormatsCompile) {
  for (const char* format :
       {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
        "uri-reference", "json-pointer", "relative-json-pointer"}) {
    EXPECT_TRUE(StringsOfFormat(format)) << format;
  }
  const auto date = StringsOfFormat("date");
  ASSERT_TRUE(date);
  EXPECT_TRUE(date->Contains("2024-02-29"));
  EXPECT_FALSE(date->Contains("2023-02-29"));
  EXPECT_FALSE(date->Contains("1900-02-29"));
  EXPECT_TRUE(date->Contains("2000-02-29"));
}

}  // namespace
}  // namespace nibble::grammar
