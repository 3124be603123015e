// The engine against transformers' own: goldens of tools/make_template_goldens.py.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/sha256.h"
#include "tests/support/test_data.h"
#include "tokenizer/jinja.h"

namespace nibble {
namespace {

constexpr JinjaTime kNow{2026, 3, 7, 9, 5, 3, 123456};  // as in tools/transformers_jinja.py

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

JinjaValue ReadJson(const std::filesystem::path& path) {
  auto value = JinjaValue::FromJson(ReadAll(path));
  EXPECT_TRUE(value) << path << ": " << value.error().message;
  return value ? *value : JinjaValue();
}

struct Outcome {
  std::string summary;  // as in the goldens
  std::string text;     // what was rendered, or the error
};

Outcome Render(const Result<JinjaTemplate>& parsed, const JinjaValue& context,
               const std::string& expected) {
  const auto text = parsed ? parsed->Render(context, {.limits = {}, .now = kNow})
                           : Result<std::string>(std::unexpected(parsed.error()));
  if (text) {
    return {"ok " + std::to_string(text->size()) + " " + Sha256Hex(*text).substr(0, 16), *text};
  }
  const std::string& message = text.error().message;
  EXPECT_TRUE(message.starts_with("line ")) << message;
  if (!expected.starts_with("raised ")) return {"error", message};
  const auto raised = JinjaValue::FromJson(expected.substr(7));
  const bool same = raised && message.substr(message.find(": ") + 2) == raised->ToString();
  return {same ? expected : "error", message};
}

// Templates by the names that the goldens give them.
std::map<std::string, std::string> Sources(const std::filesystem::path& shared) {
  std::map<std::string, std::string> out;
  for (const char* folder : {"llama.cpp", "mistral-common"}) {
    for (const auto& entry : std::filesystem::directory_iterator(shared / folder)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".jinja")) out[std::string(folder) + "/" + name] = ReadAll(entry.path());
    }
  }
  for (const auto& [group, cases] : ReadJson(shared / "hf-jinja/e2e_cases.json").Members()) {
    for (const auto& [name, data] : cases.Members()) {
      out["e2e/" + group + "/" + name] = data.Get("chat_template")->ToString();
    }
  }
  return out;
}

TEST(JinjaGolden, EveryTemplateInEveryContext) {
  NIBBLE_SHARED_OR_SKIP(shared, "templates");
  const auto folder = testing::SourcePath("tests/golden/templates");
  const JinjaValue contexts = ReadJson(folder / "contexts.json");
  const auto sources = Sources(shared);
  std::ifstream goldens(folder / "goldens.tsv");
  std::string line, name;
  std::optional<Result<JinjaTemplate>> parsed;
  size_t templates = 0, renders = 0;
  while (std::getline(goldens, line)) {
    if (line.starts_with("= ")) {
      name = line.substr(2);
      ASSERT_TRUE(sources.contains(name)) << name;
      parsed.emplace(JinjaTemplate::Parse(sources.at(name)));
      ++templates;
      continue;
    }
    const size_t space = line.find(' ');
    const std::string context = line.substr(0, space), expected = line.substr(space + 1);
    const Outcome outcome = Render(*parsed, *contexts.Get(context), expected);
    EXPECT_EQ(outcome.summary, expected) << name << " in " << context << ":\n" << outcome.text;
    ++renders;
  }
  EXPECT_EQ(templates, sources.size());
  EXPECT_EQ(renders, templates * contexts.Size());
}

TEST(JinjaGolden, FeatureCasesOfTheJavaScriptPort) {
  NIBBLE_SHARED_OR_SKIP(shared, "templates/hf-jinja");
  const JinjaValue syntax = ReadJson(shared / "syntax_cases.json");
  const JinjaValue e2e = ReadJson(shared / "e2e_cases.json");
  std::ifstream goldens(testing::SourcePath("tests/golden/templates/syntax.tsv"));
  std::string line;
  size_t checked = 0;
  while (std::getline(goldens, line)) {
    const size_t tab = line.find('\t');
    const std::string name = line.substr(0, tab);
    std::string expected = line.substr(tab + 1);
    if (expected.starts_with("skipped")) continue;
    if (expected.ends_with(" (differs)")) expected.resize(expected.size() - 10);
    const size_t slash = name.find('/');
    const bool is_e2e = slash != name.npos;
    const auto data =
        is_e2e ? e2e.Get(name.substr(0, slash))->Get(name.substr(slash + 1)) : syntax.Get(name);
    ASSERT_TRUE(data) << name;
    const std::string source = data->Get(is_e2e ? "chat_template" : "template")->ToString();
    const JinjaValue context = *data->Get(is_e2e ? "data" : "context");
    const auto parsed = JinjaTemplate::Parse(source, {is_e2e, is_e2e});
    const Outcome outcome = Render(parsed, context, expected);
    EXPECT_EQ(outcome.summary, expected) << name << ": " << source << "\n" << outcome.text;
    ++checked;
  }
  EXPECT_GT(checked, 180u);
}

}  // namespace
}  // namespace nibble
