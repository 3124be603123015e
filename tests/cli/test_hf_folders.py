"""GGUF files as Hugging Face folders, and quantised folders as floats."""

import json
import pathlib
import shutil
import struct
import tempfile
import unittest

from support import SOURCE, CliTest, nibble, read_npy, shared

STORIES = "models/stories260K/tinyllamas-stories-260k-f32.gguf"


def tensors(folder):
    """{name: (dtype, shape, bytes)} of model.safetensors."""
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        found[name] = (entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])
    return found


class ToFolders(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.gguf = self.folder / "model.gguf"
        self.out = self.folder / "out"

    def quantize(self, source, out, to, *more):
        done = nibble("quantize", source, out, "--to", to, "--no-quality", "--force", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def logits(self, model, ids):
        file = self.folder / "logits.npy"
        done = nibble("eval", model, "--ids-file", ids, "--logits", file, "--act", "f32", "--kv",
                      "f32", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_npy(file)[1]

    def test_a_scale_beyond_its_type_is_refused(self):
        """Cut off at f16's largest, it would make every weight of its group smaller."""
        source = self.folder / "source"
        shutil.copytree(shared("models/hf-320/llama"), source)
        data = bytearray((source / "model.safetensors").read_bytes())
        size = int.from_bytes(data[:8], "little")
        name = "model.layers.1.mlp.up_proj.weight"
        entry = json.loads(data[8:8 + size])[name]
        self.assertEqual(entry["dtype"], "F32")
        at = 8 + size + entry["data_offsets"][0]
        data[at:at + 4] = struct.pack("<f", 1e30)
        (source / "model.safetensors").write_bytes(data)
        for to in ("w4a16-g32", "w8a8", "fp8"):
            self.assert_refused(nibble("quantize", source, self.out, "--to", to, "--no-quality",
                                       "--force"), name, "f16")
        self.assertFalse(self.out.exists())

    def test_there_and_back(self):
        """What transformers wrote, through GGUF and back: the same tensors, bit by bit."""
        for name in ("llama", "llama_rope_linear", "llama_rope_yarn", "llama_rope_llama3",
                     "llama_tied_bias", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2",
                     "smollm3"):
            with self.subTest(name):
                source = shared(f"models/hf-320/{name}")
                self.quantize(source, self.gguf, "f32")
                self.quantize(self.gguf, self.out, "f32")
                expected, found = tensors(source), tensors(self.out)
                self.assertEqual(set(found), set(expected) - {"lm_head.weight"} |
                                 (set(found) & {"lm_head.weight"}))
                for tensor, (dtype, shape, data) in found.items():
                    self.assertEqual((dtype, shape), expected[tensor][:2], tensor)
                    if name in ("gemma2", "gemma3") and "norm" in tensor:
                        continue  # 1 + w - 1 in f32
                    self.assertEqual(data, expected[tensor][2], tensor)
                ids = self.folder / "ids.json"
                golden = json.loads((source / "golden.json").read_text())["ids"]
                ids.write_text(json.dumps(golden[:40]))
                wanted, got = self.logits(source, ids), self.logits(self.out, ids)
                worst = max(abs(a - b) for x, y in zip(wanted, got) for a, b in zip(x, y))
                self.assertLess(worst, 1e-5)

    def test_a_quantised_gguf_becomes_every_layout(self):
        self.quantize(shared(STORIES), self.gguf, "q8_0")
        text = self.folder / "text.txt"
        text.write_text("Once upon a time there was a little girl who liked to play. " * 60)
        for to, more in (("f16", ()), ("bf16", ()), ("gptq", ("--group", "32")),
                         ("awq", ("--group", "32")), ("w4a16-asym-g32", ()), ("w8a8", ()),
                         ("fp8-dynamic", ()), ("llm-int8", ())):
            with self.subTest(to):
                found = self.run_json("quantize", self.gguf, self.out, "--to", to, "--force",
                                      "--text", text, "-c", "64", "--chunks", "4", *more)
                self.assertEqual(found["card"]["source"]["name"], "model.gguf")
                self.assertLess(found["kld"], 0.5)
                self.assertEqual(sorted(p.name for p in self.folder.iterdir()),
                                 ["model.gguf", "out", "text.txt"])
                for file in ("config.json", "generation_config.json", "tokenizer.json",
                             "tokenizer_config.json", "nibble_card.json"):
                    self.assertTrue((self.out / file).exists(), file)
                answers = [self.run_json("tokenize", model, "-p", "Once upon a  time, 12!")["ids"]
                           for model in (self.gguf, self.out)]
                self.assertEqual(*answers)

    def test_a_quantised_folder_becomes_floats(self):
        self.quantize(shared(STORIES), self.out, "w8a16-g32")
        floats = self.folder / "floats"
        self.quantize(self.out, floats, "f32")
        config = json.loads((floats / "config.json").read_text())
        self.assertNotIn("quantization_config", config)
        self.assertEqual(config["torch_dtype"], "float32")
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps(list(range(1, 60))))
        wanted, got = self.logits(self.out, ids), self.logits(floats, ids)
        worst = max(abs(a - b) for x, y in zip(wanted, got) for a, b in zip(x, y))
        self.assertLess(worst, 1e-4)

    def test_refusals(self):
        def refused(source, to, *words, more=()):
            self.assert_refused(nibble("quantize", source, self.out, "--to", to, "--no-quality",
                                       *more), *words)
            self.assertFalse(self.out.exists())
        self.quantize(shared(STORIES), self.gguf, "q4_0")
        refused(self.gguf, "gptq", "q4_0", "--requantize")
        refused(self.gguf, "q4_k_m", "--requantize")
        refused(shared(STORIES), "q4_k_m", "unknown layout", "w8a8")
        refused(shared(STORIES), "f16", "--method", more=("--method", "gptq"))
        self.quantize(SOURCE / "models" / "shakespeare", self.gguf, "q8_0")
        refused(self.gguf, "gptq", "{in, out}")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["model.gguf"])


if __name__ == "__main__":
    unittest.main()
