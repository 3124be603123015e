"""Quantising GGUF files, their cards, and the comparison of two models."""

import hashlib
import json
import math
import os
import pathlib
import re
import resource
import struct
import subprocess
import tempfile
import unittest

from support import BINARY, SOURCE, CliTest, nibble, read_npy, shared

STORIES = "models/stories260K/tinyllamas-stories-260k-f32.gguf"


class Quantize(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.gguf"
        text = self.folder / "text.txt"
        text.write_text("Once upon a time there was a little girl who liked to play. " * 60)
        self.text = text

    def quantize(self, *more, to="q8_0"):
        return self.run_json("quantize", shared(STORIES), self.out, "--to", to, "--text", self.text,
                             "-c", "64", *more)

    def test_keys_and_card(self):
        found = self.quantize()
        for key in ("in_bytes", "out_bytes", "bits_per_weight", "per_tensor", "ppl_in", "ppl_out",
                    "kld", "top1", "seconds", "peak_resident_bytes", "card"):
            self.assertIn(key, found)
        self.assertEqual(found["out_bytes"], self.out.stat().st_size)
        self.assertLess(found["out_bytes"], found["in_bytes"])
        self.assertGreater(found["kld"], 0)
        self.assertLess(found["kld"], 0.01)
        for tensor in found["per_tensor"]:
            self.assertEqual(set(tensor) >= {"name", "type", "rel_error", "max_outlier_ratio"}, True)
            if tensor["type"] == "q8_0":
                self.assertTrue(0 < tensor["rel_error"] < 0.01, tensor)
        card = self.run_json("inspect", self.out)["card"]
        self.assertEqual(card, found["card"])
        self.assertEqual(card["quality"]["kld"], found["kld"])
        self.assertEqual(len(card["source"]["sha256"]), 64)

    def test_the_file_runs_and_is_what_it_says(self):
        self.quantize()
        tensors = {t["name"]: t["type"]
                   for t in self.run_json("inspect", self.out, "--tensors")["tensors"]}
        self.assertEqual(tensors["blk.0.attn_q.weight"], "q8_0")
        self.assertEqual(tensors["blk.0.attn_norm.weight"], "f32")
        answer = self.run_json("run", self.out, "-p", "Once", "-n", "8", "--temp", "0")
        self.assertEqual(answer["generated_tokens"], 8)

    def test_rules_and_fallbacks(self):
        done = nibble("quantize", shared(STORIES), self.out, "--to", "q4_k_m", "--no-quality",
                      "--tensor-type", "attn_v=f16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("does not divide 64 columns", done.stderr)
        self.assertIn("not measured", done.stdout)
        tensors = {t["name"]: t["type"]
                   for t in self.run_json("inspect", self.out, "--tensors")["tensors"]}
        self.assertEqual(tensors["blk.0.attn_v.weight"], "f16")
        self.assertEqual(tensors["blk.0.attn_q.weight"], "q5_0")
        card = self.run_json("inspect", self.out)["card"]
        self.assertEqual(card["quality"], "not measured")
        self.assertEqual(card["recipe"]["tensor_types"], ["attn_v=f16"])

    def test_refusals_leave_nothing(self):
        stories = shared(STORIES)
        self.assert_refused(nibble("quantize", stories, self.out, "--to", "q9"), "q9", "q4_k_m")
        self.assert_refused(nibble("quantize", stories, stories, "--to", "q8_0"), "source itself")
        self.assert_refused(nibble("quantize", stories, self.folder / "out.bin", "--to", "q8_0"),
                            ".gguf")
        self.assert_refused(nibble("quantize", shared("models/hf-320/qwen2"), self.out, "--to",
                                   "q8_0"), "no tokenizer", "--no-quality")
        for rule, word in (("x", "REGEX=TYPE"), ("x=q9", "q9"), ("(=q8_0", "("),
                           ("nothing=q8_0", "matches no matrix"),
                           ("attn_q=q4_k", "64 columns")):
            self.assert_refused(nibble("quantize", stories, self.out, "--to", "q8_0",
                                       "--tensor-type", rule), word)
        self.text.write_text("short")
        self.assert_refused(nibble("quantize", stories, self.out, "--to", "q8_0", "--text",
                                   self.text, "--quiet"), "text")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["text.txt"])

    def test_a_budget_is_kept_and_chosen_by_measured_divergence(self):
        found = self.run_json("quantize", shared(STORIES), self.out, "--budget", "8bpw", "--calib",
                              self.text, "--no-quality")
        self.assertLessEqual(found["bits_per_weight"], 8)
        self.assertGreater(found["bits_per_weight"], 7.5)
        recipe = found["card"]["recipe"]
        self.assertEqual(recipe["budget"], "8bpw")
        self.assertIn("expected divergence", recipe["notes"][0])
        # What the pass measured of one matrix is what the model with that one rounded gives.
        notes = {t["name"]: t.get("note", "") for t in found["per_tensor"]}
        for name in ("token_embd.weight", "blk.1.attn_v.weight", "blk.3.ffn_up.weight",
                     "output.weight"):
            words = re.fullmatch(r"--budget: divergence \S+, as (\S+) (\S+)", notes[name])
            self.assertIsNotNone(words, notes[name])
            one = self.folder / "one.gguf"
            done = nibble("quantize", shared(STORIES), one, "--to", "f32", "--tensor-type",
                          f"^{name}$={words[1]}", "--method", "rtn", "--no-quality", "--force")
            self.assertEqual(done.returncode, 0, done.stderr)
            alone = self.run_json("eval", one, "--base", shared(STORIES), "--text", self.text, "-c",
                                  "128", "--chunks", "2", "--act", "f32", "--kv", "f32")
            self.assertAlmostEqual(alone["kld"]["mean"], float(words[2]),
                                   delta=0.01 * float(words[2]) + 1e-6, msg=name)

    def test_a_rotated_model_computes_the_same(self):
        found = self.quantize("--rotate", "--act", "f32", "--kv", "f32", to="f32")
        self.assertEqual(found["top1"], 1)
        self.assertLess(abs(found["kld"]), 1e-8)
        self.assertIn("rotation", found["card"]["recipe"]["parameters"])
        self.assertEqual([p.name for p in self.folder.glob("*rotated*")], [])
        # And has other weights: not one matrix is what it was.
        errors = self.errors_of(self.quantize("--rotate", "--force", "--no-quality", to="q8_0"))
        plain = self.errors_of(self.quantize("--force", "--no-quality", to="q8_0"))
        for name, error in plain.items():
            if name in errors and error > 0:
                self.assertNotEqual(errors[name], error, name)

    def test_rotation_where_it_cannot_be(self):
        self.assert_refused(nibble("quantize", shared(STORIES), self.folder / "out", "--to", "fp8",
                                   "--rotate"), "--rotate", ".gguf")
        self.assert_refused(nibble("quantize", "shakespeare", self.out, "--to", "q8_0", "--rotate",
                                   "--requantize", "--no-quality"), "--rotate")
        self.assert_refused(nibble("quantize", shared(STORIES), self.out, "--to", "q8_0",
                                   "--rotate", "--save-imatrix", self.folder / "i", "--calib",
                                   "built-in"), "--rotate", "--calib")
        self.quantize("--no-quality", to="q4_0")
        self.assert_refused(nibble("quantize", self.out, self.folder / "again.gguf", "--to", "q4_0",
                                   "--rotate"), "--requantize")

    def test_a_budget_in_bytes_bounds_the_file(self):
        sizes = []
        for budget in (300_000, 340_000):
            found = self.run_json("quantize", shared(STORIES), self.out, "--budget", str(budget),
                                  "--calib", self.text, "--no-quality", "--force",
                                  "--tensor-type", "attn_v=f16")
            sizes.append(self.out.stat().st_size)
            self.assertLessEqual(sizes[-1], budget)
            self.assertGreater(sizes[-1], 0.95 * budget)
            types = {t["name"]: t["type"] for t in found["per_tensor"]}
            self.assertEqual(types["blk.0.attn_v.weight"], "f16")
        answer = self.run_json("run", self.out, "-p", "Once", "-n", "8", "--temp", "0")
        self.assertEqual(answer["generated_tokens"], 8)

    def test_a_full_disk_keeps_what_is_finished(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
        self.out.write_text("old")
        command = [BINARY, "quantize", str(shared(STORIES)), str(self.out), "--to", "q8_0",
                   "--no-quality", "--force"]
        full = subprocess.run(command, preexec_fn=limit,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(full.returncode, 1, full.stderr)
        self.assertIn("finished tensors are kept", full.stderr)
        self.assertEqual(self.out.read_text(), "old")
        again = subprocess.run(command, capture_output=True, text=True, timeout=240)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertRegex(again.stderr, r"note: \d+ tensors are there from a run")
        self.assertEqual(self.out.read_bytes()[:4], b"GGUF")
        self.assertEqual([p.name for p in self.folder.glob("*part*")], [])

    def test_budgets_that_cannot_be(self):
        def refused(budget, *words, more=()):
            self.assert_refused(nibble("quantize", shared(STORIES), self.out, "--budget", budget,
                                       *more), *words)
        refused("3x", "--budget", "4.5bpw", "'3x'")
        refused("0bpw", "4.5bpw", "'0bpw'")
        refused("1bpw", "smallest possible")
        refused("10KB", "smallest possible")
        refused("5bpw", "hqq", more=("--method", "hqq"))
        self.assert_refused(nibble("quantize", shared(STORIES), self.folder / "out", "--budget",
                                   "5bpw"), ".gguf")
        self.assert_refused(nibble("quantize", shared(STORIES), self.out), "--to", "--budget")
        self.assertFalse(self.out.exists())

    def test_nothing_that_is_read_is_replaced(self):
        model = self.folder / "model.gguf"
        model.write_bytes(shared(STORIES).read_bytes())
        inside = model.read_bytes(), self.text.read_bytes()

        def refused(*more, words, out=self.out):
            self.assert_refused(nibble("quantize", model, out, "--to", "q8_0", *more), *words)
        refused("--report", model, words=("--report", "IN"))
        refused("--report", self.out, words=("--report", "OUT"))
        refused("--report", self.folder / ".." / self.folder.name / "out.gguf",
                words=("--report", "OUT"))
        link = self.folder / "link"
        link.symlink_to(model)
        refused("--report", link, words=("--report", "IN"))
        refused("--report", self.text, "--text", self.text, words=("--report", "--text"))
        refused("--calib", self.text, "--save-imatrix", self.text, words=("--save-imatrix",))
        refused("--calib", "built-in", "--save-imatrix", self.out, words=("--save-imatrix", "OUT"))
        refused("--imatrix", self.out, "--force", words=("OUT", "--imatrix"))
        # Told before the work, not behind it.
        for flag in (("--report", self.folder), ("--report", "/dev/null")):
            refused(*flag, words=("--report", "expected a file"))
        done = nibble("quantize", model, self.out, "--to", "q8_0", "--report",
                      self.folder / "none" / "x.html")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("there is no folder", done.stderr)
        done = nibble("eval", model, "--ids-file", self.text, "--logits", model)
        self.assert_refused(done, "--logits", "MODEL")
        self.assertEqual((model.read_bytes(), self.text.read_bytes()), inside)
        self.assertFalse(self.out.exists())

    def test_an_old_file_stays_until_forced(self):
        self.out.write_text("old")
        self.assert_refused(nibble("quantize", shared(STORIES), self.out, "--to", "q8_0"), "--force")
        self.assertEqual(self.out.read_text(), "old")
        self.quantize("--force", "--no-quality")
        self.assertGreater(self.out.stat().st_size, 1000)

    def test_four_bit_sources_need_a_word(self):
        self.quantize("--no-quality", to="q4_0")
        again = self.folder / "again.gguf"
        self.assert_refused(nibble("quantize", self.out, again, "--to", "q8_0"), "--requantize",
                            "4.5 bits")
        done = nibble("quantize", self.out, again, "--to", "q8_0", "--requantize", "--no-quality")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("quantised itself", done.stderr)

    def importance(self, *more, to="q4_0"):
        return self.quantize("--calib", self.text, "--calib-length", "64", "--force", *more, to=to)

    def errors_of(self, report):
        return {t["name"]: t["rel_error"] for t in report["per_tensor"]}

    def test_an_importance_matrix_is_collected_kept_and_used(self):
        none = self.quantize(to="q4_1")
        kept = self.folder / "kept.gguf"
        collected = self.importance("--save-imatrix", kept, to="q4_1")
        found = collected["card"]["recipe"]["importance"]
        self.assertEqual((found["from"], found["name"]), ("text", "text.txt"))
        self.assertEqual(found["sha256"], hashlib.sha256(self.text.read_bytes()).hexdigest())
        self.assertEqual(found["tokens"] % 64, 0)
        self.assertNotIn("importance", none["card"]["recipe"])
        self.assertLess(collected["kld"], none["kld"])
        errors = self.errors_of(collected)
        self.assertNotEqual(errors, self.errors_of(none))
        # The file that was kept gives the same tensors.
        read = self.quantize("--imatrix", kept, "--force", to="q4_1")
        self.assertEqual(read["kld"], collected["kld"])
        self.assertEqual(self.errors_of(read), errors)
        found = read["card"]["recipe"]["importance"]
        self.assertEqual((found["from"], found["name"]), ("imatrix", "kept.gguf"))
        self.assertEqual(found["sha256"], hashlib.sha256(kept.read_bytes()).hexdigest())
        self.assertEqual(found["tokens"], collected["card"]["recipe"]["importance"]["tokens"])

    def test_the_older_form_of_an_importance_matrix(self):
        kept = self.folder / "kept.dat"
        collected = self.importance("--save-imatrix", kept)
        self.assertGreater(int.from_bytes(kept.read_bytes()[:4], "little"), 7)
        read = self.quantize("--imatrix", kept, "--force", to="q4_0")
        self.assertAlmostEqual(read["kld"], collected["kld"], delta=0.05 * collected["kld"])

    def test_importance_that_cannot_be(self):
        def refused(*more, words, to="q4_0"):
            self.assert_refused(nibble("quantize", shared(STORIES), self.out, "--to", to, *more),
                                *words)
        bad = self.folder / "bad.dat"
        bad.write_bytes(b"\1\0\0\0\xff\xff\xff\x7f")
        refused("--imatrix", bad, words=("bad.dat", "a name needs"))
        name = b"blk.0.attn_q.weight"
        bad.write_bytes(struct.pack("<ii", 1, len(name)) + name + struct.pack("<iif", 1, 1, 1.0))
        refused("--imatrix", bad, words=("blk.0.attn_q.weight", "64 columns", "found 1"))
        bad.write_bytes(struct.pack("<ii", 1, 1) + b"x" + struct.pack("<iif", 1, 1, 1.0))
        refused("--imatrix", bad, words=("of another model", "'x'"))
        refused("--imatrix", shared(STORIES), words=("general.type", "imatrix"))
        refused("--imatrix", bad, "--calib", self.text, words=("--calib and --imatrix",))
        refused("--save-imatrix", bad, words=("--calib",))
        refused(to="q2_k_s", words=("q2_k_s", "--calib"))
        self.text.write_text("short")
        refused("--calib", self.text, words=("--calib", "1024"))
        self.assertFalse(self.out.exists())

    def test_divergence_keys_and_a_model_against_itself(self):
        self.quantize("--no-quality", to="q4_0")
        found = self.run_json("eval", self.out, "--base", shared(STORIES), "--text", self.text,
                              "-c", "64")
        for key in ("ppl", "ppl_se", "ppl_base", "ppl_ratio", "ppl_ratio_se", "rms_dp", "top1",
                    "top1_se", "tokens", "chunks", "protocol", "verdict", "depths"):
            self.assertIn(key, found)
        for key in ("mean", "se", "median", "p90", "p99", "p999", "max", "min"):
            self.assertIn(key, found["kld"])
        self.assertGreater(found["kld"]["mean"], 1e-4)
        alone = self.run_json("eval", self.out, "--text", self.text, "-c", "64")
        self.assertAlmostEqual(found["ppl"], alone["ppl"], places=9)
        same = self.run_json("eval", shared(STORIES), "--base", shared(STORIES), "--text",
                             self.text, "-c", "64", "--act", "f32", "--kv", "f32")
        self.assertEqual(same["kld"]["max"], 0)
        self.assertEqual(same["top1"], 1)
        self.assertIn("no difference seen", same["verdict"])

    def test_divergence_of_other_vocabularies_is_refused(self):
        self.assert_refused(nibble("eval", "shakespeare", "--base", shared(STORIES), "--text",
                                   self.text, "-c", "64", "--quiet"), "vocabulary")


class FromFolder(CliTest):
    """A Hugging Face folder becomes a GGUF file of the same function."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.gguf"

    def logits(self, model, ids):
        file = self.folder / "logits.npy"
        done = nibble("eval", model, "--ids-file", ids, "--logits", file, "--act", "f32", "--kv",
                      "f32", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_npy(file)

    def test_logits_are_the_folder_s(self):
        for name in ("llama_rope_llama3", "qwen3", "gemma3", "phi3", "gpt2", "smollm3"):
            with self.subTest(name):
                source = shared(f"models/hf-320/{name}")
                ids = self.folder / "ids.json"
                golden = json.loads((source / "golden.json").read_text())["ids"]
                ids.write_text(json.dumps(golden[:40]))
                done = nibble("quantize", source, self.out, "--to", "f32", "--no-quality",
                              "--force")
                self.assertEqual(done.returncode, 0, done.stderr)
                shape, expected = self.logits(source, ids)
                found_shape, found = self.logits(self.out, ids)
                self.assertEqual(found_shape, shape)
                worst = max(abs(a - b) for x, y in zip(expected, found) for a, b in zip(x, y))
                # Q and K of llama and smollm3 change places, and with them the order of sums.
                self.assertLess(worst, 1e-4 if name in ("llama_rope_llama3", "smollm3") else 1e-30)

    def test_rotated_models_have_the_same_logits(self):
        for name in ("llama_rope_llama3", "qwen2", "qwen3", "phi3", "smollm3"):
            with self.subTest(name):
                source = shared(f"models/hf-320/{name}")
                ids = self.folder / "ids.json"
                ids.write_text(json.dumps(json.loads((source / "golden.json").read_text())["ids"]))
                plain = self.folder / "plain.gguf"
                for arguments in ((source, plain), (plain, self.out, "--rotate")):
                    done = nibble("quantize", *arguments, "--to", "f32", "--no-quality", "--force")
                    self.assertEqual(done.returncode, 0, done.stderr)
                _, expected = self.logits(plain, ids)
                _, found = self.logits(self.out, ids)
                worst = max(abs(a - b) for x, y in zip(expected, found) for a, b in zip(x, y))
                self.assertLess(worst, 1e-4)
                self.assertGreater(worst, 0)

    def test_rotation_is_refused_by_name(self):
        for name, word in (("gemma3", "norms behind attention"), ("gpt2", "LayerNorms")):
            with self.subTest(name):
                plain = self.folder / "plain.gguf"
                done = nibble("quantize", shared(f"models/hf-320/{name}"), plain, "--to", "f32",
                              "--no-quality", "--force")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assert_refused(nibble("quantize", plain, self.out, "--to", "q8_0", "--rotate",
                                           "--no-quality"), "--rotate", name, word)
                self.assertFalse(self.out.exists())

    def test_the_demonstration_model_with_its_tokenizer(self):
        text = self.folder / "text.txt"
        text.write_text("To be, or not to be: that is the question.\n" * 80)
        found = self.run_json("quantize", SOURCE / "models" / "shakespeare", self.out, "--to",
                              "q8_0", "--text", text, "--chunks", "4")
        self.assertGreater(found["kld"], 0)
        self.assertLess(found["kld"], 0.01)
        answers = {self.run_json("run", model, "-p", "ROMEO:", "-n", "8", "--temp", "0", "--act",
                                 "f32")["text"]
                   for model in (SOURCE / "models" / "shakespeare", self.out)}
        self.assertEqual(len(answers), 1, answers)


class Methods(CliTest):
    """Calibrated methods on the demonstration model."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.gguf"
        play = (SOURCE / "examples" / "shakespeare" / "input.txt").read_text()
        self.calib = self.folder / "calib.txt"
        self.calib.write_text(play[:40000])
        self.text = self.folder / "text.txt"
        self.text.write_text(play[-8000:])
        self.model = SOURCE / "models" / "shakespeare"

    def quantize(self, *more, to="q4_0", model=None):
        kind = ("--to", to) if to else ()
        return self.run_json("quantize", model or self.model, self.out, *kind, "--text", self.text,
                              "-c", "128", "--act", "f32", "--force", *more)

    def calibrated(self, *more, sequences=64, **options):
        return self.quantize("--calib", self.calib, "--calib-length", "128", "--calib-sequences",
                             str(sequences), *more, **options)

    def test_gptq_loses_less_than_rounding(self):
        rounded = self.quantize("--method", "rtn")
        found = self.calibrated("--method", "gptq")
        self.assertLess(found["kld"], rounded["kld"])
        recipe = found["card"]["recipe"]
        self.assertEqual(recipe["method"], "gptq")
        self.assertEqual(recipe["parameters"], "gptq damp=0.01")
        self.assertEqual(recipe["calibration"],
                         {"name": "calib.txt", "sequences": 64, "length": 128,
                          "sha256": hashlib.sha256(self.calib.read_bytes()).hexdigest()})
        self.assertGreater(found["card"]["speed"]["decode_tok_s"], 0)
        # The same bytes with another number of threads, and with activations in a file.
        first = self.out.read_bytes()
        kept = [t for t in found["per_tensor"] if t["name"] == "blk.1.ffn_up.weight"]
        self.assertIn("loss", kept[0]["note"])
        self.calibrated("--method", "gptq", "--no-quality", "-t", "1", "--calib-memory", "1KB")
        again = self.out.read_bytes()
        start = len(first) - sum(t["bytes"] for t in self.run_json(
            "inspect", self.out, "--tensors")["tensors"])
        self.assertEqual(first[start:], again[start:])
        ordered = self.calibrated("--method", "gptq", "--act-order", "--damp", "0.1")
        self.assertEqual(ordered["card"]["recipe"]["parameters"], "gptq damp=0.1 act-order")
        self.assertLess(ordered["kld"], rounded["kld"])

    def test_scaling_hqq_and_combinations(self):
        rounded = self.quantize("--method", "rtn")
        for method, more in (("awq", ()), ("awq", ("--clip",)), ("smoothquant+gptq", ()),
                             ("awq+gptq", ())):
            with self.subTest(method=method, more=more):
                found = self.calibrated("--method", method, *more)
                self.assertNotEqual(found["kld"], rounded["kld"])
                self.assertLess(found["kld"], 1.5 * rounded["kld"])
        # Scales that move and rounding that is nearly exact: the function stays.
        for method in ("awq+rtn", "smoothquant+rtn"):
            found = self.calibrated("--method", method, to="f32")
            self.assertLess(found["kld"], 1e-6)
            names = {t["name"] for t in found["per_tensor"]}
            self.assertIn("blk.0.attn_norm.weight", names)
        affine = self.quantize("--method", "rtn", to="q4_1")
        found = self.quantize("--method", "hqq", to="q4_1")
        self.assertNotEqual(found["kld"], affine["kld"])
        self.assertLess(found["kld"], 1.5 * affine["kld"])

    def test_a_seed_draws_other_sequences(self):
        draws = {json.dumps(self.calibrated("--method", "gptq", "--no-quality", *seed,
                                            sequences=8)["per_tensor"])
                 for seed in ((), ("--seed", "1"), ("--seed", "2"))}
        self.assertEqual(len(draws), 3)

    def test_what_does_not_go_together(self):
        def refused(*more, words, to="q4_0"):
            self.assert_refused(nibble("quantize", self.model, self.out, "--to", to,
                                       "--no-quality", *more), *words)
        refused("--method", "gtpq", words=("gtpq", "known"))
        refused("--method", "gptq+rtn", words=("gptq+rtn",))
        refused("--method", "awq+smoothquant", words=("two methods",))
        refused("--act-order", words=("--act-order", "gptq"))
        refused("--alpha", "0.7", words=("--alpha", "smoothquant"))
        refused("--method", "gptq", "--imatrix", "x", words=("--imatrix", "kquant"))
        refused("--method", "rtn", "--imatrix", "x", words=("--imatrix", "kquant"))
        refused("--method", "rtn", "--calib", "built-in", words=("--calib", "rtn"))
        for flag in (("--group", "32"), ("--granularity", "tensor"), ("--sym",), ("--asym",),
                     ("--method", "rtn", "--mse")):
            refused(*flag, words=(flag[-1] if flag[-1] == "--mse" else flag[0], "of their own"))
        refused("--method", "llm-int8", words=("folder",))
        refused("--method", "hqq", words=("q4_1", "q5_1"))
        short = self.folder / "short.txt"
        short.write_text("short")
        refused("--method", "gptq", "--calib", short, words=("--calib", "5"))
        refused("--method", "gptq", "--calib-memory", "much", words=("much",))
        self.assertFalse(self.out.exists())

    def damaged(self, ending, row, column, value):
        """A copy of the model with one value in place of another, and the tensor's name."""
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (self.folder / name).write_bytes((self.model / name).read_bytes())
        data = bytearray((self.model / "model.safetensors").read_bytes())
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8:8 + size])
        name = next(k for k in head if k.endswith(ending))
        place = row * head[name]["shape"][-1] + column
        struct.pack_into("<f", data, 8 + size + head[name]["data_offsets"][0] + 4 * place, value)
        (self.folder / "model.safetensors").write_bytes(data)
        return name

    def test_a_weight_that_is_no_number_is_named(self):
        name = self.damaged("h.2.mlp.c_fc.weight", 3, 7, math.nan)
        for method, more in (("gptq", ()), ("kquant", ()), ("kquant", ("--calib", self.calib))):
            # What is only encoded goes by the new file's names.
            place = (name, "row 3", "column 7")
            if method == "kquant" and not more:
                place = ("blk.2.ffn_up", "row 7", "column 3")
            self.assert_refused(nibble("quantize", self.folder, self.out, "--to", "q4_0",
                                       "--no-quality", "--method", method, *more), *place, "nan")
        # Whatever it belongs to, and though nothing but a copy becomes of it.
        for ending in ("h.1.ln_1.weight", "h.1.attn.c_attn.bias", "wpe.weight"):
            for value in (math.nan, -math.inf):
                name = self.damaged(ending, 0, 5, value)
                self.assert_refused(nibble("quantize", self.folder, self.out, "--to", "f32",
                                           "--no-quality"), name, "column 5", "found")
        self.assertFalse(self.out.exists())

    def test_what_a_type_cannot_hold_is_named(self):
        for value, to in ((3e5, "f16"), (1e30, "q8_0"), (1e30, "q4_k_m")):
            self.damaged("h.1.mlp.c_fc.weight", 3, 7, value)
            self.assert_refused(nibble("quantize", self.folder, self.out, "--to", to,
                                       "--no-quality"), "blk.1.ffn_up.weight", "row 7", "too large")
        self.assertFalse(self.out.exists())

    def test_importance_of_a_folder_goes_by_the_file_s_names(self):
        kept = self.folder / "kept.gguf"
        found = self.calibrated("--save-imatrix", kept, to="q3_k_m")
        self.assertLess(found["kld"], self.quantize(to="q3_k_m")["kld"])
        read = self.quantize("--imatrix", kept, to="q3_k_m")
        self.assertEqual(read["kld"], found["kld"])

    def test_a_wide_budget_loses_nothing(self):
        found = self.quantize("--budget", "20bpw", "--budget-sequences", "1", to=None)
        self.assertLessEqual(found["bits_per_weight"], 20)
        self.assertLess(found["kld"], 1e-4)

    def test_coarse_sources_need_a_word_even_for_their_own_type(self):
        self.quantize("--no-quality")
        for method in ("awq", "gptq", "smoothquant"):
            again = self.folder / "again.gguf"
            self.assert_refused(nibble("quantize", self.out, again, "--to", "q4_0", "--method",
                                       method, "--no-quality"), "--requantize", "q4_0")
            self.assertFalse(again.exists())

    def test_texts_that_nobody_looks_at(self):
        for flag in ("--calib-length", "--calib-sequences"):
            self.assert_refused(nibble("quantize", self.model, self.out, "--to", "q8_0",
                                       "--no-quality", flag, "16"), flag, "--calib")


class Folders(CliTest):
    """Hugging Face layouts, from a folder to a folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        self.model = self.folder / "model"
        self.model.mkdir()
        source = shared("models/hf-320/qwen2")
        for name in ("config.json", "model.safetensors"):
            (self.model / name).write_bytes((source / name).read_bytes())
        tokenizer = shared("tokenizers/neural-api/tiny_bpe_split_qwen2_tokenizer.json")
        (self.model / "tokenizer.json").write_bytes(tokenizer.read_bytes())

    def make(self, to, *more):
        return self.run_json("quantize", self.model, self.out, "--to", to, "--no-quality",
                             "--force", *more)

    def header(self):
        data = (self.out / "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        return json.loads(data[8:8 + size])

    def test_layouts(self):
        expected = {"gptq": ("gptq", "qweight", "I32"), "awq": ("awq", "qweight", "I32"),
                    "w4a16-g32": ("compressed-tensors", "weight_packed", "I32"),
                    "w4a16-asym-g32": ("compressed-tensors", "weight_zero_point", "I32"),
                    "w8a16-g32": ("compressed-tensors", "weight_packed", "I32"),
                    "w8a8": ("compressed-tensors", "weight", "I8"),
                    "fp8": ("compressed-tensors", "weight", "F8_E4M3"),
                    "fp8-dynamic": ("compressed-tensors", "weight_scale", None),
                    "llm-int8": ("bitsandbytes", "SCB", "F32")}
        for to, (method, tensor, dtype) in expected.items():
            with self.subTest(to):
                more = ("--group", "32") if to in ("gptq", "awq") else ()
                found = self.make(to, *more)
                self.assertEqual(self.run_json("inspect", self.out)["card"], found["card"])
                config = json.loads((self.out / "config.json").read_text())
                self.assertEqual(config["quantization_config"]["quant_method"], method)
                head = self.header()
                entry = head[f"model.layers.0.self_attn.q_proj.{tensor}"]
                if dtype:
                    self.assertEqual(entry["dtype"], dtype)
                self.assertIn("model.embed_tokens.weight", head)
                if method != "gptq":  # which says so by a key of its own; the output is tied
                    self.assertIn("lm_head", json.dumps(config["quantization_config"]))
                card = json.loads((self.out / "nibble_card.json").read_text())
                self.assertEqual(card, found["card"])
                self.assertEqual(card["recipe"]["to"], to)
                self.assertEqual((self.out / "tokenizer.json").read_bytes(),
                                 (self.model / "tokenizer.json").read_bytes())
                types = {t["name"]: t for t in found["per_tensor"]}
                linear = types["model.layers.0.mlp.up_proj.weight"]
                self.assertEqual(linear["type"], to)
                self.assertTrue(0 < linear["rel_error"] < 0.15, linear)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["model", "out"])

    def test_names_with_dots_and_the_grid_on_the_card(self):
        grids = set()
        for more in (("--group", "32"), ("--group", "32", "--asym"), ("--group", "64"),
                     ("--granularity", "channel")):
            out = self.folder / "Llama-3.2-1B-gptq"
            found = self.run_json("quantize", self.model, f"{out}/", "--to", "gptq", "--no-quality",
                                  "--force", *more)
            self.assertTrue((out / "config.json").exists())
            grids.add(found["card"]["recipe"]["parameters"])
        self.assertEqual(len(grids), 4, grids)
        self.assert_refused(nibble("quantize", self.model, self.folder / "x.bin", "--to", "gptq"),
                            "OUT", ".gguf")
        self.assert_refused(nibble("quantize", self.model, "", "--to", "gptq"), "OUT")

    def test_one_scale_for_a_matrix_loses_more(self):
        errors = []
        for more in ((), ("--granularity", "tensor")):
            found = self.make("w8a8", *more)
            errors.append([t["rel_error"] for t in found["per_tensor"] if t["type"] == "w8a8"])
        for channel, tensor in zip(*errors):
            self.assertLess(channel, tensor)

    def test_gptq_and_scales(self):
        text = self.folder / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog 123 times; " * 120)
        rounded = self.make("gptq", "--group", "32")
        calib = ("--calib", text, "--calib-length", "64")
        found = self.make("gptq", "--group", "32", "--method", "gptq", "--act-order", *calib)
        config = json.loads((self.out / "config.json").read_text())["quantization_config"]
        self.assertEqual((config["desc_act"], config["bits"], config["group_size"]),
                         (True, 4, 32))
        notes = [t.get("note", "") for t in found["per_tensor"]]
        self.assertTrue(any(note.startswith("loss") for note in notes))
        self.assertNotEqual(found["per_tensor"], rounded["per_tensor"])
        self.make("awq", "--group", "32", "--method", "awq", *calib)
        self.make("w8a8", "--method", "smoothquant", "--alpha", "0.8", *calib)

    def test_refusals(self):
        def refused(source, to, *words, more=()):
            self.assert_refused(nibble("quantize", source, self.out, "--to", to, "--no-quality",
                                       *more), *words)
        refused(self.model, "q4_k_m", "unknown layout", "w8a8")
        refused(shared(STORIES), "gptq", "holds none")
        refused(SOURCE / "models" / "shakespeare", "gptq", "{in, out}")
        refused(self.model, "gptq", "hqq", more=("--method", "hqq"))
        refused(self.model, "gptq", "holds none", more=("--group", "24"))
        refused(self.model, "gptq", "--granularity tensor", more=("--granularity", "tensor"))
        refused(self.model, "w8a8", "--tensor-type", ".gguf", more=("--tensor-type", "x=q8_0"))
        refused(self.model, "w8a8", "--imatrix", ".gguf", more=("--imatrix", "x"))
        refused(self.model, "w8a8", "--calib", "rtn", more=("--calib", "built-in"))
        refused(self.model, "w8a8", "only with --to llm-int8", more=("--method", "llm-int8"))
        refused(self.model, "f16", "--group", more=("--group", "32"))
        refused(self.model, "fp8", "--granularity", more=("--granularity", "group"))
        refused(self.model, "fp8", "--granularity", more=("--group", "64"))
        refused(self.model, "fp8-dynamic", "--asym", more=("--asym",))
        self.out.mkdir()
        (self.out / "mine.txt").write_text("kept")
        refused(self.model, "w8a8", "out", more=("--force",))
        self.assertEqual((self.out / "mine.txt").read_text(), "kept")


class Interrupted(CliTest):
    def test_a_killed_run_is_taken_up(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        out = pathlib.Path(folder.name) / "out.gguf"
        arguments = ["quantize", SOURCE / "models" / "shakespeare", out, "--to", "q5_1",
                     "--no-quality", "--quiet"]
        done = nibble(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        # All but the card, which says how long it took.
        def without_card(data):
            at = data.index(b"nibble.card") + len(b"nibble.card") + 4 + 8
            return data[:at] + data[at + 8192:]
        expected = without_card(out.read_bytes())
        self.assertEqual(os.listdir(folder.name), ["out.gguf"])
        # What a run leaves that was killed while it wrote: some whole tensors and part of one.
        kept = pathlib.Path(folder.name) / "out.gguf.nibble-part"
        out.unlink()
        limited = subprocess.run(["sh", "-c", "ulimit -f 400; exec \"$@\"", "sh", BINARY,
                                  *map(str, arguments)], capture_output=True, text=True)
        self.assertNotEqual(limited.returncode, 0)
        self.assertTrue(kept.exists(), limited.stderr)
        self.assertFalse(out.exists())
        again = nibble(*arguments[:-1])
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertRegex(again.stderr, r"[1-9][0-9]* tensors are there from a run")
        self.assertEqual(without_card(out.read_bytes()), expected)
        self.assertEqual(os.listdir(folder.name), ["out.gguf"])


if __name__ == "__main__":
    unittest.main()
