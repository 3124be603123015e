"""`eval --task`, `--task-file` and `--base FILE`, against this file's own arithmetic over
`eval --logits` of the demonstration GPT, whose tokens are characters."""

import bz2
import json
import math
import pathlib
import struct
import tempfile
import unittest

from support import SOURCE, CliTest, nibble, pulled, read_npy, shared

F32 = ("--act", "f32", "--kv", "f32")


class Tasks(CliTest):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        vocabulary = json.loads((SOURCE / "models/shakespeare/tokenizer.json").read_text())
        self.ids = vocabulary["model"]["vocab"]
        self.play = (SOURCE / "examples/shakespeare/input.txt").read_text()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def logprobs(self, ids):
        """ln p after every id: rows of the vocabulary."""
        out = self.folder / "logits.npy"
        done = nibble("eval", "shakespeare", "--ids-file", self.write("ids.json", json.dumps(ids)),
                      "--logits", out, *F32, "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = read_npy(out)[1]
        return [[x - max(row) - math.log(math.fsum(math.exp(y - max(row)) for y in row))
                 for x in row] for row in rows]

    def score(self, context, ending):
        """(ln p of each character behind the context, whether all are the most probable)."""
        ids = [self.ids[c] for c in context + " " + ending]
        rows = self.logprobs(ids)
        places = range(len(context), len(ids))
        return ([rows[at - 1][ids[at]] for at in places],
                all(max(rows[at - 1]) == rows[at - 1][ids[at]] for at in places))

    def items(self):
        """(context, endings, answer): what the play says, among words from elsewhere."""
        words = self.play.split()
        lines = [line for line in self.play.split("\n") if len(line.split()) > 6]
        for i in range(5):
            line = lines[100 * i + 7].split()
            endings = [" ".join(words[333 * i + 50 * k:333 * i + 50 * k + 3]) for k in range(3)]
            endings.insert(i % 4, " ".join(line[-3:]))
            yield " ".join(line[:-3]), endings, i % 4

    def check_choices(self, found, items):
        def best(values):
            return values.index(max(values))
        sums = means = chars = 0
        for context, endings, answer in items:
            scores = [self.score(context, ending)[0] for ending in endings]
            shared_chars = 0
            while len({e[:shared_chars + 1] for e in endings}) == 1:
                shared_chars += 1
            tails = [s[1 + shared_chars:] for s in scores]
            sums += best([sum(s) for s in scores]) == answer
            chars += best([sum(s) / len(e) for s, e in zip(scores, endings)]) == answer
            means += best([sum(t) / len(t) for t in tails]) == answer
        n = len(items)
        self.assertEqual(found["items"], n)
        for key, right in (("accuracy", means), ("acc", sums), ("acc_norm", chars)):
            self.assertAlmostEqual(found[key], right / n, msg=key)
            self.assertAlmostEqual(found[key + "_se"],
                                   math.sqrt(right / n * (1 - right / n) / (n - 1)), msg=key)

    def test_hellaswag_and_multiple_choice(self):
        items = list(self.items())
        text = "".join("\n".join([context, str(answer), *endings]) + "\n"
                       for context, endings, answer in items)
        found = self.run_json("eval", "shakespeare", "--task", "hellaswag", "--data",
                              self.write("h.txt", text), *F32)
        self.check_choices(found, items)
        lines = [json.dumps({"question": c, "choices": e, "answer": a}) for c, e, a in items]
        same = self.run_json("eval", "shakespeare", "--task", "multiple-choice", "--data",
                             self.write("m.jsonl", "\n".join(lines)), *F32)
        for key in ("accuracy", "acc", "acc_norm"):
            self.assertEqual(found[key], same[key])

    def test_lambada(self):
        lines = [line for line in self.play.split("\n") if len(line.split()) > 5][:6]
        path = self.write("l.jsonl", "\n".join(json.dumps({"text": t}) for t in lines))
        found = self.run_json("eval", "shakespeare", "--task", "lambada", "--data", path, *F32)
        scores = [self.score(*line.rsplit(" ", 1)) for line in lines]
        losses = [-sum(s) for s, _ in scores]
        self.assertAlmostEqual(found["accuracy"], sum(greedy for _, greedy in scores) / 6)
        self.assertAlmostEqual(found["ppl"] / math.exp(sum(losses) / 6), 1, places=4)
        # A part of the items, and a base that is the same model.
        paired = self.run_json("eval", "shakespeare", "--task", "lambada", "--data", path, "-n",
                               "4", "--base", "shakespeare", *F32)
        self.assertEqual((paired["items"], paired["gained"], paired["lost"], paired["p"]),
                         (4, 0, 0, 1))
        self.assertTrue(paired["verdict"].startswith("no difference seen"))
        self.assertEqual(paired["base"]["ppl"], paired["ppl"])

    def test_generated_answers(self):
        def answer(prompt, *flags):
            return self.run_json("run", "shakespeare", "-p", prompt, "--temp", "0", *F32,
                                 *flags)["text"]
        truth = answer("ROMEO:", "-n", "12")
        lines = [{"prompt": "ROMEO:", "expected": truth, "rule": "exact", "max_tokens": 12},
                 {"prompt": "ROMEO:", "expected": "[A-Z]", "rule": "regex", "max_tokens": 12},
                 {"prompt": "ROMEO:", "expected": "7", "rule": "number", "max_tokens": 12}]
        out = self.folder / "answers.jsonl"
        found = self.run_json(
            "eval", "shakespeare", "--task-file",
            self.write("t.jsonl", "\n".join(map(json.dumps, lines))), "--answers", out, *F32)
        self.assertAlmostEqual(found["accuracy"], 2 / 3)
        self.assertEqual((found["items"], found["tokens"], found["cut"]), (3, 36, 3))
        answers = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([a["right"] for a in answers], [True, True, False])
        self.assertEqual([a["answer"] for a in answers], [truth] * 3)

    def test_real_files_are_read(self):
        model = pulled("SmolLM2-135M-Instruct.Q4_1.gguf")
        text = bz2.decompress(shared("eval/hellaswag/hellaswag_val_full.txt.bz2").read_bytes())
        self.write("h.txt", text.decode())
        for task, path in (("hellaswag", self.folder / "h.txt"),
                           ("lambada", shared("eval/lambada/lambada_test.jsonl")),
                           ("arc", shared("eval/arc_easy_validation.jsonl"))):
            with self.subTest(task=task):
                found = self.run_json("eval", model, "--task", task, "--data", path, "-n", "5")
                self.assertEqual(found["items"], 5)
                self.assertTrue(0 <= found["accuracy"] <= 1)
        first = shared("eval/gsm8k/test.jsonl").read_text().split("\n", 1)[0]
        item = dict(json.loads(first), max_tokens=4)
        found = self.run_json("eval", model, "--task-file",
                              self.write("g.jsonl", json.dumps(item)))
        self.assertEqual((found["items"], found["tokens"]), (1, 4))

    def test_bad_input(self):
        bad = self.write("bad.jsonl", '{"text": "a b"}\n{"text": "alone"}\n')
        self.assert_refused(nibble("eval", "shakespeare", "--task", "lambada", "--data", bad),
                            "bad.jsonl", "line 2", "two words")
        self.assert_refused(nibble("eval", "shakespeare", "--task", "arc"), "--data")
        self.assert_refused(nibble("eval", "shakespeare", "--task", "riddles", "--data", bad),
                            "riddles")
        self.assert_refused(nibble("eval", "shakespeare", "--task-file", bad), "line 1", "prompt")

    def test_base_file(self):
        context, windows = 64, 2
        ids = [self.ids[c] for c in self.play[:context * windows]]
        data = b"_logits_" + struct.pack("<3i", context, 65, windows)
        data += struct.pack(f"<{len(ids)}i", *ids)
        for window in range(windows):
            rows = self.logprobs(ids[context * window:context * (window + 1)])
            for row in rows[context // 2:context - 1]:
                lowest = max(min(row), max(row) - 16)
                step = (max(row) - lowest) / 65535
                codes = [round((x - lowest) / step) if x > lowest else 0 for x in row]
                data += struct.pack("<2f66H", step, lowest, *codes, 0)
        path = self.folder / "base.kld"
        path.write_bytes(data)
        found = self.run_json("eval", "shakespeare", "--base", path, *F32)
        self.assertEqual((found["tokens"], found["chunks"], found["ctx"]), (62, 2, 64))
        self.assertEqual(found["top1"], 1)
        self.assertLess(abs(found["kld"]["mean"]), 1e-4)
        self.assertAlmostEqual(found["ppl_ratio"], 1, places=3)
        self.assertNotIn("base_act", found)
        text = self.write("t.txt", self.play[:4096])
        self.assert_refused(nibble("eval", "shakespeare", "--base", path, "--text", text),
                            "base.kld", "--text")
        path.write_bytes(data[:-1])
        self.assert_refused(nibble("eval", "shakespeare", "--base", path), "base.kld", "cut off")


if __name__ == "__main__":
    unittest.main()
