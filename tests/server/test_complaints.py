"""docs/complaints.md names tests that exist, and those of them that belong nowhere else."""

import re
import threading
import unittest

from server_support import PATIENCE, SOURCE, TEMPLATE, ServerTest, post_bytes, wait_for


class Named(unittest.TestCase):
    def test_every_named_test_exists(self):
        rows = re.findall(r"^\| (\d+)\..*\|([^|]*)\|$", (SOURCE / "docs/complaints.md").read_text(),
                          re.M)
        self.assertEqual([int(number) for number, _ in rows], list(range(1, 26)))
        for number, tests in rows:
            named = re.findall(r"`([\w/.]+)` (\w+)", tests)
            self.assertTrue(named, number)
            self.assertEqual(len(named), tests.count("`") // 2, tests)
            for path, name in named:
                text = (SOURCE / path).read_text()
                pattern = rf"def {name}\(" if path.endswith(".py") else rf"TEST\w*\(\w+, {name}\)"
                self.assertRegex(text, pattern, f"{number}: {path} has no {name}")


class LongPrompts(ServerTest):
    model = "long"
    arguments = ("--max-batch-tokens", 64)

    def test_every_page_answers_during_a_long_prompt(self):
        before = self.server.status()["engine"]["sampled_tokens"]
        client = self.server.raw()
        client.sendall(post_bytes("/v1/completions", {"prompt": "x" * 30000, "max_tokens": 1,
                                                      "ignore_eos": True}, "Connection: close"))
        wait_for(lambda: self.server.status()["engine"]["running"] == 1, "a running prompt")
        for path in ("/health", "/status", "/metrics", "/v1/models", "/openapi.json"):
            self.assertEqual(self.server.get(path).status, 200)
        self.assertEqual(self.server.post("/tokenize", {"content": "a"}).status, 200)
        # All that was answered before the prompt had been computed.
        engine = self.server.status()["engine"]
        self.assertEqual((engine["running"], engine["sampled_tokens"]), (1, before))
        client.close()
        wait_for(self.server.idle, "an idle engine")

    def test_a_long_prompt_stops_nobody(self):
        seen = []

        def stream():
            connection = self.server.connect()
            connection.request("POST", "/v1/completions", body=(
                '{"prompt": "ROMEO:", "max_tokens": 400, "ignore_eos": true, "stream": true}'))
            answer = connection.getresponse()
            while line := answer.readline():
                if line.startswith(b"data: {"):
                    seen.append(line)
            connection.close()
        thread = threading.Thread(target=stream)
        thread.start()
        wait_for(lambda: len(seen) > 5, "tokens")
        client = self.server.raw()
        client.sendall(post_bytes("/v1/completions", {"prompt": "y" * 20000, "max_tokens": 1}))
        wait_for(lambda: self.server.status()["engine"]["running"] == 2 or len(seen) >= 400,
                 "the prompt")
        before = len(seen)
        wait_for(lambda: len(seen) >= min(before + 20, 400), "tokens beside the prompt")
        client.close()
        thread.join(PATIENCE)
        self.assertEqual(len(seen), 401)  # and a last one with the reason
        wait_for(self.server.idle, "an idle engine")


class Refusals(ServerTest):
    template = TEMPLATE
    arguments = ("--max-seqs", 8, "--ctx", 240, "--kv-memory", "1MB")

    def test_one_request_may_use_the_whole_context(self):
        answer = self.server.complete("a" * 40, max_tokens=200, ignore_eos=True)
        self.assertEqual(answer.json["usage"]["total_tokens"], 240)

    def test_what_cannot_be_kept_is_refused(self):
        deep = {"type": "array", "uniqueItems": True}
        for _ in range(20):
            deep = {"type": "object", "properties": {"a": deep}}
        # Short: the template writes it into the prompt, which must fit the context.
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}}
        for member, value in (("response_format", {"type": "json_schema", "json_schema": deep}),
                              ("response_format", {"type": "json_schema", "json_schema": {
                                  "name": "a", "schema": {"type": "string", "pattern": "(a"}}}),
                              ("tools", [tool]), ("tool_choice", "required"),
                              ("grammar", "root ::= " + "(" * 5000), ("guided_regex", "(((("),
                              ("functions", [{"name": "f"}])):
            answer = self.server.chat("a", max_tokens=1, **{member: value})
            self.assert_error(answer, 400, member)
        self.assertEqual(self.server.chat("a", max_tokens=1, tools=[]).status, 200)
        self.assertEqual(self.server.get("/health").status, 200)


if __name__ == "__main__":
    unittest.main()
