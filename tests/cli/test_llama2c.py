"""tools/llama2c_to_gguf.py: the converted checkpoint answers as llama2.c does, and bad files are
refused."""

import os
import pathlib
import subprocess
import sys
import tempfile

from support import SOURCE, CliTest, shared

FOLDER = "models/stories260K"


def convert(checkpoint, tokenizer, out):
    return subprocess.run([sys.executable, SOURCE / "tools/llama2c_to_gguf.py", checkpoint, tokenizer,
                           out], capture_output=True, text=True)


class Llama2c(CliTest):
    def test_converted_checkpoint_gives_the_expected_bytes(self):
        expected = shared(f"{FOLDER}/expected_greedy_200.txt").read_text()
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "stories260K.gguf")
            done = convert(shared(f"{FOLDER}/stories260K.bin"), shared(f"{FOLDER}/tok512.bin"), out)
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = self.run_json("run", out, "--ids", "1", "-n", "200", "--temp", "0", "--act",
                                   "f32", "--kv", "f32", "--raw")
        self.assertEqual(answer["text"].strip(), expected.strip())

    def test_damaged_files_are_refused(self):
        checkpoint = shared(f"{FOLDER}/stories260K.bin")
        tokenizer = shared(f"{FOLDER}/tok512.bin")
        whole = checkpoint.read_bytes()
        for name, damaged in (("cut", whole[:-4]), ("long", whole + b"\0"), ("empty", b""),
                              ("header", b"\xff" * 28 + whole[28:])):
            with tempfile.TemporaryDirectory() as folder:
                bad = pathlib.Path(folder, "bad.bin")
                bad.write_bytes(damaged)
                out = pathlib.Path(folder, "out.gguf")
                done = convert(bad, tokenizer, out)
                self.assertEqual(done.returncode, 2, name)
                self.assertIn("bad.bin", done.stderr)
                self.assertFalse(out.exists())
