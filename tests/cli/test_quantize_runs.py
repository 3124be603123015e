"""Runs of `quantize` that were killed."""

import pathlib
import subprocess
import tempfile
import time
import unittest

from support import BINARY, CliTest, nibble, pulled

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Runs(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = pulled(SMOLLM2)

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
