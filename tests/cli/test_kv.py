"""Formats of the KV cache through every command that takes them."""

import json
import pathlib
import tempfile
import unittest

from support import CliTest, nibble, shared

FORMATS = ("f32", "f16", "fp8", "int8", "int4", "kivi4", "kivi2")
MIXED = (("--kv", "int8", "--kv-v", "kivi2"), ("--kv-k", "kivi4", "--kv-v", "f32"),
         ("--kv", "int4", "--kv-skip-layers", "0,-1"), ("--kv", "kivi2", "--kv-rotate", "on"))
# The demonstration model: layers, KV heads, head size.
LAYERS, HEADS, DIM = 4, 4, 32
SAMPLE = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n\n" * 3


def side_bytes(kv, values):
    """A page of 32 tokens of one head, by docs/architecture.md §7."""
    codes = {"f32": 32, "f16": 16, "fp8": 8, "int8": 8, "int4": 4, "kivi4": 4, "kivi2": 2}[kv]
    size = 32 * DIM * codes // 8
    if kv == "fp8":
        size += 4
    if kv in ("int8", "int4"):
        size += 32 * 2 + (4 if values else 0)
    if kv.startswith("kivi"):
        size += 4 * (32 if values else DIM) + 4
    return size


def page_bytes(keys, values, layers=LAYERS):
    size = layers * HEADS * (side_bytes(keys, False) + side_bytes(values, True))
    return (size + 63) // 64 * 64


def open_form(kv):
    return "f32" if kv == "f32" else "f16"


def unit_tokens(*formats):
    return 128 if any(kv.startswith("kivi") for kv in formats) else 32


def bytes_read(keys, values, position):
    """What the query at a position reads: its own unit open, full ones before it sealed."""
    open_bytes = page_bytes(open_form(keys), open_form(values)) / 32
    sealed = position // unit_tokens(keys, values) * unit_tokens(keys, values)
    return sealed * page_bytes(keys, values) / 32 + (position + 1 - sealed) * open_bytes


