"""nibble plan: against the formulas written again in Python, and wrong use."""

import csv
import importlib.util
import io
import json
import pathlib
import random
import re
import tempfile
import unittest
import xml.etree.ElementTree as xml

from support import SOURCE, nibble, pulled

spec = importlib.util.spec_from_file_location("plan_reference", SOURCE / "tools/plan_reference.py")
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)

BITS = {"f32": 32, "bf16": 16, "f16": 16, "fp8": 8, "int8": 8, "int4": 4, "kivi4": 4, "kivi2": 2}


def plan(*arguments):
    done = nibble("plan", *arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class Formulas(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_against_the_reference(self):
        rng = random.Random(3)
        for case in range(12):
            kv_heads = rng.choice((1, 2, 8))
            model = reference.Model(rng.randrange(100, 200000), 8 * rng.randrange(8, 2000),
                                    rng.randrange(64, 30000), rng.randrange(1, 100),
                                    kv_heads * rng.choice((1, 4, 7)), kv_heads,
                                    4 * rng.randrange(4, 64), rng.random() < 0.5)
            device = reference.Device(rng.uniform(1e9, 1e12), rng.uniform(1e10, 5e12),
                                      rng.uniform(1e11, 1e15), rng.uniform(0, 1e-3),
                                      rng.uniform(1e9, 1e12), rng.uniform(0, 1e-4))
            model_file, device_file = self.folder / f"m{case}.json", self.folder / f"d{case}.json"
            model_file.write_text(json.dumps({
                "vocab_size": model.vocabulary, "hidden_size": model.width,
                "intermediate_size": model.ffn, "num_hidden_layers": model.layers,
                "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads,
                "head_dim": model.head_dim, "tie_word_embeddings": model.tied}))
            device_file.write_text(json.dumps({
                "name": "d", "memory_bytes": device.memory, "bandwidth": device.bandwidth,
                "bf16_flops": device.flops, "overhead_s": device.overhead,
                "link_bandwidth": device.link, "link_latency_s": device.latency}))
            devices = rng.choice((1, 1, 2, 3, 16))
            batches = [rng.randrange(1, 400) for _ in range(2)]
            contexts = [rng.randrange(0, 100000) for _ in range(2)]
            out = plan("--model", model_file, "--device", device_file, "--devices", devices,
                       "--weights", "f32,bf16,fp8,int4", "--kv", "f32,bf16,int8,int4,kivi2",
                       "--batch", ",".join(map(str, batches)), "--price-per-hour", "1.5",
                       "--context", ",".join(map(str, contexts)), "--nominal")
            self.assertEqual(len(out["rows"]), 4 * 5 * 2 * 2)
            for row in out["rows"]:
                expected = reference.plan(model, device, BITS[row["weights"]], BITS[row["kv"]],
                                          row["batch"], row["context"], devices, 1.5)
                for key, value in expected.items():
                    if isinstance(value, float) or isinstance(value, int):
                        self.assertLessEqual(abs(row[key] - value), 1e-12 * abs(value), key)
                    else:
                        self.assertEqual(row[key], value, key)

    def test_the_example_as_text(self):
        done = nibble("plan", "--model", "llama-3-8b", "--device", "h100", "--weights",
                      "bf16,int8,int4", "--kv", "bf16,fp8", "--batch", 16, "--context", 4096,
                      "--nominal")
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("9.31 ms", "7.70 ms", "6.51 ms", "4.90 ms", "5.11 ms", "3.50 ms", "15.01 GB",
                     "8.59 GB", "1719", "1.00×", "memory-bound", "about 115,000 tokens",
                     "16.06 GB of weights + 8.59 GB of cache = 24.65 GB of 80 GB: fits",
                     "not modelled"):
            self.assertIn(text, done.stdout)

    def test_formats_of_output(self):
        flags = ("--model", "llama-3-8b", "--device", "h100", "--batch", "1,8", "--kv", "bf16,fp8")
        rows = plan(*flags)["rows"]
        table = list(csv.DictReader(io.StringIO(nibble("plan", *flags, "-o", "csv").stdout)))
        self.assertEqual(len(table), len(rows))
        for line, row in zip(table, rows):
            self.assertEqual(float(line["step_s"]), row["step_s"])
            self.assertEqual(line["weights"], row["weights"])
        svg = xml.fromstring(nibble("plan", *flags, "-o", "svg").stdout)
        colours = [e.get("fill") for e in svg.iter("{http://www.w3.org/2000/svg}rect")]
        self.assertIn("#3b72c4", colours)
        self.assertIn("#e0a12b", colours)
        html = nibble("plan", *flags, "-o", "html").stdout
        self.assertIn("<svg", html)
        self.assertEqual(re.findall(r'(?:src|href)="', html), [])

    def test_a_model_on_disk_has_formats_of_its_own(self):
        out = plan("--model", SOURCE / "models/shakespeare", "--device", "raspberry-pi-5")
        self.assertEqual(out["counting"], "true")
        self.assertEqual([row["weights"] for row in out["rows"]], ["own"])
        config = json.loads((SOURCE / "models/shakespeare/config.json").read_text())
        self.assertEqual(out["model"]["layers"], config["n_layer"])

    def test_a_pulled_model_takes_the_bytes_that_the_engine_counts(self):
        model = pulled("SmolLM2-135M-Instruct.Q4_1.gguf")
        row = plan("--model", model, "--device", "raspberry-pi-5", "--batch", 8)["rows"][0]
        ran = json.loads(nibble("run", model, "-p", "Hello", "-n", 2, "--json").stdout)
        self.assertEqual(row["memory_weights_bytes"], ran["weight_bytes_per_step"])
        # 8-bit products: a quarter of the time of floats on this device.
        floats = plan("--model", model, "--device", "raspberry-pi-5", "--batch", 8, "--act",
                      "f32")["rows"][0]
        self.assertAlmostEqual(floats["compute_s"] / row["compute_s"], 4, places=9)

    def test_this_machine_without_a_calibration(self):
        with tempfile.TemporaryDirectory() as cache:
            done = nibble("plan", "--model", "smollm2-135m", "--weights", "q4_k_m", "--kv", "int8",
                          "-t", 1, "--json", environment={"XDG_CACHE_HOME": cache})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nibble calibrate", done.stderr)
        out = json.loads(done.stdout)
        device = out["device"]
        self.assertEqual((device["name"], device["origin"]), ("here", "measured now"))
        self.assertGreater(device["bandwidth"], 1e8)
        self.assertEqual(out["counting"], "true")


class WrongUse(unittest.TestCase):
    def test_messages(self):
        base = ("--model", "llama-3-8b", "--device", "h100")
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder) / "broken.json"
            broken.write_text("{")
            empty = pathlib.Path(folder) / "empty.json"
            empty.write_text("{}")
            wrong = pathlib.Path(folder) / "wrong.json"
            wrong.write_text('{"name":"x","memory_bytes":-1}')
            for flags, message in (
                    ((), "--model"), (("--model", "lama-3-8b", "--device", "h100"), "llama-3-8b"),
                    (("--model", "llama-3-8b", "--device", "h10"), "h100"),
                    ((*base, "--batch", "0"), "--batch"), ((*base, "--batch", ","), "--batch"),
                    ((*base, "--context", "-5"), "--context"),
                    ((*base, "--devices", "x"), "--devices"),
                    ((*base, "--weights", "int3"), "--weights"), ((*base, "--kv", "fp9"), "--kv"),
                    ((*base, "--price-per-hour", "-1"), "--price-per-hour"),
                    ((*base, "--nominal", "--true"), "--nominal"),
                    ((*base, "-o", "png"), "png"),
                    (("--model", broken, "--device", "h100"), "broken.json"),
                    (("--model", empty, "--device", "h100"), "'hidden_size' is missing"),
                    (("--model", "llama-3-8b", "--device", empty), "'name'"),
                    (("--model", "llama-3-8b", "--device", wrong), "'memory_bytes'"),
                    (("--model", "llama-3-8b", "--device", "/no/such"), "/no/such: No such"),
                    (("--model", "llama-3-8b", "--device", "/no/such.json"), "/no/such.json")):
                with self.subTest(flags=flags):
                    done = nibble("plan", *flags)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(message, done.stderr)
                    self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
