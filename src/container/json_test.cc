#include "container/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

JsonDocument MustParse(std::string text) {
  auto document = JsonDocument::Parse(std::move(text));
  if (!document) ADD_FAILURE() << document.error().message;
  return std::move(document).value();
}

std::string ErrorOf(std::string text, const JsonLimits& limits = {}) {
  const auto document = JsonDocument::Parse(std::move(text), limits);
  return document ? "no error" : document.error().message;
}

TEST(Json, ReadsValues) {
  const JsonDocument document = MustParse(
      " {\"a\": [1, -2.5, true, false, null, \"x\", [], {}], \"b\": {\"c\": {\"d\": 1e3}}, \"e\": "
      "7}\n");
  const JsonValue root = document.root();
  ASSERT_TRUE(root.is_object());
  EXPECT_EQ(root.AsObject()->size(), 3u);
  std::vector<JsonKind> kinds;
  const JsonArray elements = *root.Find("a")->AsArray();
  for (const JsonValue value : elements) kinds.push_back(value.kind());
  EXPECT_EQ(kinds,
            (std::vector{JsonKind::kInt, JsonKind::kDouble, JsonKind::kBool, JsonKind::kBool,
                         JsonKind::kNull, JsonKind::kString, JsonKind::kArray, JsonKind::kObject}));
  EXPECT_EQ(root.Find("b")->Find("c")->GetDouble("d").value(), 1000.0);
  EXPECT_EQ(root.Find("b")->Find("c")->GetInt("d").value(), 1000);
  EXPECT_EQ(root.GetInt("e").value(), 7);
  EXPECT_FALSE(root.Find("z").has_value());
  EXPECT_EQ(
      root.ToString(),
      R"({"a": [1, -2.5, true, false, null, "x", [], {}], "b": {"c": {"d": 1000.0}}, "e": 7})");
}

TEST(Json, KeepsTheOrderOfMembersAndTheLastOfEqualKeys) {
  const JsonDocument document = MustParse(R"({"z": 1, "a": {"x": [1]}, "m": 3, "a": 4})");
  std::string keys;
  const JsonObject members = *document.root().AsObject();
  for (const auto& [key, value] : members) keys += key;
  EXPECT_EQ(keys, "zama");
  EXPECT_EQ(document.root().GetInt("a").value(), 4);
}

TEST(Json, ReadsStrings) {
  const JsonDocument document =
      MustParse(R"(["\"\\\/\b\f\n\r\t", "\u00e9\u20AC\ud83d\ude00", "é€😀", "\ud83d", "\ud83dx",)"
                R"( "\udc00\u0041", "a\u0000b", ""])");
  std::vector<std::string> values;
  const JsonArray elements = *document.root().AsArray();
  for (const JsonValue value : elements) {
    values.emplace_back(*value.AsString());
  }
  EXPECT_EQ(values, (std::vector<std::string>{"\"\\/\b\f\n\r\t", "é€😀", "é€😀", "\uFFFD",
                                              "\uFFFDx", "\uFFFDA", std::string("a\0b", 3), ""}));
}

TEST(Json, ReadsNumbers) {
  const JsonDocument document = MustParse(
      "[0, -0, 9223372036854775807, -9223372036854775808, 1000000000000000019884624838656, 1e400, "
      "1e-400, 0.1, NaN, Infinity, -Infinity, 2048.0, 1.5E+2]");
  std::vector<JsonValue> values;
  const JsonArray elements = *document.root().AsArray();
  for (const JsonValue value : elements) values.push_back(value);
  ASSERT_EQ(values.size(), 13u);
  EXPECT_EQ(values[2].AsInt().value(), INT64_MAX);
  EXPECT_EQ(values[3].AsInt().value(), INT64_MIN);
  EXPECT_EQ(values[4].AsDouble().value(), 1e30);
  EXPECT_FALSE(values[4].AsInt().has_value());
  EXPECT_TRUE(std::isinf(values[5].AsDouble().value()));
  EXPECT_EQ(values[6].AsDouble().value(), 0.0);
  EXPECT_EQ(values[7].AsDouble().value(), 0.1);
  EXPECT_TRUE(std::isnan(values[8].AsDouble().value()));
  EXPECT_FALSE(values[8].AsInt().has_value());
  EXPECT_EQ(values[10].AsDouble().value(), -HUGE_VAL);
  EXPECT_EQ(values[11].AsInt().value(), 2048);
  EXPECT_EQ(values[12].AsInt().value(), 150);
}

