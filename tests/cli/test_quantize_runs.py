"""Runs of `quantize` on a model that is larger than what they may keep in memory, and killed ones."""

import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from support import BINARY, CliTest, nibble, pulled, shared

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
LAYER_WEIGHTS = 576 * (2 * 576 + 2 * 192 + 3 * 1536)  # q, output; k, v; gate, up, down


class Runs(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = pulled(SMOLLM2)

    @unittest.skipIf(os.environ.get("NIBBLE_SANITIZED"), "a sanitizer's memory is its own")
    def test_memory_is_a_layer_the_activations_and_200_mb(self):
        text = shared("corpora/wikitext-2-raw/wiki.test.raw")
        sequences, length = 4, 128
        bound = (4 * LAYER_WEIGHTS + sequences * length * (576 + 576) * 4 + 200_000_000)
        for out, to, method in (("out", "w8a8", "smoothquant"), ("out.gguf", "q8_0", "smoothquant"),
                                ("plain.gguf", "q4_k_m", "kquant")):
            with self.subTest(to):
                found = self.run_json("quantize", self.model, self.folder / out, "--to", to,
                                      "--method", method, "--requantize", "--no-quality", "--calib",
                                      text, "--calib-sequences", sequences, "--calib-length",
                                      length)
                self.assertLess(found["peak_resident_bytes"], bound)
                recipe = found["card"]["recipe"]
                seen = recipe.get("calibration") or recipe["importance"]
                self.assertEqual(seen.get("tokens", sequences * length), sequences * length)

    def test_a_run_that_was_killed_goes_on_to_the_same_bytes(self):
        def without_card(path):
            data = path.read_bytes()
            at = data.index(b"nibble.card") + len(b"nibble.card") + 4 + 8
            return data[:at] + data[at + 8192:]
        def command(out):
            return ["quantize", self.model, out, "--to", "q5_1", "--requantize", "--no-quality"]
        whole = self.folder / "whole.gguf"
        done = nibble(*command(whole), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.folder / "out.gguf"
        out.write_text("old")
        part = self.folder / "out.gguf.nibble-part"
        run = subprocess.Popen([BINARY, *map(str, command(out)), "--force", "--quiet"])
        try:
            # Some tensors are whole, most are to come: the output has 100 MB.
            while run.poll() is None and not (part.exists() and part.stat().st_size > 25_000_000):
                time.sleep(0.005)
            run.kill()
        finally:
            run.wait()
        self.assertEqual(run.returncode, -9)
        self.assertEqual(out.read_text(), "old")
        again = nibble(*command(out), "--force")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertRegex(again.stderr, r"[1-9][0-9]* tensors are there from a run")
        self.assertTrue(without_card(whole) == without_card(out))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["out.gguf", "whole.gguf"])


if __name__ == "__main__":
    unittest.main()
