"""Answers that must be of a form: response_format, grammars, vLLM's guided_* names, tools. JSON needs
a model that can write braces: SmolLM2, where it has been pulled."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from server_support import (PATIENCE, SOURCE, TEMPLATE, Server, ServerTest, events,
                            python_with_packages)

MODELS = pathlib.Path(os.environ.get("NIBBLE_MODELS")
                      or pathlib.Path.home() / ".cache/nibble/models")
SMOLLM2 = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"

PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
          "properties": {"name": {"type": "string", "maxLength": 20},
                         "age": {"type": "integer", "minimum": 0, "maximum": 150},
                         "tags": {"type": "array", "items": {"enum": ["poet", "king", "fool"]},
                                  "minItems": 1, "maxItems": 3}}}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place", "parameters": {
        "type": "object", "additionalProperties": False, "required": ["city", "unit"],
        "properties": {"city": {"type": "string", "maxLength": 15},
                       "unit": {"enum": ["celsius", "fahrenheit"]}}}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time", "parameters": {"type": "object", "additionalProperties": False,
                                       "required": ["hour"],
                                       "properties": {"hour": {"type": "integer", "minimum": 0,
                                                               "maximum": 23}}}}}


def is_person(value):
    return (list(value) == ["name", "age", "tags"] and len(value["name"]) <= 20
            and isinstance(value["age"], int) and 0 <= value["age"] <= 150
            and 1 <= len(value["tags"]) <= 3
            and all(t in ("poet", "king", "fool") for t in value["tags"]))


class Letters(ServerTest):
    template = TEMPLATE

    def test_choices_expressions_and_grammars(self):
        for seed in range(5):
            common = {"max_tokens": 60, "temperature": 2, "seed": seed}
            answer = self.server.complete("ROMEO:", guided_choice=["Juliet", "Romeo"], **common)
            self.assertIn(answer.json["choices"][0]["text"], ("Juliet", "Romeo"))
            self.assertEqual(answer.json["choices"][0]["finish_reason"], "stop")
            answer = self.server.complete("ROMEO:", guided_regex="[a-z]{3,9}(, [a-z]+){2}!", **common)
            self.assertTrue(re.fullmatch("[a-z]{3,9}(, [a-z]+){2}!",
                                         answer.json["choices"][0]["text"])
                            or answer.json["choices"][0]["finish_reason"] == "length")
            for key in ("grammar", "guided_grammar"):
                answer = self.server.complete(
                    "ROMEO:", **{key: 'root ::= ("ab" | "cd" root)'}, **common)
                self.assertRegex(answer.json["choices"][0]["text"], "^(cd)*(ab)?$")
            answer = self.server.chat("a", structured_outputs={"choice": ["x", "y"]}, n=3, **common)
            for choice in answer.json["choices"]:
                self.assertIn(choice["message"]["content"], ("x", "y"))

    def test_the_same_bits_in_a_batch_and_streamed(self):
        fields = {"guided_regex": "[A-Z][a-z]{2,12}\\.", "temperature": 1, "max_tokens": 30}
        alone = self.server.complete("JULIET:", seed=3, **fields).json["choices"][0]["text"]
        several = self.server.complete("JULIET:", seed=3, n=4, **fields).json["choices"]
        self.assertEqual(several[0]["text"], alone)
        stream = self.server.complete("JULIET:", seed=3, stream=True, **fields)
        text = "".join(e["choices"][0]["text"] for e in events(stream) if e.get("choices"))
        self.assertEqual(text, alone)

    def test_what_cannot_be_kept_is_a_400_with_its_name(self):
        for key, value, word in (
                ("guided_regex", "(((", "group"), ("guided_regex", "(a)\\1", "references"),
                ("guided_choice", [], "no choices"), ("guided_choice", [1], "string"),
                ("grammar", "root ::= x", "'x' (line 1)"), ("grammar", "root ::= root 'a'", "line 1"),
                ("guided_grammar", "root ::= root \"a\" | \"b\"", "left recursive"),
                ("grammar", "root ::= " + "(" * 10000, "deeper"),
                ("guided_json", {"type": "array", "uniqueItems": True}, "'uniqueItems'"),
                ("json_schema", {"type": "text"}, "#"),
                ("response_format", {"type": "yaml"}, "yaml"), ("response_format", 3, "object"),
                ("response_format", {"type": "json_schema"}, "json_schema"),
                ("structured_outputs", {"xml": "a"}, "xml")):
            answer = self.server.complete("a", max_tokens=1, **{key: value})
            self.assert_error(answer, 400, key, word)
        # Nothing asked for is no form that is kept.
        for key, value in (("grammar", ""), ("guided_grammar", ""), ("structured_outputs", {}),
                           ("structured_outputs", {"json_object": False}),
                           ("structured_outputs", {"grammar": ""}), ("guided_json", ""),
                           ("guided_regex", ""), ("structured_outputs", {"regex": ""}),
                           ("json_schema", "")):
            self.assert_error(self.server.complete("a", max_tokens=1, **{key: value}), 400, key)
        answer = self.server.complete("a", max_tokens=1, guided_regex="a", grammar='root ::= "a"')
        self.assert_error(answer, 400, "grammar", "guided_regex")
        answer = self.server.complete("a", max_tokens=1, guided_regex="a", ignore_eos=True)
        self.assert_error(answer, 400, "ignore_eos")
        for tools, word in (([{"type": "function"}], "function"),
                            ([{"type": "function", "function": {"name": "a b"}}], "name"),
                            ([{"type": "function", "function": {
                                "name": "f", "parameters": {"type": "object", "properties": {
                                    "a": {"type": "array", "uniqueItems": True}}}}}],
                             "'uniqueItems'")):
            self.assert_error(self.server.chat("a", max_tokens=1, tools=tools), 400, "tools", word)
        for choice in ("auto", "required"):
            answer = self.server.chat("a", max_tokens=1, tools=[CLOCK], tool_choice=choice,
                                      response_format={"type": "json_object"})
            self.assert_error(answer, 400, "response_format", "tools")
            answer = self.server.chat("a", max_tokens=1, tools=[CLOCK], tool_choice=choice,
                                      guided_regex="a")
            self.assert_error(answer, 400, "guided_regex", "tools")
        for choice in ("sometimes", {"type": "function", "function": {"name": "other"}}):
            answer = self.server.chat("a", max_tokens=1, tools=[CLOCK], tool_choice=choice)
            self.assert_error(answer, 400, "tool_choice")

    def test_a_dead_end_is_told(self):
        # This vocabulary has no such letter.
        answer = self.server.complete("a", max_tokens=5, guided_regex="a\u4e00")
        self.assert_error(answer, 400, None, "no token of the vocabulary")
        self.assertEqual(self.server.complete("a", max_tokens=1).status, 200)


@unittest.skipUnless(SMOLLM2.exists(), "SmolLM2 has not been pulled")
class Json(ServerTest):
    model = SMOLLM2
    arguments = ("--ctx", 2048, "--max-seqs", 4)

    def parse(self, answer, index=0):
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json["choices"][index]

    def test_schemas_at_any_temperature(self):
        done = 0
        for seed in range(6):
            choice = self.parse(self.server.chat(
                "Describe a person as JSON.", seed=seed, temperature=(0, 1, 2)[seed % 3],
                max_tokens=150, response_format={"type": "json_schema", "json_schema": {
                    "name": "person", "strict": True, "schema": PERSON}}))
            if choice["finish_reason"] == "stop":
                done += 1
                self.assertTrue(is_person(json.loads(choice["message"]["content"])), choice)
        self.assertGreater(done, 2)

    def test_json_objects(self):
        for seed in range(3):
            choice = self.parse(self.server.chat("Two facts as JSON.", seed=seed, max_tokens=300,
                                                 response_format={"type": "json_object"}))
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)

    def test_tools(self):
        for seed in range(3):
            choice = self.parse(self.server.chat(
                "What is the weather in Oslo?", seed=seed, temperature=1.5, max_tokens=120,
                tools=[WEATHER, CLOCK], tool_choice="required", parallel_tool_calls=False))
            if choice["finish_reason"] == "length":
                continue
            self.assertEqual(choice["finish_reason"], "tool_calls")
            (call,) = choice["message"]["tool_calls"]
            self.assertIsNone(choice["message"]["content"])
            self.assertIn(call["function"]["name"], ("get_weather", "get_time"))
            arguments = json.loads(call["function"]["arguments"])
            wanted = ["hour"] if call["function"]["name"] == "get_time" else ["city", "unit"]
            self.assertEqual(list(arguments), wanted)

    def test_a_named_tool_streamed_and_given_back(self):
        fields = {"tools": [WEATHER, CLOCK], "seed": 1, "max_tokens": 60, "temperature": 1,
                  "tool_choice": {"type": "function", "function": {"name": "get_time"}}}
        whole = self.parse(self.server.chat("What time is it?", **fields))
        self.assertEqual(whole["finish_reason"], "tool_calls")
        call = whole["message"]["tool_calls"][0]
        name, arguments, reason, ids = "", "", None, []
        for event in events(self.server.chat("What time is it?", stream=True, **fields)):
            for choice in event.get("choices", []):
                self.assertFalse(choice["delta"].get("content"))
                for delta in choice["delta"].get("tool_calls", []):
                    name += delta["function"].get("name", "")
                    arguments += delta["function"]["arguments"]
                    ids += [delta["id"]] if "id" in delta else []
                reason = choice["finish_reason"] or reason
        self.assertEqual((name, arguments, reason, len(ids)),
                         ("get_time", call["function"]["arguments"], "tool_calls", 1))
        messages = [{"role": "user", "content": "What time is it?"},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": call["id"], "content": "It is noon."}]
        answer = self.server.post("/v1/chat/completions", {
            "messages": messages, "tools": [CLOCK], "tool_choice": "none", "max_tokens": 5})
        self.assertEqual(answer.status, 200, answer.body)

    def test_auto_lets_text_be(self):
        choice = self.parse(self.server.chat("Say hello.", tools=[CLOCK], max_tokens=30,
                                             temperature=0))
        self.assertTrue(choice["message"]["content"] or choice["message"].get("tool_calls"))

    def test_the_openai_client_with_pydantic(self):
        python = python_with_packages("openai", "pydantic")
        done = subprocess.run([python, "-c", CLIENT, f"http://127.0.0.1:{self.server.port}/v1"],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.stdout.strip(), "all well", done.stderr)


# Strict schemas made and read by pydantic, and tool calls put together from a stream.
CLIENT = r'''
import enum, json, sys
import openai, pydantic

class Mood(str, enum.Enum):
    good = "good"
    bad = "bad"

class Child(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    age: int = pydantic.Field(ge=0, le=20)
    mood: Mood

class Family(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=12)
    children: list[Child] = pydantic.Field(min_length=1, max_length=2)

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=200)
model = client.models.list().data[0].id
for seed in range(3):
    parsed = client.chat.completions.parse(
        model=model, messages=[{"role": "user", "content": "Make up a family."}], max_tokens=250,
        temperature=1, seed=seed, response_format=Family)
    family = parsed.choices[0].message.parsed
    assert isinstance(family, Family) and 1 <= len(family.children) <= 2, parsed

class Visit(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    town: str = pydantic.Field(max_length=12)
    days: int = pydantic.Field(ge=1, le=9)

name, arguments, reason = "", "", None
with client.chat.completions.stream(
        model=model, messages=[{"role": "user", "content": "Visit Oslo."}], max_tokens=120, seed=1,
        tools=[openai.pydantic_function_tool(Visit, name="visit")], tool_choice="required",
        parallel_tool_calls=False) as stream:
    for event in stream:
        if event.type == "chunk":
            for choice in event.chunk.choices:
                for call in choice.delta.tool_calls or []:
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
    final = stream.get_final_completion().choices[0]
assert final.finish_reason == "tool_calls" and name == "visit", final
assert isinstance(final.message.tool_calls[0].function.parsed_arguments, Visit), final
assert Visit.model_validate_json(arguments) == final.message.tool_calls[0].function.parsed_arguments
print("all well")
'''


def need_template(name):
    shared = pathlib.Path(os.environ.get("NIBBLE_SHARED") or SOURCE.parent / "shared")
    path = shared / "data/templates/llama.cpp" / name
    if not path.exists():
        raise unittest.SkipTest(f"no shared data: {path}")
    return path


@unittest.skipUnless(SMOLLM2.exists(), "SmolLM2 has not been pulled")
class Formats(unittest.TestCase):
    """Templates that write calls in their own ways, under a model that knows none of them."""

    def check(self, name, marks, without=None):
        with tempfile.TemporaryDirectory() as folder:
            template = pathlib.Path(folder) / "t.jinja"
            text = need_template(name).read_text()
            template.write_text(text.replace(without, "") if without else text)
            server = Server(SMOLLM2, "--ctx", 4096, "--max-seqs", 2, "--chat-template", template)
            try:
                self.ask(server, marks)
            finally:
                self.assertEqual(server.stop(), 0)

    def ask(self, server, marks):
        calls = 0
        for seed in range(2):
            fields = {"tools": [WEATHER, CLOCK], "tool_choice": "required", "seed": seed,
                      "temperature": 0.5, "max_tokens": 200, "parallel_tool_calls": False}
            whole = server.chat("What is the weather in Oslo?", **fields)
            self.assertEqual(whole.status, 200, whole.body)
            choice = whole.json["choices"][0]
            self.assertFalse(choice["message"]["content"], choice)
            told = [(call["function"]["name"], call["function"]["arguments"])
                    for call in choice["message"].get("tool_calls", [])]
            for function, arguments in told if choice["finish_reason"] == "tool_calls" else []:
                wanted = ["hour"] if function == "get_time" else ["city", "unit"]
                self.assertEqual(list(json.loads(arguments)), wanted)
                calls += 1
            if choice["finish_reason"] == "tool_calls":
                self.give_back(server, choice["message"])
            streamed = []
            for event in events(server.chat("What is the weather in Oslo?", stream=True, **fields)):
                for one in event.get("choices", []):
                    for delta in one["delta"].get("tool_calls", []):
                        if "name" in delta["function"]:
                            streamed.append([delta["function"]["name"], ""])
                        streamed[-1][1] += delta["function"]["arguments"]
            self.assertEqual([tuple(one) for one in streamed], told)
        self.assertGreater(calls, 0)
        text = server.chat("Say hello.", tools=[CLOCK], max_tokens=20, temperature=0)
        self.assertEqual(text.status, 200, text.body)
        message = text.json["choices"][0]["message"]
        self.assertTrue(message["content"] or message.get("tool_calls"), message)
        for mark in marks:
            self.assertNotIn(mark, message["content"] or "")

    def give_back(self, server, message):
        """The results of the calls, as every client sends them. Some templates look at the ids."""
        messages = [{"role": "user", "content": "What is the weather in Oslo?"}, message]
        for call in message["tool_calls"]:
            self.assertRegex(call["id"], "^[0-9A-Za-z]{9}$")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "Rain."})
        answer = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 5,
                                                      "tools": [WEATHER, CLOCK]})
        self.assertEqual(answer.status, 200, answer.body)

    def test_mistral_with_a_list(self):
        self.check("mistralai-Mistral-Nemo-Instruct-2407.jinja", ("[TOOL_CALLS]",))

    def test_mistral_with_ids(self):
        self.check("Mistral-Small-3.2-24B-Instruct-2506.jinja", ("[TOOL_CALLS]", "[CALL_ID]"))

    def test_functionary_3_2(self):
        self.check("meetkai-functionary-medium-v3.2.jinja", (">>>", "all\n"))

    def test_deepseek_v3_1(self):
        self.check("deepseek-ai-DeepSeek-V3.1.jinja", ("begin",))

    def test_deepseek_r1(self):
        # A model that knows nothing of reasoning would not end it.
        self.check("deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", ("begin",), "<think>\\n")


if __name__ == "__main__":
    unittest.main()
