#include "tokenizer/jinja.h"

#include <gtest/gtest.h>

#include "tokenizer/chat_template.h"

namespace nibble {
namespace {

Result<std::string> TryRender(std::string_view source, std::string_view context = "{}",
                              const JinjaRenderOptions& options = {}) {
  NIBBLE_TRY(const JinjaTemplate parsed, JinjaTemplate::Parse(source));
  NIBBLE_TRY(const JinjaValue value, JinjaValue::FromJson(context));
  return parsed.Render(value, options);
}

std::string Render(std::string_view source, std::string_view context = "{}") {
  const auto text = TryRender(source, context);
  return text ? *text : "error: " + text.error().message;
}

std::string Failure(std::string_view source, std::string_view context = "{}") {
  const auto text = TryRender(source, context);
  return text ? "no error, but: " + *text : text.error().message;
}

TEST(Jinja, ErrorsNameTheirLine) {
  EXPECT_EQ(Failure("a\nb\n{% if %}"),
            "line 3: Expected an expression, got 'end of statement block'");
  EXPECT_EQ(Failure("a\n{% endfor %}"), "line 2: Encountered unknown tag 'endfor'.");
  EXPECT_EQ(Failure("\n\n{{ raise_exception('no ' ~ x) }}", R"({"x": 7})"), "line 3: no 7");
  EXPECT_EQ(Failure("{{ a.b.c }}", R"({"a": {}})"), "line 1: 'dict object' has no attribute 'b'");
  EXPECT_EQ(Failure("{% set y = 1 %}\n{{ nope.x }}"), "line 2: 'nope' is undefined");
  EXPECT_EQ(Failure("{{ 'a' + 1 }}"), "line 1: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(Failure("{{ x | shout }}"), "line 1: No filter named 'shout'.");
  EXPECT_EQ(Failure("{# open"), "line 1: Missing end of comment tag");
}

TEST(Jinja, TemplatesThatLoadOthersAreRefusedByName) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "extends 'x'", "from 'x' import y"}) {
    EXPECT_NE(Failure("{% " + std::string(tag) + " %}").find("is refused"), std::string::npos);
  }
}

TEST(Jinja, TheSandboxRefusesMutation) {
  EXPECT_EQ(Failure("{{ [1].append(2) }}"),
            "line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(Render("{{ ''.__class__ }}"), "");
  EXPECT_NE(Failure("{{ ''.__class__.mro() }}").find("unsafe"), std::string::npos);
  EXPECT_NE(Failure("{% set ns = namespace(_x=1) %}").find("underscore"), std::string::npos);
}

TEST(Jinja, ValuesPrintAsInPython) {
  EXPECT_EQ(Render("{{ x }}", R"({"x": [null, true, 1.0, 1e22, -2, "it's", {"a": "\"\n"}]})"),
            "[None, True, 1.0, 1e+22, -2, \"it's\", {'a': '\"\\n'}]");
  EXPECT_EQ(Render("{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 1 / 4 }}"), "-4 2 64 0.25");
}

TEST(Jinja, IntegersBeyond64BitsAreErrors) {
  for (const char* source : {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 64 }}",
                             "{{ 99999999999999999999 }}", "{{ 4611686018427387904 * 2 }}"}) {
    EXPECT_NE(Failure(source).find("64 bits"), std::string::npos) << source;
  }
}

// Each ends soon and in bounded memory.
TEST(Jinja, EndlessTemplatesEnd) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"},
      {"{{ range(1000000) }}", "MAX_RANGE"},
      {"{{ 'x' * 1000000000000 }}", "longer than"},
      {"{{ 'x'.ljust(1000000000000) }}", "longer than"},
      {"{{ ('x' * 1000000).replace('', 'y' * 1000000) }}", "longer than"},
      {"{{ '%1000000000d' % 1 }}", "too wide"},
      {"{{ '{:1000000000}'.format(1) }}", "too wide"},
      {"{{ [0] * 1000000000000 }}", "items"},
      {"{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}",
       "longer than"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l == ns.l }}",
       "parts"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}"
       "{% endfor %}",
       "nest deeper"},
      {"{% set ns = namespace(g=[]) %}{% for i in range(9999) %}{% set ns.g = ns.g|map('upper') %}"
       "{% endfor %}",
       "nest deeper"},
      {"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", "recursion"},
      {"{% for x in [[1]] recursive %}{{ loop(x and [[1]]) }}{% endfor %}", "recursion"},
      {"{{ [1]|batch(1000000000, 'x')|list }}", "items"},
      {"{{ [1]|slice(1000000000)|list }}", "steps"},
  };
  for (const auto& [source, expected] : cases) {
    const std::string message = Failure(source);
    EXPECT_NE(message.find(expected), std::string::npos) << source << "\n" << message;
  }
}