TEST(Json, TypedAccessSaysWhatItFound) {
  const JsonDocument document = MustParse(R"({"size": "x", "none": null, "list": [1]})");
  const JsonValue root = document.root();
  EXPECT_EQ(root.GetInt("size").error().message, "'size': expected an integer, found a string");
  EXPECT_EQ(root.GetInt("depth").error().message, "'depth' is missing");
  EXPECT_EQ(root.GetInt("none").error().message, "'none': expected an integer, found null");
  EXPECT_EQ(root.GetIntOr("none", 3).value(), 3);
  EXPECT_EQ(root.GetIntOr("depth", 4).value(), 4);
  EXPECT_FALSE(root.GetIntOr("size", 4).has_value());
  EXPECT_EQ(root.GetStringOr("size", "y").value(), "x");
  EXPECT_EQ(root.Find("list")->GetInt("x").error().message, "expected an object, found an array");
}

TEST(Json, RefusesBadTextWithItsPlace) {
  EXPECT_EQ(ErrorOf("{\n \"a\": 1,\n \"b\" 2}"),
            "line 3, column 6: expected ':' after a key, found '2'");
  EXPECT_EQ(ErrorOf("[\"a\\nb\", x]"), "line 1, column 10: expected a value, found 'x'");
  EXPECT_EQ(ErrorOf(""), "line 1, column 1: expected a value, found the end of the text");
  EXPECT_EQ(ErrorOf("[\"ab"), "line 1, column 2: a string without an end");
  EXPECT_EQ(ErrorOf("[1]\n\"\xC0\x80\""), "line 2: byte 5 is not valid UTF-8");
  for (const char* text :
       {"[1",       "[1,]",     "[,1]", "{\"a\":1,}", "{a:1}",       "{\"a\"}",
        "01",       "1.",       ".5",   "-",          "+1",          "1e",
        "tru",      "nul",      "Inf",  "\"\\x\"",    "\"\\u12G4\"", "\"\\u-123\"",
        "\"a\nb\"", "[1] 2",    "[1}",  "{\"a\":1]",  "'a'",         "\"\\",
        "\"\\u00",  "\xEF\xBB", "--1",  "1 2",        "]",           "}",
        ",",        ":"}) {
    EXPECT_NE(ErrorOf(text), "no error") << text;
  }
}

TEST(Json, EveryPrefixIsRefused) {
  const std::string text = R"({"a": [1.5e3, "x\u00e9\ud83d\ude00"], "b": {"c": [true, null]}})";
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(ErrorOf(text.substr(0, length)), "no error") << length;
  }
  EXPECT_EQ(ErrorOf(text), "no error");
}

TEST(Json, KeepsItsLimits) {
  const JsonLimits limits{.max_bytes = 100, .max_values = 10, .max_depth = 3};
  EXPECT_EQ(ErrorOf("[[[1]]]", limits), "no error");
  EXPECT_NE(ErrorOf("[[[[1]]]]", limits).find("nested more than 3"), std::string::npos);
  EXPECT_NE(ErrorOf("[1,2,3,4,5,6,7,8,9,10,11]", limits).find("more than 10"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(101, ' '), limits).find("101 bytes"), std::string::npos);
  // As deep as any text can be: no recursion.
  EXPECT_NE(ErrorOf(std::string(10'000'000, '[')).find("nested more than"), std::string::npos);
}

TEST(Json, RefusesAHugeFileByItsSize) {
  const testing::TempDir folder;
  const auto path = folder.path() / "tokenizer.json";
  std::ofstream(path) << "\"";
  std::filesystem::resize_file(path, uintmax_t{1} << 30);  // sparse
  const auto document = JsonDocument::ReadFile(path.string());
  ASSERT_FALSE(document.has_value());
  EXPECT_NE(document.error().message.find("tokenizer.json: 1073741824 bytes"), std::string::npos);
  EXPECT_FALSE(JsonDocument::ReadFile((folder.path() / "none.json").string()).has_value());
}

TEST(Json, ReadsEveryTokenizerFile) {
  NIBBLE_SHARED_OR_SKIP(folder, "tokenizers");
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json" || entry.path().filename() == "vocab.bpe") continue;
    const auto document = JsonDocument::ReadFile(entry.path().string());
    ASSERT_TRUE(document.has_value()) << document.error().message;
    // What it prints reads as the same.
    const std::string printed = document->root().ToString();
    EXPECT_EQ(MustParse(printed).root().ToString(), printed) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 3);
}

}  // namespace
}  // namespace nibble
