#!/usr/bin/env python3
"""Renders every chat template of ../shared/data/templates with transformers, over many contexts.

Writes tests/golden/templates/:
  contexts.json  the contexts, by name
  goldens.tsv    template, context, outcome: "ok", bytes and SHA-256 of the text (its first 16
                 hexadecimal digits); "raised" and the message given to raise_exception (JSON); or
                 "error" (any other exception of Jinja or Python)
  syntax.tsv     the same for the feature cases of hf-jinja/syntax_cases.json, block options off, and
                 e2e_cases.json; cases on which jinja2 differs from the JavaScript port that they
                 were written for are noted "(differs)", and jinja2's result is stored

No template is copied. Usage: tools/make_template_goldens.py [shared/data/templates]
"""

import hashlib
import json
import pathlib
import sys

from transformers_jinja import render

ROOT = pathlib.Path(__file__).resolve().parent.parent

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather of a city.\nToday's, or \"tomorrow\".",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city"},
                    "days": {"type": "integer", "minimum": 1, "default": 3},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    "where": {
                        "type": "object",
                        "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                    },
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "maybe": {"type": ["string", "null"], "nullable": True},
                    "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                },
                "required": ["city"],
            },
            "return": {"type": "string", "description": "The weather"},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


def call(name, arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def message(role, content=None, **more):
    return {"role": role, "content": content, **more} if content is not None else {"role": role, **more}


USER = message("user", "What is 2 + 2?")
SYSTEM = message("system", "You are terse.")
TURNS = [
    message("user", "Hello!"),
    message("assistant", "Hi. How can I help?"),
    message("user", "  Tell me a joke.  "),
    message("assistant", "Why did the chicken cross the road?\n\nNo idea.\n"),
    message("user", "Another <b>one</b> & \"more\" 'please'"),
]
CALLS = [
    message("user", "What's the weather in Paris and the time?"),
    message(
        "assistant",
        "Let me look.",
        tool_calls=[
            call("get_weather", {"city": "Paris", "days": 2, "where": {"lat": 48.85, "lon": 2.35}}),
            call("now", {}, "123456789"),
        ],
    ),
    message("tool", "Sunny, 25.5 °C", name="get_weather", tool_call_id="abcdefghi"),
    message("tool", '{"time": "12:00"}', name="now", tool_call_id="123456789"),
]
BASE = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}


def context(messages, generate=True, **more):
    return {**BASE, "messages": messages, "add_generation_prompt": generate, **more}


def text_calls(arguments):
    turn = message("assistant", "", tool_calls=[call("get_weather", arguments)])
    return [USER, turn, CALLS[2]]