class Bytes(CliTest):
    def test_inspect_says_what_a_token_takes(self):
        for keys in FORMATS:
            for values in FORMATS:
                found = self.run_json("inspect", "shakespeare", "--kv-k", keys, "--kv-v", values)
                self.assertEqual(found["kv_bytes_per_token"], page_bytes(keys, values) // 32)
        found = self.run_json("inspect", "shakespeare", "--kv", "int8", "--kv-skip-layers", "0,-1")
        self.assertEqual(found["kv_bytes_per_token"],
                         (page_bytes("int8", "int8", 2) + page_bytes("f16", "f16", 2)) // 32)

    def test_run_counts_what_its_steps_read(self):
        for keys, values in [(kv, kv) for kv in FORMATS] + [("int8", "kivi2"), ("f16", "fp8")]:
            with self.subTest(keys=keys, values=values):
                out = self.run_json("run", "shakespeare", "--raw", "-p", SAMPLE[:150], "-n", 60,
                                    "--temp", 0, "--kv-k", keys, "--kv-v", values)
                self.assertEqual(out["generated_tokens"], 60)
                steps = [bytes_read(keys, values, 150 + i) for i in range(59)]
                self.assertAlmostEqual(out["kv_bytes_per_step"], sum(steps) / len(steps), places=3)

    def test_the_contract_counts_open_and_sealed_pages_apart(self):
        done = nibble("run", "shakespeare", "--raw", "-p", "A", "-n", 1, "--kv", "kivi2",
                      "--kv-memory", "1MiB", "--verbose")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"KV pages 935 kB \(384 tokens of 388 bytes sealed, and "
                                      r"\d+ kB of open pages")
        self.assertIn(f": {page_bytes('kivi2', 'kivi2')} bytes, 388 a token, 3.031 bits", done.stderr)
        self.assertIn(f"of {page_bytes('f16', 'f16')} bytes", done.stderr)


class Answers(CliTest):
    def test_every_format_answers_nearly_as_f16(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(SAMPLE * 3)
            file.flush()
            common = ("eval", "shakespeare", "--text", file.name, "--ctx", 256)
            base = self.run_json(*common, "--kv", "f16")
            self.assertEqual(base["kv"], "f16")
            for kv in [("--kv", name) for name in FORMATS] + list(MIXED):
                with self.subTest(kv=kv):
                    found = self.run_json(*common, *kv)
                    self.assertLess(abs(found["ppl"] / base["ppl"] - 1), 0.05)
                    if kv[-1] in ("fp8", "int8", "int4", "kivi4", "kivi2"):
                        self.assertNotEqual(found["ppl"], base["ppl"])
            found = self.run_json(*common, "--kv-k", "int4", "--kv-v", "kivi2", "--kv-skip-layers",
                                  "-1")
            self.assertEqual(found["kv"], "int4/kivi2")
            self.assertEqual(found["kv_skip_layers"], [-1])
            self.assertIs(found["kv_rotate"], True)

    def test_bench_takes_a_list(self):
        found = self.run_json("bench", "shakespeare", "-p", 0, "-n", 2, "-d", 160, "-b", 2, "-r", 1,
                              "--kv", ",".join(FORMATS))
        self.assertEqual([row["kv"] for row in found["rows"]], list(FORMATS))
        found = self.run_json("bench", "shakespeare", "-p", 160, "-n", 0, "-r", 1, "--kv", "int8,f16",
                              "--kv-v", "kivi2", "--kv-skip-layers", "0")
        self.assertEqual([row["kv"] for row in found["rows"]], ["int8/kivi2", "f16/kivi2"])

    def test_batches_have_the_same_bytes_whatever_runs_beside(self):
        lines = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
                  "body": {"model": "m", "prompt": SAMPLE[: 20 + 17 * i], "max_tokens": 40,
                           "n": 1 + i % 2}} for i in range(10)]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "in.jsonl"
            source.write_text("\n".join(map(json.dumps, lines)))
            for number, kv in enumerate([("--kv", "int8"), ("--kv", "kivi2"), *MIXED]):
                outputs = []
                for seqs, threads in ((1, 1), (7, 2), (3, 3)):
                    out = pathlib.Path(folder) / f"{number}-{seqs}.jsonl"
                    done = nibble("run", "shakespeare", "--batch", source, "-o", out, "--seed", 3,
                                  "--max-seqs", seqs, "-t", threads, "--quiet", *kv)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    outputs.append(out.read_bytes())
                self.assertEqual(outputs[1], outputs[0], kv)
                self.assertEqual(outputs[2], outputs[0], kv)
                self.assertNotIn(b'"error":{', outputs[0])


class Refused(CliTest):
    def test_wrong_formats_and_layers(self):
        run = ("run", "shakespeare", "-p", "a")
        self.assert_refused(nibble(*run, "--kv", "q8_0"), "--kv:", "kivi2", "q8_0")
        self.assert_refused(nibble(*run, "--kv-k", "bf16"), "--kv-k:", "bf16")
        self.assert_refused(nibble(*run, "--kv-v", "8"), "--kv-v:", "'8'")
        self.assert_refused(nibble(*run, "--kv-skip-layers", "4"), "from -4 to 3", "4")
        self.assert_refused(nibble(*run, "--kv-skip-layers", "0,x"), "x")
        self.assert_refused(nibble(*run, "--kv-rotate", "maybe"), "maybe")
        self.assert_refused(nibble("inspect", "shakespeare", "--kv-skip-layers=-5"), "-5")
        self.assert_refused(nibble("bench", "shakespeare", "--kv", "int8,q4"), "q4")

    def test_head_sizes_that_a_format_cannot_hold(self):
        config = json.loads(shared("models/hf-320/qwen3/config.json").read_text())
        config["head_dim"] = 22
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(config, file)
            file.flush()
            bench = ("bench", "--random", file.name, "--to", "f32", "-p", 4, "-n", 0, "-r", 1)
            self.assertEqual(nibble(*bench, "--kv", "f16").returncode, 0)
            self.assert_refused(nibble(*bench, "--kv", "int8"), "int8", "22", "divisible by 4")
            self.assert_refused(nibble(*bench, "--kv-v", "fp8"), "fp8", "22")


if __name__ == "__main__":
    unittest.main()
