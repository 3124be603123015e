"""Every member of every request with every wrong kind of value: 400 with the member's name, and no
step of the engine. What is wrong is told by /openapi.json."""

import json
import math
import time
import unittest

from server_support import TEMPLATE, ServerTest, wait_for

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LEAST = {CHAT: {"messages": [{"role": "user", "content": "a"}]}, COMPLETIONS: {"prompt": "a"},
         "/tokenize": {"content": "a"}, "/detokenize": {"tokens": [1]},
         "/apply-template": {"messages": [{"role": "user", "content": "a"}]}}
# Without these a member is refused for another reason, or not looked at beside another.
NEEDS = {"stream_options": {"stream": True}, "top_logprobs": {"logprobs": True}}
INSTEAD_OF = {"/tokenize": {"prompt": "content"}}
# As JSON, so that numbers are as they are written.
VALUES = """true false 0 1 -1 2 -2 17 0.5 -0.5 1.5 1e2 101 -101 21 2147483647 2147483648 -2147483649
9223372036854775807 9223372036854775808 -9223372036854775809 1e19 1e308 -1e308 1e-320 -0.0
99999999999999999999999999 "" "a" "1" "text" "none" "auto" "true" "null" "\\u0000" "\\ud83d\\ude00"
[] [null] [1] [-1] [""] ["a"] [[]] [[1]] [[""]] [{}] [true] [0.5] [1,"a"] ["a",1] [2147483648]
[[1],[]] [[1],[70000]] [[1],[-1]] ["a",""]
[70000] {} {"a":1} {"1":"a"} {"1":null} {"1":[]} {"1":true} {"-1":1} {"70000":1} {"1.0":1} {"":1}
{"type":"text"} {"type":"json_object"} {"type":5} {"type":null} {"include_usage":5}
{"include_usage":"yes"} {"include_usage":[]} {"a":{"a":{"a":[]}}} """.split()
VALUES += [json.dumps(["a"] * 17), json.dumps("x" * 5000), json.dumps([[1]] * 17),
           json.dumps({str(i): 1 for i in range(1025)}), "[" * 60 + "]" * 60]
KINDS = {"string": str, "boolean": bool, "object": dict, "array": list}
# Right by their description alone, refused for what they say.
REFUSED_BESIDES = {"model", "prompt", "stop", "logit_bias", "messages", "tokens", "max_tokens",
                   "max_completion_tokens", "n_predict", "response_format", "json_schema", "grammar", "guided_json",
                   "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "tools",
                   "tool_choice"}


class Checker:
    """As much of JSON Schema as /openapi.json uses."""

    def __init__(self, spec):
        self.spec = spec

    def resolve(self, schema):
        while "$ref" in schema:
            schema = self.spec["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def fits(self, value, schema):
        schema = self.resolve(schema)
        if value is None:
            return not schema or bool(schema.get("nullable"))
        if any(key in schema for key in ("oneOf", "anyOf")):
            return any(self.fits(value, one) for one in schema.get("oneOf", schema.get("anyOf")))
        kind = schema.get("type")
        if kind in ("integer", "number"):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return False
            if kind == "integer" and value != int(value):
                return False
        elif kind and not isinstance(value, KINDS[kind]):
            return False
        return self.fits_bounds(value, schema) and self.fits_parts(value, schema)

    @staticmethod
    def fits_bounds(value, schema):
        if "enum" in schema and value not in schema["enum"]:
            return False
        if isinstance(value, (int, float)):
            low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
            if not low <= value <= high:
                return False
            return not (value == low and schema.get("exclusiveMinimum"))
        if isinstance(value, str):
            return len(value) >= schema.get("minLength", 0)
        return schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf)

    def fits_parts(self, value, schema):
        if isinstance(value, list):
            return all(self.fits(one, schema.get("items", {})) for one in value)
        if not isinstance(value, dict):
            return True
        if not set(schema.get("required", [])) <= set(value):
            return False
        other = schema.get("additionalProperties")
        parts = schema.get("properties", {})
        for key, one in value.items():
            part = parts.get(key, other if isinstance(other, dict) else {})
            if not self.fits(one, part):
                return False
        return True


class Fields(ServerTest):
    template = TEMPLATE
    arguments = ("--max-tokens", 4)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.checker = Checker(cls.server.get("/openapi.json").json)

    def schema_of(self, path):
        post = self.checker.spec["paths"][path]["post"]
        return self.checker.resolve(post["requestBody"]["content"]["application/json"]["schema"])

    def ask(self, connection, path, member, text):
        """A request with one member given as text."""
        without = (member, INSTEAD_OF.get(path, {}).get(member))
        rest = {k: v for k, v in (LEAST[path] | NEEDS.get(member, {})).items() if k not in without}
        body = (json.dumps(rest)[:-1] + (", " if rest else "") + json.dumps(member) + ": " + text +
                "}")
        connection.request("POST", path, body)
        start = time.perf_counter()
        answer = connection.getresponse()
        data = answer.read()
        self.slowest = max(self.slowest, time.perf_counter() - start)
        return answer.status, data

    def test_wrong_values_are_refused_by_name_and_cost_no_step(self):
        wait_for(self.server.idle, "the end of the other test's answers")
        before = self.server.status()["engine"]["steps"]
        connection = self.server.connect()
        self.slowest = 0
        asked = 0
        for path in LEAST:
            for member, schema in self.schema_of(path)["properties"].items():
                for text in VALUES:
                    if self.checker.fits(json.loads(text), schema):
                        continue
                    asked += 1
                    status, data = self.ask(connection, path, member, text)
                    with self.subTest(path=path, member=member, value=text[:60]):
                        self.assertEqual(status, 400, data)
                        error = json.loads(data)["error"]
                        param = error["param"] or ""
                        self.assertEqual(param.split("[")[0].split(".")[0], member, error)
                        self.assertIn(member, error["message"])
        connection.close()
        self.assertGreater(asked, 2000)
        self.assertEqual(self.server.status()["engine"]["steps"], before)
        print(f"{asked} malformed requests, the slowest answer after {self.slowest * 1e3:.1f} ms")

    def test_right_values_are_no_errors_of_the_server(self):
        connection = self.server.connect()
        self.slowest = 0
        for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize", "/apply-template"):
            for member, schema in self.schema_of(path)["properties"].items():
                for text in VALUES:
                    if not self.checker.fits(json.loads(text), schema):
                        continue
                    status, data = self.ask(connection, path, member, text)
                    with self.subTest(path=path, member=member, value=text[:60]):
                        allowed = (200, 400, 404) if member in REFUSED_BESIDES else (200,)
                        self.assertIn(status, allowed, data)
        connection.close()


if __name__ == "__main__":
    unittest.main()
