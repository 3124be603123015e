"""Chats: reasoning that is split off, turns that are dropped, and what is refused."""

import json
import shutil
import tempfile
import pathlib
import unittest

from server_support import Server, ServerTest, events, write_long_model

TURNS = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"


def said(chunks, member):
    return "".join(c["choices"][0]["delta"].get(member) or "" for c in chunks)


class Reasoning(unittest.TestCase):
    """A model whose letters $ and & say <think> and </think>. Biases far apart and a penalty for
    what was said already make it say each wanted token once, in order."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        model = cls.folder / "m"
        model.mkdir()
        write_long_model(model)
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        vocabulary = tokenizer["model"]["vocab"]
        cls.ids = {"<think>": vocabulary.pop("$"), "</think>": vocabulary.pop("&")}
        vocabulary |= cls.ids
        cls.ids |= {c: vocabulary[c] for c in "bcdg "}
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        template = cls.folder / "t.jinja"
        template.write_text("{# says <think> and </think> #}" + TURNS +
                            "{% if begin %}assistant:<think>\n{% endif %}")
        cls.server = Server(model, "--chat-template", template)
        cls.addClassCleanup(cls.server.stop)

    def say(self, tokens, **fields):
        bias = {str(self.ids[t]): 99 - 8 * i for i, t in enumerate(tokens)}
        return self.server.chat("x", temperature=0, presence_penalty=100, max_tokens=len(tokens),
                                logit_bias=bias, **fields)

    # No letters of the prompt, which count as said.
    def test_it_is_a_member_of_its_own(self):
        for tokens, reasoning, content in (
                (["<think>", "b", "c", "</think>", "d", "g"], "bc", "dg"), (["b", "c"], None, "bc"),
                (["<think>", "b"], "b", ""),
                (["<think>", " ", "b", "</think>", "c"], "b", "c"),
                (["b", "</think>", "c"], None, "b</think>c")):
            message = self.say(tokens).json["choices"][0]["message"]
            self.assertEqual(message.get("reasoning_content"), reasoning)
            self.assertEqual(message["content"], content)
            chunks = events(self.say(tokens, stream=True))
            self.assertEqual(said(chunks, "reasoning_content"), reasoning or "")
            self.assertEqual(said(chunks, "content"), content)
            logprobs = self.say(tokens, stream=True, logprobs=True)
            told = [entry["token"] for c in events(logprobs)
                    for entry in (c["choices"][0]["logprobs"] or {}).get("content", [])]
            self.assertEqual(told, tokens)

    def test_it_begins_where_the_template_begins_it(self):
        answer = self.say(["b", "</think>", "c"], chat_template_kwargs={"begin": True}).json
        message = answer["choices"][0]["message"]
        self.assertEqual((message["reasoning_content"], message["content"]), ("b", "c"))

    def test_it_can_be_left_in(self):
        message = self.say(["<think>", "b", "</think>", "c"], reasoning_format="none")
        self.assertEqual(message.json["choices"][0]["message"]["content"], "<think>b</think>c")
        refused = self.say(["b"], reasoning_format="loud")
        self.assertEqual((refused.status, refused.json["error"]["param"]),
                         (400, "reasoning_format"))

    def test_choices_have_their_own(self):
        answer = self.say(["<think>", "b", "</think>", "c"], n=3, stream=True)
        texts = [""] * 3
        for chunk in events(answer):
            choice = chunk["choices"][0]
            texts[choice["index"]] += choice["delta"].get("reasoning_content") or ""
        self.assertEqual(texts, ["b"] * 3)


class Truncation(ServerTest):
    template = TURNS
    arguments = ("--ctx", 256)

    def messages(self, turns):
        out = [{"role": "system", "content": "Rules."}]
        for i in range(turns):
            out.append({"role": "user", "content": f"question {i:02}?"})
            out.append({"role": "assistant", "content": f"answer {i:02}."})
        return out + [{"role": "user", "content": "the last one"}]

    def ask(self, messages, **fields):
        return self.server.post("/v1/chat/completions", {"messages": messages, "temperature": 0,
                                                         "max_tokens": 20} | fields)

    def test_never_unless_asked_for(self):
        self.assert_error(self.ask(self.messages(20)), 400, "messages", "256",
                          code="context_length_exceeded")
        self.assert_error(self.ask(self.messages(20), truncation="disabled"), 400, "messages",
                          code="context_length_exceeded")
        self.assert_error(self.ask(self.messages(1), truncation="middle"), 400, "truncation",
                          "middle")

    def test_the_oldest_turns_go_and_it_is_said(self):
        messages = self.messages(20)
        answer = self.ask(messages, truncation="auto")
        self.assertEqual(answer.status, 200, answer.body)
        dropped = answer.json["dropped_messages"]
        self.assertEqual(int(answer.headers["x-nibble-dropped-messages"]), dropped)
        self.assertEqual(dropped % 2, 0)
        # As few as possible, behind the system's, and the answer is that of what is left.
        left = messages[:1] + messages[1 + dropped:]
        self.assertEqual(self.ask(left).json["choices"], answer.json["choices"])
        more = messages[:1] + messages[1 + dropped - 2:]
        self.assertEqual(self.ask(more).status, 400)
        chunks = events(self.ask(messages, truncation="auto", stream=True))
        self.assertEqual({c["dropped_messages"] for c in chunks}, {dropped})

    def test_what_fits_stays(self):
        answer = self.ask(self.messages(2), truncation="auto")
        self.assertEqual(answer.json["choices"], self.ask(self.messages(2)).json["choices"])
        self.assertNotIn("dropped_messages", answer.json)
        self.assertNotIn("x-nibble-dropped-messages", answer.headers)

    def test_the_last_turn_is_never_cut(self):
        messages = self.messages(3) + [{"role": "user", "content": "x" * 300}]
        self.assert_error(self.ask(messages, truncation="auto"), 400, "messages",
                          code="context_length_exceeded")


if __name__ == "__main__":
    unittest.main()