TEST(Jinja, DeepNestingIsAnError) {
  const auto repeat = [](std::string_view text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  const std::string deep[] = {
      "{{ " + repeat("(", 100000) + "1",
      "{{ " + repeat("[", 100000),
      "{{ " + repeat("not ", 100000) + "1 }}",
      "{{ " + repeat("-", 100000) + "1 }}",
      "{{ 1" + repeat(" + 1", 100000) + " }}",
      "{{ x" + repeat("|upper", 100000) + " }}",
      "{{ x" + repeat(".a", 100000) + " }}",
      "{{ " + repeat("1 if 1 else ", 100000) + "1 }}",
      repeat("{% if 1 %}", 100000),
      repeat("{% for a in b %}", 100000),
  };
  for (const std::string& source : deep) {
    EXPECT_NE(Failure(source).find("deep"), std::string::npos) << source.substr(0, 40);
  }
  EXPECT_EQ(Render("{{ " + repeat("(", 60) + "1" + repeat(")", 60) + " }}"), "1");
  EXPECT_EQ(Render("{{ 1" + repeat(" ~ 1", 1000) + " }}").size(), 1001u);
}

TEST(Jinja, NamespacesThatHoldOneAnotherAreFreed) {
  // Leak detection of the sanitizer build is the check.
  EXPECT_EQ(
      Render("{% set ns = namespace() %}{% set ns.self = ns %}"
             "{% macro m(x) %}{{ m is callable }}{% endmacro %}{% set ns.m = m %}{{ ns.m(1) }}"),
      "True");
  EXPECT_EQ(Render("{% set ns = namespace(p=none) %}{% for i in range(20000) %}"
                   "{% set n = namespace(p=ns.p) %}{% set ns.p = n %}{% endfor %}ok"),
            "ok");
}

TEST(Jinja, StrftimeUsesTheGivenClock) {
  JinjaRenderOptions options;
  options.now = JinjaTime{2024, 2, 29, 23, 5, 9, 42};
  EXPECT_EQ(*TryRender("{{ strftime_now('%d %b %Y %H:%M:%S.%f %a %j%z') }}", "{}", options),
            "29 Feb 2024 23:05:09.000042 Thu 060");
}

TEST(ChatTemplate, GivesWhatTransformersGives) {
  const auto made = ChatTemplate::Create(
      "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}"
      "{{ m.reasoning_content }}{{ m.thinking }}{{ 'name' in m }}{% endfor %}"
      "{{ tools }}{{ documents is none }}{{ x }}{% if add_generation_prompt %}>{% endif %}",
      "<s>", "</s>");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(*made->Apply({{"user", "hi"}}), "<s>user:hiFalseNoneTrue>");
  ChatOptions options;
  options.add_generation_prompt = false;
  options.tools_json = R"([{"a": 1}])";
  options.extra_json = R"({"x": "!", "bos_token": "<b>"})";
  EXPECT_EQ(
      *made->Apply(R"([{"role": "r", "content": "c", "reasoning": "why", "name": null}])", options),
      "<b>r:cwhywhyFalse[{'a': 1}]True!");
  EXPECT_EQ(
      *made->Apply(R"({"messages": [], "tools": null, "x": 2, "add_generation_prompt": false})"),
      "<s>NoneTrue2");
}

TEST(ChatTemplate, BadInputNamesItsPlace) {
  EXPECT_EQ(ChatTemplate::Create("\n{% x %}", "", "").error().message,
            "chat template: line 2: Encountered unknown tag 'x'.");
  const auto made = ChatTemplate::Create("{{ raise_exception('roles!') }}", "", "");
  EXPECT_EQ(made->Apply("[]").error().message, "chat template: line 1: roles!");
  EXPECT_EQ(made->Apply("[1]").error().message, "messages[0]: expected an object");
  EXPECT_EQ(made->Apply("{}").error().message, "messages: the object has no 'messages'");
  EXPECT_TRUE(made->Apply("[{").error().message.starts_with("messages: "));
  ChatOptions options;
  options.tools_json = "{}";
  EXPECT_EQ(made->Apply("[]", options).error().message, "tools: expected an array of objects");
}

}  // namespace
}  // namespace nibble
