"""Speculation changes no bit of an answer."""

import json
import os
import pathlib
import tempfile
import unittest

from support import SOURCE, CliTest, nibble, pulled

# What a prompt repeats an answer may repeat, too.
PLAY = "".join(f"ROMEO:\nI would I were thy bird, {name}.\n\n" for name in ("good", "sweet", "good"))
SAMPLERS = (["--temp", "0"],
            ["--temp", "0.3", "--seed", "5"],
            ["--temp", "0.5", "--seed", "6", "--repeat-penalty", "1.1", "--frequency-penalty", "0.1"],
            ["--temp", "0.6", "--seed", "7", "--mirostat", "2", "--mirostat-ent", "2"],
            ["--temp", "0.4", "--seed", "8", "--dry-multiplier", "0.3", "--xtc-probability", "0.2",
             "--dynatemp-range", "0.2", "--top-nsigma", "2", "--min-tokens", "20"])


class Speculation(CliTest):
    def both(self, model, *arguments):
        """The answer without and with guesses; they are equal."""
        without = self.run_json("run", model, *arguments)
        guessed = self.run_json("run", model, "--ngram", *arguments)
        for key in ("text", "ids", "finish_reason", "generated_tokens", "seed"):
            self.assertEqual(guessed[key], without[key], arguments)
        self.assertEqual(without["spec"], {"drafted": 0, "accepted": 0})
        self.assertGreaterEqual(guessed["spec"]["drafted"], guessed["spec"]["accepted"])
        return guessed

    def test_the_same_text_under_every_sampler_and_cache(self):
        drafted = 0
        for kv in ("f16", "int8", "kivi2", "int4"):
            for sampler in SAMPLERS if kv in ("f16", "kivi2") else SAMPLERS[:2]:
                answer = self.both("shakespeare", "-p", PLAY, "-n", "120", "--kv", kv, "--seed", "1",
                                   *sampler[:2], *(sampler[4:] if "--seed" in sampler else []))
                drafted += answer["spec"]["drafted"]
        self.assertGreater(drafted, 0)

    def test_stop_and_the_end_of_the_context(self):
        free = self.both("shakespeare", "-p", PLAY, "--temp", "0", "--seed", "1")
        self.assertEqual(free["finish_reason"], "length")
        stop = free["text"][15:22]
        cut = self.both("shakespeare", "-p", PLAY, "--temp", "0", "--seed", "1", "--stop", stop)
        self.assertEqual(cut["finish_reason"], "stop")

    @unittest.skipIf(os.environ.get("NIBBLE_SANITIZED"), "a language model takes a sanitizer minutes")
    def test_a_language_model(self):
        model = pulled("SmolLM2-135M-Instruct.Q4_1.gguf")
        text = "The quick brown fox jumps over the lazy dog. It was seen by nobody but the cat. " * 3
        accepted = 0
        for kv in ("f16", "int8", "kivi4"):
            for sampler in (["--temp", "0"], ["--temp", "0.7"]):
                answer = self.both(model, "--raw", "-p", text, "-n", "80", "--seed", "2", "--kv", kv,
                                   *sampler)
                accepted += answer["spec"]["accepted"]
        self.assertGreater(accepted, 0)  # how many are tried depends on the measured price

    def test_stats_tell_of_guesses(self):
        done = nibble("run", "shakespeare", "--ngram", "--stats", "-p", PLAY, "-n", "60", "--temp", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("speculation: ", done.stderr)

    def test_a_batch_has_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                      "body": {"prompt": PLAY[i:], "max_tokens": 40 + i, "temperature": i / 8,
                               "n": 1 + i % 2, "logprobs": i % 3}} for i in range(8)]
            (folder / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
            for more in ([], ["--ngram"], ["--ngram", "--max-seqs", "2"]):
                done = nibble("run", "shakespeare", "--batch", folder / "in", "-o",
                              folder / f"out{len(more)}", *more)
                self.assertEqual(done.returncode, 0, done.stderr)
            outs = [(folder / f"out{n}").read_bytes() for n in (0, 1, 3)]
            self.assertEqual(outs[0].count(b"\n"), 8)
            self.assertEqual(outs[1], outs[0])
            self.assertEqual(outs[2], outs[0])


class SamplerFlags(CliTest):
    def run_text(self, *arguments):
        return self.run_json("run", "shakespeare", "-p", "ROMEO:", "-n", "40", "--temp", "0",
                             *arguments)["text"]

    def test_bias_by_id_and_by_text(self):
        by_text = self.run_text("--logit-bias", "Q=100")
        self.assertEqual(by_text, "Q" * 40)
        tokens = self.run_json("tokenize", SOURCE / "models/shakespeare", "-p", "Q")["ids"]
        self.assertEqual(self.run_text("--logit-bias", f"{tokens[-1]}+100"), by_text)
        text = self.run_text("--logit-bias", "aeiou=-inf", "--bad-word", "th")
        self.assertEqual(set(text) & set("aeiou"), set())
        self.assertNotIn("th", text)

    def test_wrong_values_are_named(self):
        for arguments, words in ((["--logit-bias", "Q"], "--logit-bias 'Q'"),
                                 (["--logit-bias", "5"], "--logit-bias '5'"),
                                 (["--logit-bias", "5+x"], "--logit-bias '5+x'"),
                                 (["--logit-bias", "a=b"], "--logit-bias 'a=b'"),
                                 (["--logit-bias", "70000+1"], "70000"),
                                 (["--mirostat", "1"], "mirostat is 1"),
                                 (["--mirostat", "2", "--xtc-probability", "0.1"], "xtc_probability"),
                                 (["--dry-base", "0.1"], "dry_base"),
                                 (["--min-tokens", "-1"], "min_tokens")):
            done = nibble("run", "shakespeare", "-p", "a", "-n", "1", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
