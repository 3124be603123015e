"""run --batch: OpenAI's batch format, the same bytes whatever runs beside a line, resumed after a kill."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from support import BINARY, CliTest, nibble, shared


def completion(custom_id, prompt, **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions",
            "body": {"model": "any", "prompt": prompt} | body}


def chat(custom_id, text, **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": text}]} | body}


class Batch(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, lines, name="in.jsonl"):
        path = self.folder / name
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n"
                                for line in lines), encoding="utf-8")
        return path

    def arguments(self, path, out, *arguments, model="shakespeare"):
        return ["run", model, "--batch", str(path), "-o", str(out), *map(str, arguments)]

    def run_batch(self, lines, *arguments, out="out.jsonl", model="shakespeare"):
        out = self.folder / out
        done = nibble(*self.arguments(self.write(lines), out, *arguments, model=model))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(pathlib.Path(str(out) + ".journal").exists())
        return out.read_bytes()

    def mixed(self, count):
        lines = []
        for i in range(count):
            prompt = "First Citizen:\nBefore we proceed" * (i % 3) + "ROMEO:\n" + "ab" * (i % 7)
            lines.append(completion(f"line-{i}", prompt, max_tokens=5 + 11 * (i % 6),
                                    temperature=(0, 0.8, 1)[i % 3], n=1 + i % 4 // 3,
                                    priority=i % 2))
        return lines

    def test_format(self):
        lines = [completion("one", "ROMEO:", max_tokens=6, temperature=0, logprobs=2),
                 completion("two", "ROMEO:", n=2, max_tokens=4, seed=9),
                 completion("three", [1, 2, 3], max_tokens=3, stop="e")]
        out = [json.loads(line) for line in self.run_batch(lines).splitlines()]
        self.assertEqual([line["custom_id"] for line in out], ["one", "two", "three"])
        self.assertEqual([line["id"] for line in out],
                         ["batch_req_one", "batch_req_two", "batch_req_three"])
        for line in out:
            self.assertIsNone(line["error"])
            self.assertEqual(line["response"]["status_code"], 200)
            body = line["response"]["body"]
            self.assertEqual((body["object"], body["created"]), ("text_completion", 0))
            self.assertEqual(body["id"], "cmpl-" + line["custom_id"])
            usage = body["usage"]
            self.assertEqual(usage["total_tokens"],
                             usage["prompt_tokens"] + usage["completion_tokens"])
        first = out[0]["response"]["body"]["choices"][0]
        self.assertEqual(first["finish_reason"], "length")
        self.assertEqual(len(first["logprobs"]["tokens"]), 6)
        self.assertEqual("".join(first["logprobs"]["tokens"]), first["text"])
        self.assertEqual(len(first["logprobs"]["top_logprobs"][0]), 2)
        alone = self.run_json("run", "shakespeare", "--raw", "-p", "ROMEO:", "-n", 6, "--temp", 0)
        self.assertEqual(first["text"], alone["text"])
        self.assertEqual([c["index"] for c in out[1]["response"]["body"]["choices"]], [0, 1])
        self.assertEqual(out[1]["response"]["body"]["usage"]["completion_tokens"], 8)

    def test_chat(self):
        template = self.folder / "t.jinja"
        template.write_text("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}")
        parts = chat("parts", "")
        parts["body"]["messages"][0]["content"] = [{"type": "text", "text": "Hel"},
                                                   {"type": "text", "text": "lo"}]
        lines = [chat("text", "Hello", max_tokens=5, temperature=0, logprobs=True, top_logprobs=1),
                 parts | {"body": parts["body"] | {"max_completion_tokens": 5, "temperature": 0}}]
        out = [json.loads(line) for line in
               self.run_batch(lines, "--chat-template", template).splitlines()]
        bodies = [line["response"]["body"] for line in out]
        self.assertEqual(bodies[0]["object"], "chat.completion")
        self.assertEqual(bodies[0]["choices"][0]["message"]["role"], "assistant")
        self.assertEqual(bodies[0]["choices"][0]["message"], bodies[1]["choices"][0]["message"])
        self.assertEqual(len(bodies[0]["choices"][0]["logprobs"]["content"]), 5)
        refused = json.loads(self.run_batch(lines[:1]))
        self.assertIn("chat template", refused["response"]["body"]["error"]["message"])

    def test_the_same_bytes_whatever_runs_beside(self):
        lines = self.mixed(40)
        first = self.run_batch(lines, "--max-seqs", 1, "--threads", 1)
        for arguments in (("--max-seqs", 5), ("--max-seqs", 40, "--prefix-cache", "off"),
                          ("--max-seqs", 12, "--kv-memory", "900KB", "--threads", 3),
                          ("--max-seqs", 7, "--max-step-ms", "0.5")):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.run_batch(lines, *arguments), first)
        # A line's answer depends on its name and --seed, not on its place.
        turned = self.run_batch(lines[::-1]).splitlines()[::-1]
        self.assertEqual(turned, first.splitlines())
        self.assertNotEqual(self.run_batch(lines, "--seed", 1), first)

    def test_wrong_lines_get_a_response_and_harm_nobody(self):
        good = completion("good", "ROMEO:", max_tokens=4, temperature=0)
        wrong = [("not json", "line 2"), ({"url": "/v1/completions", "body": {}}, "custom_id"),
                 (completion("empty", []), "prompt"), (completion("long", "x" * 400), "400"),
                 (completion("ids", [1, 70000]), "70000"),
                 (completion("big", [1, 2**40]), str(2**40)),  (completion("n", "a", n=0), "n is 0"),
                 (completion("many", "a", n=129), "n is 129"),
                 (completion("huge", "a", n=2_000_000_000), "n is 2000000000"),
                 (completion("", "a"), "custom_id"),
                 (completion("nan", "a", temperature=float("nan")), "temperature"),
                 (completion("top", "a", top_p=float("nan")), "top_p"),
                 (completion("frequency", "a", frequency_penalty=float("inf")), "frequency"),
                 (completion("best", "a", n=3, best_of=2), "best_of"),
                 (completion("temp", "a", temperature=-1), "temperature"),
                 (completion("kind", "a", temperature="warm"), "temperature"),
                 (completion("priority", "a", priority=-1), "priority"),
                 (completion("stream", "a", stream=True), "stream"),
                 (completion("tools", "a", tools=[{}]), "tools"),
                 (completion("good", "a"), "custom_id"),
                 (chat("messages", "a") | {"body": {"messages": "hello"}}, "chat template"),
                 (completion("url", "a") | {"url": "/v1/embeddings"}, "/v1/embeddings"),
                 (completion("stop", "a", stop=[1]), "stop"),
                 (completion("bias", "a", logit_bias={"x": 1}), "logit_bias")]
        lines = [good] + [line for line, _ in wrong] + [good | {"custom_id": "after"}]
        out = [json.loads(line) for line in self.run_batch(lines).splitlines()]
        self.assertEqual(len(out), len(lines))
        for line, (_, word) in zip(out[1:-1], wrong):
            self.assertEqual(line["response"]["status_code"], 400, line)
            error = line["response"]["body"]["error"]
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertIn(word, error["message"])
        texts = [out[i]["response"]["body"]["choices"][0]["text"] for i in (0, -1)]
        self.assertEqual(texts[0], texts[1])

    def test_a_wrong_flag_is_refused_before_any_line(self):
        path = self.write([completion("a", "ROMEO:", max_tokens=4, temperature=0)])
        out = self.folder / "out.jsonl"
        for flag in ("--temp", "--top-p", "--min-p"):
            with self.subTest(flag=flag):
                done = nibble(*self.arguments(path, out, flag, "nan"))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("nan", done.stderr)
                self.assertFalse(pathlib.Path(str(out) + ".journal").exists())

    def test_what_can_never_fit_is_refused_and_the_rest_is_served(self):
        # 4 pages: the long one needs 5 whatever else runs, the others take turns.
        lines = [completion(f"{i}", "x" * 60, max_tokens=40, temperature=0) for i in range(8)]
        lines.insert(3, completion("long", "x" * 100, max_tokens=60))
        arguments = ("-c", 256, "--kv-memory", "300000", "--max-seqs", 8)
        out = [json.loads(line) for line in self.run_batch(lines, *arguments).splitlines()]
        self.assertEqual([line["response"]["status_code"] for line in out],
                         [200] * 3 + [400] + [200] * 5)
        message = out[3]["response"]["body"]["error"]["message"]
        self.assertIn("159", message)
        self.assertIn("128", message)
        alone = [json.loads(line) for line in self.run_batch(lines, "-c", 256).splitlines()]
        self.assertEqual(out[4:], alone[4:])
        self.assertEqual(alone[3]["response"]["status_code"], 200)

    def test_a_killed_run_goes_on(self):
        lines = self.mixed(60)
        for i in range(0, 60, 3):
            lines[i]["body"]["max_tokens"] = 200
        expected = self.run_batch(lines, out="whole.jsonl")
        out = self.folder / "killed.jsonl"
        journal = pathlib.Path(str(out) + ".journal")
        command = [BINARY, *self.arguments(self.write(lines), out, "--max-seqs", 4, "-t", 1)]
        finished = []
        for wanted in (5, 20, 35):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if journal.exists() and journal.read_bytes().count(b"\n") > wanted:
                    break
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait()
            if journal.exists():
                finished.append(journal.read_bytes().count(b"\n") - 1)
        self.assertTrue(finished and 0 < finished[0] < 60, finished)
        self.assertEqual(finished, sorted(finished))
        if journal.exists():
            with open(journal, "ab") as file:  # as if killed in the middle of a record
                file.write(b"59 1000 {\"id\"")
        again = self.run_json(*command[1:])
        self.assertEqual(again["resumed_lines"], finished[-1])
        self.assertEqual(out.read_bytes(), expected)
        self.assertFalse(journal.exists())

    def test_ctrl_c_keeps_what_is_done(self):
        lines = self.mixed(60)
        out = self.folder / "stopped.jsonl"
        journal = pathlib.Path(str(out) + ".journal")
        command = [BINARY, *self.arguments(self.write(lines), out, "--max-seqs", 2, "-t", 1)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") > 4:
                process.send_signal(signal.SIGINT)
                break
            time.sleep(0.002)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("the same command goes on", errors.decode())
        self.assertFalse(out.exists())
        self.assertEqual(nibble(*command[1:]).returncode, 0)
        self.assertEqual(out.read_bytes(), self.run_batch(lines))

    def test_a_journal_of_another_batch_is_refused(self):
        path = self.write(self.mixed(3))
        out = self.folder / "out.jsonl"
        journal = pathlib.Path(str(out) + ".journal")
        journal.write_text("nibble batch 3 somethingelse\n")
        self.assert_refused(nibble(*self.arguments(path, out)), "journal of another batch")
        journal.unlink()
        self.assert_refused(nibble(*self.arguments(path, self.folder / "no" / "out.jsonl")[:-2]),
                            "-o")
        self.assert_refused(nibble(*self.arguments(self.write(["", "  "], "blank.jsonl"), out)), "no lines")
        self.assertEqual(nibble(*self.arguments(path, self.folder / "no" / "out.jsonl")).returncode,
                         2)

    def test_an_output_that_would_destroy_something_is_refused(self):
        path = self.write(self.mixed(2))
        text = path.read_bytes()
        (self.folder / "link.jsonl").symlink_to(path)
        for same in (path, self.folder / "link.jsonl"):
            self.assert_refused(nibble(*self.arguments(path, same)), "--batch", "replaced")
        self.assertEqual(path.read_bytes(), text)
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.assert_refused(nibble(*self.arguments(path, pipe)), "a device or pipe")
        self.assertTrue(pipe.is_fifo())
        self.assert_refused(nibble(*self.arguments(path, self.folder)), "a folder")
        self.assertEqual(sorted(f.name for f in self.folder.iterdir()),
                         ["in.jsonl", "link.jsonl", "pipe"])

    def test_memory_cuts_no_answer(self):
        # 4 pages of 32 tokens, where the model's context is 256.
        lines = [completion("a", "ROMEO:", temperature=0)]
        path = self.write(lines)
        out = self.folder / "out.jsonl"
        refused = nibble(*self.arguments(path, out, "--kv-memory", "300000"))
        self.assert_refused(refused, "--ctx 128")
        self.assertEqual(self.run_batch(lines, "--kv-memory", "300000", "-c", 128),
                         self.run_batch(lines, "-c", 128))
        self.assert_refused(nibble(*self.arguments(path, out, "--kv-memory", 0)), "--kv-memory")

    def test_a_journal_of_another_model_is_refused(self):
        source = pathlib.Path(shared("models/stories260K/tinyllamas-stories-260k-f32.gguf"))
        model = self.folder / "model.gguf"
        path = self.write([completion(f"{i}", "Once", max_tokens=400, ignore_eos=True)
                           for i in range(60)])
        out = self.folder / "out.jsonl"
        journal = pathlib.Path(str(out) + ".journal")
        command = [BINARY, *self.arguments(path, out, "--max-seqs", 1, "-t", 1, model=str(model))]
        model.write_bytes(source.read_bytes())
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") > 2:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        process.wait()
        self.assertTrue(journal.exists())
        changed = bytearray(source.read_bytes())
        changed[-2] ^= 1  # of a weight, so that all sizes stay
        model.write_bytes(changed)
        self.assert_refused(nibble(*command[1:]), "journal of another batch")
        model.write_bytes(source.read_bytes())
        self.assertGreater(self.run_json(*command[1:])["resumed_lines"], 0)

    def test_prompts_that_begin_alike_are_computed_once(self):
        model = shared("models/stories260K/tinyllamas-stories-260k-f32.gguf")
        lines = [completion(f"{i}", "Once upon a time " * 30 + f"{i}", max_tokens=3)
                 for i in range(20)]
        path = self.write(lines)
        out = self.folder / "cached.jsonl"
        done = self.run_json(*self.arguments(path, out, "--max-seqs", 4, model=str(model)))
        self.assertGreater(done["cached_prompt_tokens"], done["prompt_tokens"] / 2)
        cached = out.read_bytes()
        none = self.run_json(*self.arguments(path, out, "--prefix-cache", "off", model=str(model)))
        self.assertEqual(none["cached_prompt_tokens"], 0)
        self.assertEqual(out.read_bytes(), cached)


if __name__ == "__main__":
    unittest.main()
