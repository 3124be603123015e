"""What a server answers: the OpenAI interface, the same bits as `nibble run`."""

import json
import math
import os
import pathlib
import unittest

from server_support import TEMPLATE, ServerTest, events

SMOLLM2 = pathlib.Path(os.environ.get("NIBBLE_MODELS")
                       or pathlib.Path.home() / ".cache/nibble/models",
                       "SmolLM2-135M-Instruct.Q4_1.gguf")
SAMPLED = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 11}


class Completions(ServerTest):
    def test_the_same_bits_as_run(self):
        for fields, flags in (({"temperature": 0}, ("--temp", 0)), (SAMPLED, ("--seed", 11))):
            alone = self.run_here("--raw", "-p", "ROMEO:", "-n", 60, *flags)
            whole = self.server.complete("ROMEO:", max_tokens=60, **fields).json
            self.assertEqual(whole["choices"][0]["text"], alone["text"])
            self.assertEqual(whole["choices"][0]["finish_reason"], alone["finish_reason"])
            self.assertEqual(whole["usage"]["completion_tokens"], alone["generated_tokens"])
            chunks = events(self.server.complete("ROMEO:", max_tokens=60, stream=True, **fields))
            text = "".join(c["choices"][0]["text"] for c in chunks)
            self.assertEqual(text, alone["text"])

    def test_shape(self):
        answer = self.server.complete("ROMEO:", max_tokens=5, user="me", nonsense=1)
        body = answer.json
        self.assertEqual(body["object"], "text_completion")
        self.assertTrue(body["id"].startswith("cmpl-"))
        self.assertGreater(body["created"], 1_600_000_000)
        self.assertEqual(body["model"], "shakespeare")
        self.assertEqual(body["usage"]["prompt_tokens"], 6)
        self.assertEqual(body["usage"]["total_tokens"], 11)
        self.assertIn("nonsense", answer.headers["x-nibble-warning"])
        self.assertNotIn("user", answer.headers["x-nibble-warning"])
        # The seed that was drawn gives the answer again.
        seed = int(answer.headers["x-nibble-seed"])
        again = self.server.complete("ROMEO:", max_tokens=5, seed=seed).json
        self.assertEqual(again["choices"], body["choices"])

    def test_several_choices_and_prompts(self):
        body = self.server.complete(["ROMEO:", "JULIET:"], n=3, max_tokens=8, seed=3).json
        self.assertEqual([c["index"] for c in body["choices"]], list(range(6)))
        self.assertEqual(body["usage"]["prompt_tokens"], 13)
        self.assertEqual(body["usage"]["completion_tokens"], 48)
        second = self.server.complete("JULIET:", n=3, max_tokens=8, seed=3).json
        self.assertEqual([c["text"] for c in body["choices"][3:]],
                         [c["text"] for c in second["choices"]])
        self.assertEqual(len({c["text"] for c in second["choices"]}), 3)
        chunks = events(self.server.complete(["ROMEO:", "JULIET:"], n=3, max_tokens=8, seed=3,
                                             stream=True))
        texts = [""] * 6
        for chunk in chunks:
            texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
        self.assertEqual(texts, [c["text"] for c in body["choices"]])
        ids = self.server.post("/tokenize", {"content": "ROMEO:"}).json["tokens"]
        by_ids = self.server.complete([ids, ids], temperature=0, max_tokens=8).json["choices"]
        by_text = self.server.complete("ROMEO:", temperature=0, max_tokens=8).json["choices"]
        self.assertEqual([c["text"] for c in by_ids], [by_text[0]["text"]] * 2)

    def test_stop(self):
        whole = self.server.complete("ROMEO:", temperature=0, max_tokens=60).json
        text = whole["choices"][0]["text"]
        stop = text[20:23]
        cut = text[:text.index(stop)]
        for given in (stop, [stop], ["never there", stop]):
            answer = self.server.complete("ROMEO:", temperature=0, max_tokens=60, stop=given).json
            self.assertEqual(answer["choices"][0]["text"], cut)
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        chunks = events(self.server.complete("ROMEO:", temperature=0, max_tokens=60, stop=stop,
                                             stream=True))
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks), cut)

    def test_logprobs_and_echo(self):
        body = self.server.complete("ROMEO:", temperature=0, max_tokens=6, logprobs=2).json
        logprobs = body["choices"][0]["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), body["choices"][0]["text"])
        for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                     logprobs["top_logprobs"]):
            self.assertEqual(max(top, key=top.get), token)
            self.assertEqual(top[token], value)
            self.assertEqual(len(top), 2)
        # The answer as a prompt has the log-probabilities that it had as an answer.
        whole = "ROMEO:" + body["choices"][0]["text"]
        echo = self.server.complete(whole, max_tokens=0, echo=True, logprobs=2).json["choices"][0]
        self.assertEqual(echo["text"], whole)
        self.assertEqual(echo["logprobs"]["tokens"], list(whole))
        self.assertIsNone(echo["logprobs"]["token_logprobs"][0])
        self.assertEqual(echo["logprobs"]["token_logprobs"][6:], logprobs["token_logprobs"])
        self.assertEqual(echo["logprobs"]["top_logprobs"][6:], logprobs["top_logprobs"])
        self.assertEqual(echo["logprobs"]["text_offset"], list(range(len(whole))))
        # Probabilities of everything that could come sum to one.
        size = len(self.server.complete("ROMEO:", max_tokens=1, logprobs=20)
                   .json["choices"][0]["logprobs"]["top_logprobs"][0])
        self.assertEqual(size, 20)
        one = self.server.complete("RO", max_tokens=1, temperature=0, echo=True,
                                   logprobs=20).json["choices"][0]
        self.assertEqual(len(one["text"]), 3)
        total = sum(math.exp(v) for v in one["logprobs"]["top_logprobs"][2].values())
        self.assertLess(0.5, total)
        self.assertLessEqual(total, 1.0001)
        chunks = events(self.server.complete(whole, max_tokens=2, temperature=0, echo=True,
                                             logprobs=2, stream=True))
        streamed = [v for c in chunks if c["choices"][0]["logprobs"]
                    for v in c["choices"][0]["logprobs"]["token_logprobs"]]
        self.assertEqual(streamed[:len(whole)], echo["logprobs"]["token_logprobs"])
        self.assertEqual(len(streamed), len(whole) + 2)

    def test_other_routes(self):
        models = self.server.get("/v1/models").json
        self.assertEqual(models["data"][0]["id"], "shakespeare")
        self.assertEqual(models["data"][0]["max_model_len"], 256)
        self.assertEqual(self.server.get("/v1/models/shakespeare").json["object"], "model")
        self.assert_error(self.server.get("/v1/models/none"), 404, "model", code="model_not_found")
        tokens = self.server.post("/tokenize", {"content": "ROMEO:", "with_pieces": True}).json
        self.assertEqual([t["piece"] for t in tokens["tokens"]], list("ROMEO:"))
        ids = [t["id"] for t in tokens["tokens"]]
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids}).json["content"], "ROMEO:")
        self.assert_error(self.server.post("/detokenize", {"tokens": [70000]}), 400, "tokens")
        self.assert_error(self.server.post("/detokenize", {"tokens": "a"}), 400, "tokens")
        self.assert_error(self.server.post("/tokenize", {"content": 3}), 400, "content")
        self.assert_error(self.server.post("/apply-template", {"messages": []}), 400, None,
                          "chat template")
        self.assert_error(self.server.chat("hello"), 400, None, "chat template")

    def test_wrong_members_are_named(self):
        wrong = [("temperature", -1), ("temperature", "warm"), ("temperature", float("nan")),
                 ("top_p", 1.5), ("top_k", "x"), ("min_p", []), ("presence_penalty", {}),
                 ("frequency_penalty", float("inf")), ("max_tokens", -5), ("max_tokens", "many"),
                 ("max_tokens", 1.5), ("max_completion_tokens", True), ("n", 0), ("n", 17),
                 ("n", 10**12), ("best_of", 99), ("stop", 5), ("stop", [1]), ("stop", [""]),
                 ("stop", ["a"] * 17), ("stop", "x" * 5000), ("logprobs", 21), ("logprobs", "all"),
                 ("logit_bias", [1]), ("logit_bias", {"x": 1}), ("logit_bias", {"5": "a"}),
                 ("logit_bias", {str(i): 1 for i in range(1025)}), ("logit_bias", {"70000": 1}),
                 ("seed", "one"), ("stream", "yes"), ("stream", 1), ("echo", 2), ("priority", -1),
                 ("stream_options", {"include_usage": True}), ("prompt", 5), ("prompt", []),
                 ("prompt", [1, "a"]), ("prompt", ["a"] * 17), ("prompt", [70000]),
                 ("prompt", [[1], "a"]), ("prompt", ""), ("model", 5), ("suffix", "end"),
                 ("response_format", {"type": "yaml"}), ("response_format", 3),
                 ("tools", [{"type": "function"}]), ("grammar", "root ::= a"), ("guided_regex", "("),
                 ("top_logprobs", 3), ("ignore_eos", "no"), ("top_n_sigma", "two"),
                 ("xtc_probability", 1.5), ("xtc_threshold", -1), ("dynatemp_range", -1),
                 ("dynatemp_exponent", []), ("mirostat", 1), ("mirostat_tau", -1),
                 ("mirostat_eta", "fast"), ("dry_multiplier", -1), ("dry_base", 0.5),
                 ("dry_allowed_length", -1), ("dry_penalty_last_n", -2), ("min_tokens", -1),
                 ("dry_sequence_breakers", "x"), ("dry_sequence_breakers", [1]),
                 ("dry_sequence_breakers", [""]), ("dry_sequence_breakers", ["x"] * 65),
                 ("dry_sequence_breakers", ["x" * 41]), ("bad_words", 5), ("bad_words", [""]),
                 ("bad_words", ["x"] * 1025), ("logit_bias", [["Q"]]), ("logit_bias", [["Q", "a"]]),
                 ("logit_bias", [["", 1]]), ("logit_bias", [[70000, 1]]), ("logit_bias", [[-1, 1]])]
        for key, value in wrong:
            with self.subTest(key=key, value=str(value)[:40]):
                fields = {"prompt": "ROMEO:"} | {key: value}
                answer = self.server.post("/v1/completions", json.dumps(fields))
                param = {"max_completion_tokens": "max_completion_tokens"}.get(key, key)
                self.assert_error(answer, 400, param, key)
        for fields in ({"tools": []}, {"tools": None}, {"tool_choice": "none"}, {"stop": None},
                       {"response_format": {"type": "text"}}, {"suffix": None}):
            answer = self.server.complete("ROMEO:", max_tokens=1, **fields)
            self.assertEqual(answer.status, 200, answer.body)

    def test_context_and_model(self):
        self.assert_error(self.server.complete("x" * 300), 400, "prompt", "300", "256",
                          code="context_length_exceeded")
        self.assert_error(self.server.complete("x" * 200, max_tokens=100), 400, "prompt", "200",
                          "100", code="context_length_exceeded")
        # Nobody counts the tokens of megabytes.
        for text in ("x" * 5_000_000, "x " * 1_000_000, "\n" * 900_000):
            self.assert_error(self.server.complete(text), 400, "prompt", "more than 512", "256",
                              code="context_length_exceeded")
        self.assert_error(self.server.complete("a", model="gpt-4"), 404, "model", "gpt-4",
                          code="model_not_found")
        self.assertEqual(self.server.complete("a", model="shakespeare", max_tokens=1).status, 200)

    def test_bodies_that_are_no_json(self):
        for body in (b"", b"{", b"hello", b'{"prompt": "a"', b"\xff\xfe", b"[" * 100, b"null",
                     b"[1]", b'"text"', b"{'prompt': 1}"):
            with self.subTest(body=body[:20]):
                self.assertEqual(self.server.post("/v1/completions", body).status, 400)
        self.assertTrue(self.server.idle())

    def test_logit_bias(self):
        ids = self.server.post("/tokenize", {"content": "Q"}).json["tokens"]
        body = self.server.complete("ROMEO:", max_tokens=4, temperature=0,
                                    logit_bias={str(ids[0]): 100}).json
        self.assertEqual(body["choices"][0]["text"], "QQQQ")
        for bias in ([["Q", 100]], [[ids[0], 100]]):
            body = self.server.complete("ROMEO:", max_tokens=4, temperature=0, logit_bias=bias).json
            self.assertEqual(body["choices"][0]["text"], "QQQQ", bias)
        text = self.server.complete("ROMEO:", max_tokens=40, temperature=0,
                                    logit_bias=[["aeiou", False]]).json["choices"][0]["text"]
        self.assertEqual(set(text) & set("aeiou"), set())
        self.assert_error(self.server.complete("a", logit_bias=[["a" * 1001, 1]]), 400,
                          "logit_bias", "1001 bytes")
        # The tokens of texts count.
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.assert_error(self.server.complete("a", logit_bias=[[letters, 1]] * 40), 400,
                          "logit_bias", "1024")
        every = {str(i): -100 for i in range(65)}
        self.assert_error(self.server.complete("a", logit_bias=every), 400, "logit_bias", "forbidden")

    def test_further_samplers(self):
        def ask(**fields):
            answer = self.server.complete("ROMEO:", max_tokens=60, seed=3, **fields)
            self.assertEqual(answer.status, 200, answer.body)
            return answer.json["choices"][0]["text"]

        greedy = ask(temperature=0)
        word = greedy.split()[0]
        self.assertNotIn(word, ask(temperature=0, bad_words=[word]))
        plain = ask(temperature=1)
        for fields in ({"xtc_probability": 1}, {"dynatemp_range": 0.9}, {"top_n_sigma": 0.3},
                       {"mirostat": 2, "mirostat_tau": 1}, {"dry_multiplier": 5, "dry_base": 3}):
            self.assertNotEqual(ask(temperature=1, **fields), plain, fields)
            self.assertEqual(ask(temperature=1, **fields), ask(temperature=1, **fields), fields)
        # Nothing repeats two letters and the one behind them.
        text = ask(temperature=0, dry_multiplier=1e6, dry_base=2, dry_sequence_breakers=[])
        triples = [("ROMEO:" + text)[i:i + 3] for i in range(len(text) + 4)]
        self.assertEqual(len(triples), len(set(triples)), text)
        self.assertEqual(ask(temperature=0, stop=["a"], min_tokens=30)[:30], greedy[:30])
        for other in ("xtc_probability", "dynatemp_range", "top_n_sigma"):
            refused = self.server.complete("a", mirostat=2, **{other: 0.5})
            self.assert_error(refused, 400, "mirostat", other)
        # llama.cpp's names.
        self.assertEqual(ask(temperature=1, repeat_penalty=1.5),
                         ask(temperature=1, repetition_penalty=1.5))
        self.assertNotEqual(ask(temperature=1, repeat_penalty=1.5), plain)
        answer = self.server.complete("ROMEO:", n_predict=3, temperature=0)
        self.assertEqual(answer.json["usage"]["completion_tokens"], 3)

    def test_samplers_that_nobody_has_are_refused(self):
        for key, off, wanted in (("allowed_token_ids", [], [1]), ("no_repeat_ngram_size", 0, 2),
                                 ("num_beams", 1, 4), ("length_penalty", 1, 0.5), ("top_a", 0, 0.1),
                                 ("tfs", 1, 0.9), ("tfs_z", 1.0, 0.9), ("typ_p", 1, 0.5),
                                 ("samplers", [], ["top_k"]), ("repeat_last_n", 64, 10),
                                 ("do_sample", True, False), ("num_beams", 1, "many"),
                                 ("skip_special_tokens", True, False), ("suppress_tokens", None, [1]),
                                 ("min_keep", 0, 1), ("penalty_alpha", 0, 0.6)):
            with self.subTest(key=key):
                self.assert_error(self.server.complete("a", max_tokens=1, **{key: wanted}), 400, key)
                self.assertEqual(self.server.complete("a", max_tokens=1, **{key: off}).status, 200)
        for wrong in ("high", 0, -1, 1e30, [1]):
            self.assert_error(self.server.complete("a", repeat_penalty=wrong), 400, "repeat_penalty")
        self.assert_error(self.server.complete("a", n_predict="x"), 400, "n_predict")

    def test_what_is_usual_is_not_asked_for(self):
        # Sixteen tokens, or as many as there is room for.
        answer = self.server.complete("x" * 250, temperature=0, ignore_eos=True)
        self.assertEqual(answer.json["usage"]["completion_tokens"], 6)
        self.assert_error(self.server.complete("x" * 250, max_tokens=16), 400, "prompt",
                          code="context_length_exceeded")

    def test_metrics(self):
        before = self.server.get("/metrics").body.decode()
        self.server.complete("ROMEO:", max_tokens=7)
        after = self.server.get("/metrics").body.decode()

        def value(text, name):
            return sum(float(line.split()[-1]) for line in text.splitlines()
                       if line.startswith("nibble:" + name + "{"))

        for name, more in (("generation_tokens_total", 7), ("prompt_tokens_total", 6),
                           ("request_success_total", 1), ("time_to_first_token_seconds_count", 1),
                           ("inter_token_latency_seconds_count", 6),
                           ("request_generation_tokens_sum", 7)):
            self.assertEqual(value(after, name) - value(before, name), more, name)
        self.assertGreater(value(after, "decode_weight_bytes_total"), 0)


