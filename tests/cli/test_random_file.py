"""bench/write_random: files of random weights with the vocabulary of another file."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from support import BINARY, CliTest, shared

TOOL = pathlib.Path(BINARY).parent / "write_random"
DONORS = ("bert-bge", "deepseek-coder", "gpt-2", "llama-spm")
SHAPE = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}


@unittest.skipUnless(TOOL.exists(), "skipped: write_random is not built")
class WriteRandom(CliTest):
    def write(self, folder, donor, **shape):
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps(SHAPE | shape))
        path = pathlib.Path(folder) / "random.gguf"
        done = subprocess.run([TOOL, config, "q4_k_m", donor, path], capture_output=True, text=True,
                              timeout=120)
        return done, path

    def test_every_kind_of_vocabulary_cut_and_filled_up(self):
        for name in DONORS:
            donor = shared(f"tokenizers/gguf-vocab/ggml-vocab-{name}.gguf")
            for vocabulary in (5000, 60000):
                with self.subTest(name=name, vocabulary=vocabulary), \
                        tempfile.TemporaryDirectory() as folder:
                    done, path = self.write(folder, donor, vocab_size=vocabulary)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    found = self.run_json("tokenize", path, "-p", "the time of a day")
                    self.assertTrue(found["ids"])
                    self.assertLess(max(found["ids"]), vocabulary)
                    if vocabulary == 60000:  # the donor's own tokens
                        whole = self.run_json("tokenize", donor, "-p", "the time of a day")
                        self.assertEqual(found["ids"], whole["ids"])
                    rows = self.run_json("bench", path, "-p", "8", "-n", "2", "-r", "1")["rows"]
                    self.assertEqual([row["test"] for row in rows], ["pp", "tg"])

    def test_other_architectures(self):
        donor = shared("tokenizers/gguf-vocab/ggml-vocab-llama-spm.gguf")
        for kind in ("qwen3", "gemma3_text"):
            with self.subTest(kind=kind), tempfile.TemporaryDirectory() as folder:
                done, path = self.write(folder, donor, model_type=kind, vocab_size=1000, head_dim=64,
                                        sliding_window=16)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.run_json("bench", path, "-p", "8", "-n", "2", "-r", "1")

    def test_what_cannot_be_written_is_said(self):
        donor = shared("tokenizers/gguf-vocab/ggml-vocab-llama-spm.gguf")
        with tempfile.TemporaryDirectory() as folder:
            done, path = self.write(folder, donor, vocab_size=1000, rope_scaling={
                "rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 64})
            self.assertEqual(done.returncode, 2)
            self.assertIn("llama3", done.stderr)
            self.assertFalse(path.exists())
            done, _ = self.write(folder, pathlib.Path(folder) / "none.gguf", vocab_size=1000)
            self.assertEqual(done.returncode, 2)
            self.assertIn("none.gguf", done.stderr)


if __name__ == "__main__":
    unittest.main()