def contexts():
    parts = [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": "\nWell?"}]
    think = message("assistant", "4", reasoning_content="2 and 2 is 4.\nSure.", thinking="2 and 2 is 4.\nSure.")
    inline = message("assistant", "<think>\nAdd them.\n</think>\n\n4")
    return {
        "user": context([USER]),
        "system": context([SYSTEM, USER]),
        "turns": context(TURNS),
        "turns_system": context([SYSTEM, *TURNS]),
        "no_prompt": context(TURNS[:4], False),
        "no_prompt_user": context([SYSTEM, USER], False),
        "tools": context([USER], tools=TOOLS),
        "tools_system": context([SYSTEM, *TURNS], tools=TOOLS),
        "tool_call": context(CALLS[:2], False, tools=TOOLS),
        "tool_result": context(CALLS, tools=TOOLS),
        "tool_answer": context([SYSTEM, *CALLS, message("assistant", "25.5 °C."), USER], tools=TOOLS),
        "tool_no_schema": context(CALLS),
        "tool_text_arguments": context(text_calls('{"city": "Paris"}'), tools=TOOLS),
        "tool_null_content": context(
            [USER, message("assistant", tool_calls=[call("now", {})]), CALLS[3]], tools=TOOLS
        ),
        "tool_none_content": context(
            [USER, {"role": "assistant", "content": None, "tool_calls": [call("now", {})]}, CALLS[3]],
            tools=TOOLS,
        ),
        "tool_short_id": context(
            [USER, message("assistant", "", tool_calls=[call("now", {}, "x1")]),
             message("tool", "noon", name="now", tool_call_id="x1")],
            tools=TOOLS,
        ),
        "tool_odd_arguments": context(
            text_calls({"city": "Zürich \"x\"\n</s>", "days": -1.5e-7, "tags": [], "maybe": None,
                        "big": 1e22, "flag": True, "nested": {"a": [1, [2, {"b": {}}]]}}),
            tools=TOOLS,
        ),
        "builtin_tools": context([USER], tools=TOOLS, builtin_tools=["brave_search", "wolfram_alpha"]),
        "documents": context(
            [USER], documents=[{"title": "Sums", "text": "2 + 2 = 4", "doc_id": 1},
                               {"title": "Ünïcode", "text": "∑\n", "doc_id": 2}]
        ),
        "thinking": context([USER, think, message("user", "And 3 + 3?")]),
        "thinking_inline": context([USER, inline, message("user", "And 3 + 3?")]),
        "thinking_last": context([USER, think], False),
        "thinking_off": context([SYSTEM, USER], enable_thinking=False, thinking=False),
        "thinking_on": context([SYSTEM, USER], enable_thinking=True, thinking=True, thinking_budget=512),
        "thinking_tools": context(
            [USER, {**CALLS[1], "reasoning_content": "A tool it is."}, *CALLS[2:]], tools=TOOLS
        ),
        "reasoning_effort": context(
            [SYSTEM, USER], reasoning_effort="high", model_identity="I am a test.",
            system_message="Be kind.", date_string="1 April 2025"
        ),
        "unicode": context(
            [message("system", "Ты помощник 🤖"), message("user", "naïve café – “quotes” \u00a0 ﬁ ß"),
             message("assistant", "日本語\u3000テキスト\u2028line"), message("user", "👩‍👩‍👧‍👦 \u200b e\u0301\t\\n")]
        ),
        "parts": context([message("system", [{"type": "text", "text": "Sys."}]), message("user", parts)]),
        "parts_turns": context(
            [message("user", parts[:1]), message("assistant", [{"type": "text", "text": "I see."}]),
             message("user", parts[2:])]
        ),
        "developer": context([message("developer", "Follow the rules."), USER]),
        "continue": context([USER, message("assistant", "2 + 2 is")], False, continue_final_message=True),
        "two_users": context([USER, message("user", "Hello?")]),
        "assistant_first": context([message("assistant", "Hi."), USER]),
        "late_system": context([USER, message("assistant", "4"), SYSTEM, USER]),
        "bad_role": context([USER, message("wizard", "Abracadabra")]),
        "no_role": context([{"content": "no role"}]),
        "no_content": context([{"role": "user"}]),
        "empty_content": context([message("system", ""), message("user", ""), message("assistant", "")]),
        "number_content": context([message("user", 42)]),
        "empty": context([]),
        "no_tokens": {"messages": [SYSTEM, USER], "add_generation_prompt": True},
        "nothing": {},
    }


def outcome(kind, text):
    if kind == "ok":
        data = text.encode()
        return f"ok {len(data)} {hashlib.sha256(data).hexdigest()[:16]}"
    if kind == "raised":
        return "raised " + json.dumps(text, ensure_ascii=False)
    return "error"


def render_templates(shared, out):
    lines = []
    cases = contexts()
    templates = sorted(shared.glob("llama.cpp/*.jinja")) + sorted(shared.glob("mistral-common/*.jinja"))
    sources = [(f"{path.parent.name}/{path.name}", path.read_text()) for path in templates]
    e2e = json.loads((shared / "hf-jinja/e2e_cases.json").read_text())
    for group, members in e2e.items():
        sources += [(f"e2e/{group}/{name}", case["chat_template"]) for name, case in members.items()]
    for name, source in sources:
        lines.append(f"= {name}")
        for case, variables in cases.items():
            lines.append(f"{case} {outcome(*render(source, variables))}")
    (out / "goldens.tsv").write_text("\n".join(lines) + "\n")
    (out / "contexts.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")


def syntax_cases(shared, out):
    lines = []
    for name, case in json.loads((shared / "hf-jinja/syntax_cases.json").read_text()).items():
        if "$function" in json.dumps(case["context"]):
            lines.append(f"{name}\tskipped (its context holds a JavaScript function)")
            continue
        kind, text = render(case["template"], case["context"], block_options=False)
        note = "" if (kind, text) == ("ok", case["expected"]) else " (differs)"
        lines.append(f"{name}\t{outcome(kind, text)}{note}")
    for group, members in json.loads((shared / "hf-jinja/e2e_cases.json").read_text()).items():
        for name, case in members.items():
            kind, text = render(case["chat_template"], case["data"])
            note = "" if (kind, text) == ("ok", case["target"]) else " (differs)"
            lines.append(f"{group}/{name}\t{outcome(kind, text)}{note}")
    (out / "syntax.tsv").write_text("\n".join(lines) + "\n")


def main():
    shared = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "../shared/data/templates"
    out = ROOT / "tests/golden/templates"
    out.mkdir(parents=True, exist_ok=True)
    render_templates(shared, out)
    syntax_cases(shared, out)


if __name__ == "__main__":
    main()
