"""The memory contract: what the plan says before loading is what the process takes."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from support import BINARY, CliTest, nibble, pulled, shared

SLACK = 16_000_000
WRITE_RANDOM = pathlib.Path(BINARY).parent / "write_random"
# A third of TinyLlama-1.1B, in its proportions.
SHAPE = {"model_type": "llama", "hidden_size": 1536, "intermediate_size": 4224,
         "num_hidden_layers": 12, "num_attention_heads": 24, "num_key_value_heads": 4,
         "vocab_size": 32000, "max_position_embeddings": 2048}


class Memory(CliTest):
    def check(self, model, *arguments):
        if os.environ.get("NIBBLE_SANITIZED"):
            self.skipTest("a sanitizer's own memory is not in the plan")
        out = self.run_json("run", model, "--raw", "--temp", "0", *arguments)
        slack = max(0.02 * out["resident_bytes"], SLACK)
        self.assertLess(abs(out["resident_bytes"] - out["predicted_bytes"]), slack, out)

    def test_small_models(self):
        self.check("shakespeare", "-p", "ROMEO:", "-n", 20)
        self.check(shared("models/stories260K/tinyllamas-stories-260k-f32.gguf"),
                   "-p", "Once " * 100, "-n", 60)

    def test_real_models(self):
        for name in ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"):
            with self.subTest(model=name):
                model = pulled(name)
                self.check(model, "-p", "Hello", "-n", 2)
                self.check(model, "-p", "Hello, world. " * 250, "-n", 4)

    @unittest.skipUnless(WRITE_RANDOM.exists(), "skipped: write_random is not built")
    def test_a_large_random_model_in_two_formats(self):
        donor = shared("tokenizers/gguf-vocab/ggml-vocab-llama-spm.gguf")
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "config.json"
            config.write_text(json.dumps(SHAPE))
            for name in ("q8_0", "q4_k_m"):
                model = pathlib.Path(folder) / f"{name}.gguf"
                subprocess.run([WRITE_RANDOM, config, name, donor, model], check=True, timeout=240)
                with self.subTest(format=name):
                    self.check(model, "-p", "Hello", "-n", 2)
                    self.check(model, "-p", "Hello, world. " * 60, "-n", 2, "--kv", "kivi2")
                model.unlink()

    def test_pages_get_half_of_what_is_left_unless_a_size_is_given(self):
        done = nibble("run", "shakespeare", "--raw", "-p", "A", "-n", 1)
        self.assertIn("half of what is left", done.stderr)
        done = nibble("run", "shakespeare", "--raw", "-p", "A", "-n", 1, "--kv-memory", "1MiB")
        self.assertNotIn("half", done.stderr)
        self.assertRegex(done.stderr, r"KV pages 1\.05 MB \(512 tokens of 2048 bytes")
        self.assert_refused(nibble("run", "shakespeare", "-p", "A", "--kv-memory", "1000"),
                            "1.00 kB", "65.5 kB")

    def test_a_request_that_can_never_fit_is_refused_with_both_numbers(self):
        done = nibble("run", "shakespeare", "--raw", "-p", "x" * 100, "-n", 100, "--quiet",
                      "-c", 256, "--kv-memory", "300000")
        self.assert_refused(done, "199", "128")


if __name__ == "__main__":
    unittest.main()
