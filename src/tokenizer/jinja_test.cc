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

// What jinja2's compiler makes of names; tools/template_differential.py finds more of these.
TEST(Jinja, NamesAreResolvedFrameByFrame) {
  const char* context = R"({"x": 1, "l": [7, 8]})";
  EXPECT_EQ(
      Render("{% for i in l %}{{ x }}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}", context),
      "18,19,1");
  // Assigned before it is read: undefined until then, whatever the context has.
  EXPECT_EQ(
      Render("{% macro m() %}[{{ x }}]{% endmacro %}{{ m() }}{% set x = 2 %}{{ m() }}", context),
      "[][2]");
  EXPECT_EQ(Render("{{ x }}{% macro m() %}[{{ x }}]{% endmacro %}{{ m() }}{% set x = 2 %}{{ m() }}",
                   context),
            "1[1][2]");
  EXPECT_EQ(Render("{% if false %}{% set x = 2 %}{% endif %}{{ x }}", context), "1");
  EXPECT_EQ(Render("{% macro m(x=x) %}[{{ x }}]{% endmacro %}{{ m() }}{{ m(3) }}", context),
            "[][3]");
  EXPECT_EQ(Render("{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", context),
            "21");
  EXPECT_EQ(Render("{% set x = 5 %}{% block b %}{{ x }}{% endblock %}{{ self.b() }}", context),
            "55");
}

TEST(Jinja, LongTemplatesAreRefusedSoon) {
  std::string source;
  for (int i = 0; i < 20000; ++i) {
    source += "{% if x %}{% set v" + std::to_string(i) + " = 1 %}{% endif %}";
  }
  EXPECT_NE(Failure(source).find("too many names"), std::string::npos);
  EXPECT_NE(Failure(std::string(2 << 20, 'x')).find("bytes"), std::string::npos);
}

// Each ends soon and in bounded memory.
TEST(Jinja, EndlessTemplatesEnd) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"},
      {"{{ range(500000) }}", "MAX_RANGE"},
      {"{{ 'x' * 500000000000 }}", "longer than"},
      {"{{ 'x'.ljust(500000000000) }}", "longer than"},
      {"{{ ('x' * 500000).replace('', 'y' * 500000) }}", "longer than"},
      {"{{ '%500000000d' % 1 }}", "too wide"},
      {"{{ '{:500000000}'.format(1) }}", "too wide"},
      {"{{ [0] * 500000000000 }}", "items"},
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
      {"{{ [1]|batch(500000000, 'x')|list }}", "items"},
      {"{{ [1]|slice(500000000)|list }}", "steps"},
  };
  for (const auto& [source, expected] : cases) {
    const std::string message = Failure(source);
    // A slow machine's time may be over before the steps are.
    const bool timed = std::string_view(expected) == "steps" &&
                       message.find("did not end within") != std::string::npos;
    EXPECT_TRUE(timed || message.find(expected) != std::string::npos) << source << "\n" << message;
  }
}

TEST(Jinja, DeepNestingIsAnError) {
  const auto repeat = [](std::string_view text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  const std::string deep[] = {
      "{{ " + repeat("(", 50000) + "1",
      "{{ " + repeat("[", 50000),
      "{{ " + repeat("not ", 50000) + "1 }}",
      "{{ " + repeat("-", 50000) + "1 }}",
      "{{ 1" + repeat(" + 1", 50000) + " }}",
      "{{ x" + repeat("|upper", 50000) + " }}",
      "{{ x" + repeat(".a", 50000) + " }}",
      "{{ " + repeat("1 if 1 else ", 50000) + "1 }}",
      repeat("{% if 1 %}", 50000),
      repeat("{% for a in b %}", 50000),
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
