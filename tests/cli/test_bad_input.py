"""Wrong files and flags: a message that names the place, exit code 2, bounded time and memory."""

import json
import os
import pathlib
import resource
import struct
import subprocess
import tempfile
import unittest

from support import BINARY, CliTest, SOURCE, nibble, shared


class Flags(CliTest):
    def test_no_command(self):
        self.assertEqual(nibble().returncode, 2)

    def test_unknown_command_flag_and_value(self):
        self.assert_refused(nibble("rum", "x"))
        self.assert_refused(nibble("run", "shakespeare", "--bogus"), "--bogus")
        self.assert_refused(nibble("run", "shakespeare", "-p", "a", "--act", "int9"), "int9")
        self.assert_refused(nibble("run", "shakespeare", "-p", "a", "--kv", "int3"), "int3")
        self.assert_refused(nibble("run", "shakespeare", "-p", "a", "--kv-memory", "lots"), "lots")

    def test_bad_environment_and_config(self):
        self.assert_refused(nibble("run", "shakespeare", "-p", "a",
                                   environment={"NIBBLE_ISA": "sse9"}), "sse9")
        self.assert_refused(nibble("run", "shakespeare", "-p", "a",
                                   environment={"NIBBLE_THREADS": "many"}))
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
            config.write("nonsense = 3\n")
            config.flush()
            self.assert_refused(nibble("run", "shakespeare", "-p", "a", "--config", config.name),
                                "nonsense")

    def test_missing_model(self):
        self.assert_refused(nibble("run", "no-such-model", "-p", "a"), "no-such-model")
        self.assert_refused(nibble("inspect", "/no/such/file.gguf"), "/no/such/file.gguf")

    def test_prompt_longer_than_the_context(self):
        done = nibble("run", "shakespeare", "--raw", "-p", "x" * 400)
        self.assert_refused(done, "400", "256")

    def test_ids_out_of_range(self):
        self.assert_refused(nibble("run", "shakespeare", "--ids", "1,70000"), "70000")
        self.assert_refused(nibble("run", "shakespeare", "--ids", "-4"))

    def test_empty_prompt(self):
        self.assert_refused(nibble("run", "shakespeare", "-p", ""))
        self.assert_refused(nibble("run", "shakespeare"))

    def test_text_that_is_no_utf8(self):
        with tempfile.NamedTemporaryFile("wb") as file:
            file.write(b"good \xff bad")
            file.flush()
            for command in (["run", "shakespeare"], ["tokenize", "shakespeare"]):
                self.assert_refused(nibble(*command, "-f", file.name), "0xff", "offset 5")

    def test_seed_out_of_range(self):
        for seed in ("18446744073709551616", "-1", "1.5"):
            self.assert_refused(nibble("run", "shakespeare", "-p", "a", "--seed", seed), seed)

    def test_environment_of_another_command_does_not_matter(self):
        done = nibble("list", environment={"NIBBLE_PROMPT": "hi", "NIBBLE_BATCH": "x"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_refused(nibble("bench", "shakespeare", environment={"NIBBLE_PROMPT": "hi"}),
                            "hi")

    def test_unknown_command_is_named(self):
        self.assert_refused(nibble("rum"), "rum")

    def test_output_that_cannot_be_written(self):
        for command in (["list"], ["run", "shakespeare", "-p", "ROMEO:", "-n", "4"],
                        ["tokenize", "shakespeare", "-p", "ROMEO:", "--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([BINARY, *command], stdout=full, stderr=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("standard output", done.stderr)

    def test_wrong_sampling_values(self):
        for flag, value in (("--temp", "nan"), ("--temp", "-1"), ("--top-p", "2"),
                            ("--min-p", "-0.5"), ("--top-k", "-3"), ("--repeat-penalty", "0")):
            with self.subTest(flag=flag, value=value):
                self.assert_refused(nibble("run", "shakespeare", "-p", "a", flag, value))


def limited(*arguments, seconds=20, memory=1 << 30):
    """Runs with bounded processor time and address space beyond what the program itself maps."""
    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if os.environ.get("NIBBLE_SANITIZED"):
        limits = None
    return subprocess.run([BINARY, *map(str, arguments)], preexec_fn=limits, stdin=subprocess.DEVNULL,
                          capture_output=True, encoding="utf-8", errors="replace", timeout=60)


class Files(CliTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, data):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(data)
        return path

    def refuse(self, path, *words):
        for command in (["inspect", path], ["run", path, "-p", "hello"]):
            done = limited(*command)
            self.assert_refused(done, *words)

    def test_not_a_model(self):
        self.refuse(self.write("empty.gguf", b""), "empty.gguf")
        self.refuse(self.write("text.gguf", b"hello world, this is no model at all\n"), "text.gguf")

    def test_gguf_that_lies(self):
        magic = b"GGUF"
        self.refuse(self.write("version.gguf", magic + struct.pack("<IQQ", 99, 0, 0)), "99")
        self.refuse(self.write("big.gguf", magic + struct.pack(">IQQ", 3, 0, 0)), "endian")
        huge = magic + struct.pack("<IQQ", 3, 1 << 60, 1 << 60)
        self.refuse(self.write("counts.gguf", huge), "counts.gguf")
        text = magic + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 50) + b"general"
        self.refuse(self.write("string.gguf", text), "string.gguf")

    def test_truncated(self):
        whole = shared("models/stories260K/tinyllamas-stories-260k-f32.gguf").read_bytes()
        for size in (3, 20, 1000, 7000, len(whole) // 2, len(whole) - 1):
            with self.subTest(size=size):
                self.refuse(self.write("cut.gguf", whole[:size]), "cut.gguf")

    def test_unknown_architecture(self):
        whole = shared("models/stories260K/tinyllamas-stories-260k-f32.gguf").read_bytes()
        at = whole.index(b"general.architecture") + len(b"general.architecture")
        self.assertIn(b"llama", whole[at:at + 20])
        changed = whole[:at] + whole[at:at + 20].replace(b"llama", b"lambda"[:5]) + whole[at + 20:]
        self.refuse(self.write("arch.gguf", changed), "lambd", "qwen2")

    def test_hugging_face_folder_without_tensors(self):
        config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128}
        self.write("config.json", json.dumps(config).encode())
        done = limited("run", self.folder.name, "--ids", "1,2,3")
        self.assert_refused(done)

    def test_absurd_config(self):
        folder = shared("models/hf-320/llama")
        config = json.loads((folder / "config.json").read_text())
        os.symlink(folder / "model.safetensors",
                   os.path.join(self.folder.name, "model.safetensors"))
        for key, value in (("num_hidden_layers", 1 << 31), ("num_hidden_layers", -1),
                           ("hidden_size", 0), ("num_attention_heads", 0),
                           ("num_key_value_heads", 3), ("vocab_size", 511),
                           ("head_dim", -16), ("hidden_size", "64"),
                           ("rms_norm_eps", "small"), ("model_type", "mamba9")):
            with self.subTest(key=key, value=value):
                self.write("config.json", json.dumps(config | {key: value}).encode())
                self.assert_refused(limited("run", self.folder.name, "--ids", "1,2"))


class Tokenizers(CliTest):
    def test_normaliser_that_multiplies_the_text(self):
        rule = {"type": "Replace", "pattern": {"String": "l"}, "content": "l" * 1000}
        tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": None, "decoder": None,
                     "post_processor": None,
                     "normalizer": {"type": "Sequence", "normalizers": [rule] * 4},
                     "model": {"type": "BPE", "vocab": {"l": 0}, "merges": []}}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(tokenizer), encoding="utf-8")
            self.assert_refused(limited("tokenize", "--tokenizer", path, "-p", "hello"), "Replace")


class Templates(CliTest):
    def render(self, source, context="{}"):
        with tempfile.TemporaryDirectory() as folder:
            template = pathlib.Path(folder) / "t.jinja"
            variables = pathlib.Path(folder) / "c.json"
            template.write_text(source)
            variables.write_text(context)
            return nibble("tokenize", "--template", template, "--context", variables)

    def test_endless_template(self):
        done = self.render("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}"
                           "{% endfor %}")
        self.assert_refused(done, "line 1")

    def test_syntax_error_names_the_line(self):
        self.assert_refused(self.render("a\nb\n{% if %}\n"), "line 3")

    def test_raised_message_is_passed_on(self):
        self.assert_refused(self.render("{{ raise_exception('no such role: ' ~ role) }}",
                                        '{"role": "king"}'), "no such role: king")

    def test_renders(self):
        done = self.render("{% for m in messages %}[{{ m.role }}]{% endfor %}",
                           '{"messages": [{"role": "user"}, {"role": "assistant"}]}')
        self.assertEqual((done.returncode, done.stdout), (0, "[user][assistant]\n"))


if __name__ == "__main__":
    unittest.main()