@unittest.skipUnless(SMOLLM2.exists(), "SmolLM2 has not been pulled")
class Characters(ServerTest):
    model = SMOLLM2
    arguments = ("--ctx", 128, "--max-seqs", 2)

    def test_text_offsets_count_characters(self):
        text = "Grüße, 日本 🙂 a\u0301!"
        fields = {"max_tokens": 3, "temperature": 0, "echo": True, "logprobs": 0}
        whole = self.server.complete(text, **fields).json["choices"][0]
        offsets = whole["logprobs"]["text_offset"]
        ids = self.server.post("/tokenize", {"prompt": text}).json["tokens"]
        pieces = [self.server.post("/detokenize", {"tokens": ids[:i]}).json["content"]
                  for i in range(len(ids))]
        # What is not yet a character is none.
        self.assertEqual(offsets[:len(ids)], [len(p.rstrip("\ufffd")) for p in pieces])
        self.assertEqual(offsets[len(ids)], len(text))
        self.assertGreater(len(text.encode()), len(text) + 9)
        chunks = events(self.server.complete(text, stream=True, **fields))
        self.assertEqual([o for c in chunks if c["choices"][0]["logprobs"]
                          for o in c["choices"][0]["logprobs"]["text_offset"]], offsets)


class Chat(ServerTest):
    template = TEMPLATE + "{% if extra is defined %}{{ extra }}{% endif %}"
    arguments = ("--alias", "a", "--alias", "gpt-4o")

    def test_the_same_bits_as_run(self):
        alone = self.run_here("-p", "Hello", "--chat-template", self.folder / "t.jinja", "-n", 40,
                              "--seed", 11)
        body = self.server.chat("Hello", max_tokens=40, **SAMPLED).json
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["choices"][0]["message"],
                         {"role": "assistant", "content": alone["text"]})
        chunks = events(self.server.chat("Hello", max_tokens=40, stream=True,
                                         stream_options={"include_usage": True}, **SAMPLED))
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["total_tokens"], body["usage"]["total_tokens"])
        self.assertEqual(chunks[-2]["choices"][0]["delta"], {})
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual("".join(c["choices"][0]["delta"]["content"] for c in chunks[:-2]),
                         alone["text"])
        for chunk in chunks[:-1]:
            self.assertIsNone(chunk["usage"])
            self.assertEqual(chunk["object"], "chat.completion.chunk")
            self.assertEqual(chunk["id"], chunks[0]["id"])

    def test_content_parts_and_template_variables(self):
        whole = self.server.post("/apply-template", {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hel"},
                                                      {"type": "text", "text": "lo"}]}]}).json
        self.assertEqual(whole["prompt"], "user:Hello\n")
        extra = self.server.post("/apply-template", {
            "messages": [{"role": "user", "content": "a"}],
            "chat_template_kwargs": {"extra": "more"}}).json
        self.assertEqual(extra["prompt"], "user:a\nmore")
        image = {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:"}}]}]}
        self.assert_error(self.server.post("/v1/chat/completions", image), 400, "messages[0]",
                          "images")

    def test_wrong_messages_are_named(self):
        wrong = [("hello", "messages"), ([], "messages"), ([5], "messages[0]"),
                 ([{"content": "a"}], "messages[0]"), ([{"role": "user"}], "messages[0]"),
                 ([{"role": 5, "content": "a"}], "messages[0]"),
                 ([{"role": "user", "content": "a"}, {"role": "user", "content": 5}],
                  "messages[1]"),
                 ([{"role": "user", "content": [{"type": "audio"}]}], "messages[0]"),
                 ([{"role": "user", "content": ["a"]}], "messages[0]")]
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for word, more in (("role", {"role": "alien"}), ("name", {"name": 1}),
                           ("tool_call_id", {"tool_call_id": 1}), ("tool_calls", {"tool_calls": 1}),
                           ("tool_calls[0]", {"tool_calls": [1]}),
                           ("tool_calls[1]", {"tool_calls": [call, {"id": "2"}]}),
                           ("function", {"tool_calls": [{"function": 1}]}),
                           ("name", {"tool_calls": [{"function": {"name": 1}}]}),
                           ("id", {"tool_calls": [call | {"id": 1}]}),
                           ("arguments", {"tool_calls": [{"function": {"name": "f",
                                                                       "arguments": "{"}}]}),
                           ("arguments", {"tool_calls": [{"function": {"name": "f",
                                                                       "arguments": 1}}]})):
            with self.subTest(more=more):
                message = {"role": "assistant", "content": "a"} | more
                for path in ("/v1/chat/completions", "/apply-template"):
                    answer = self.server.post(path, {"messages": [message]})
                    self.assert_error(answer, 400, "messages[0]", f"'{word}'")
        message = {"role": "assistant", "content": "a", "name": "b", "tool_calls": [call]}
        self.assertEqual(self.server.post("/apply-template", {"messages": [message]}).status, 200)
        for messages, param in wrong:
            with self.subTest(messages=messages):
                answer = self.server.post("/v1/chat/completions", {"messages": messages})
                self.assert_error(answer, 400, param)
        self.assert_error(self.server.chat("a", chat_template_kwargs=5), 400,
                          "chat_template_kwargs")
        self.assert_error(self.server.chat("a", top_logprobs=2), 400, "top_logprobs")
        self.assert_error(self.server.chat("a", logprobs=True, top_logprobs=21), 400,
                          "top_logprobs")
        self.assert_error(self.server.chat("x" * 300), 400, "messages",
                          code="context_length_exceeded")

    def test_logprobs(self):
        body = self.server.chat("Hello", max_tokens=5, temperature=0, logprobs=True,
                                top_logprobs=2).json["choices"][0]
        content = body["logprobs"]["content"]
        self.assertEqual("".join(t["token"] for t in content), body["message"]["content"])
        self.assertEqual([t["top_logprobs"][0]["logprob"] for t in content],
                         [t["logprob"] for t in content])
        self.assertEqual(bytes(content[0]["bytes"]).decode(), content[0]["token"])
        chunks = events(self.server.chat("Hello", max_tokens=5, temperature=0, logprobs=True,
                                         top_logprobs=2, stream=True))
        streamed = [t for c in chunks if c["choices"][0]["logprobs"]
                    for t in c["choices"][0]["logprobs"]["content"]]
        self.assertEqual(streamed, content)

    def test_names(self):
        for name, status in (("a", 200), ("gpt-4o", 200), ("shakespeare", 404), ("b", 404)):
            answer = self.server.chat("Hello", max_tokens=1, model=name)
            self.assertEqual(answer.status, status, name)
        self.assertEqual([m["id"] for m in self.server.get("/v1/models").json["data"]],
                         ["a", "gpt-4o"])


if __name__ == "__main__":
    unittest.main()
