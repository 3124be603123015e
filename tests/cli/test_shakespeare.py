"""The demonstration GPT against transformers' numbers (tools/train_shakespeare.py wrote them)."""

import json
import math
import os
import tempfile

from support import SOURCE, CliTest, nibble, read_npy

GOLDEN = SOURCE / "tests/golden/shakespeare"
TEXT = SOURCE / "examples/shakespeare/input.txt"
EXACT = ("--act", "f32", "--kv", "f32")


def golden(name):
    return json.loads((GOLDEN / name).read_text())


def log_softmax(row):
    top = max(row)
    return [x - top - math.log(sum(math.exp(y - top) for y in row)) for x in row]


class Shakespeare(CliTest):
    def test_log_probabilities(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "logits.npy")
            done = nibble("eval", "shakespeare", "--ids-file", GOLDEN / "ids.json", "--logits", out,
                          *EXACT)
            self.assertEqual(done.returncode, 0, done.stderr)
            shape, rows = read_npy(out)
        expected = golden("logprobs.json")
        self.assertEqual(shape, (len(expected), len(expected[0])))
        for row, wanted in zip(rows, expected):
            for got, want in zip(log_softmax(row), wanted):
                self.assertAlmostEqual(got, want, delta=1e-4)

    def test_greedy_text(self):
        wanted = golden("greedy.json")
        answer = self.run_json("run", "shakespeare", "--ids", ",".join(map(str, wanted["prompt"])),
                               "-n", len(wanted["ids"]), "--temp", "0", *EXACT)
        self.assertEqual(answer["ids"], wanted["ids"])
        self.assertEqual(answer["text"], wanted["text"])

    def test_tokenizer_knows_each_character(self):
        characters = "".join(sorted(set(TEXT.read_text())))
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(characters)
            file.flush()
            ids = self.run_json("tokenize", "shakespeare", "-f", file.name)["ids"]
        self.assertEqual(ids, list(range(65)))

    def test_any_other_character_is_a_space(self):
        self.assertEqual(self.run_json("tokenize", "shakespeare", "-p", "A\t\u00e97")["ids"],
                         self.run_json("tokenize", "shakespeare", "-p", "A   ")["ids"])

    def test_validation_loss(self):
        wanted = golden("validation.json")
        text = TEXT.read_text()
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text[int(0.9 * len(text)):])
            file.flush()
            answer = self.run_json("eval", "shakespeare", "--text", file.name, "--protocol", "gptq",
                                   "--ctx", wanted["window"], *EXACT)
        # The GPTQ protocol scores window - 1 of window tokens, the golden all of them.
        self.assertAlmostEqual(math.log(answer["ppl"]), wanted["loss_gptq"], delta=1e-4)
