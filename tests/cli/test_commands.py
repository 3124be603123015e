"""What each command prints for right input, and the JSON keys that scripts rely on."""

import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

from support import BINARY, CliTest, nibble, pulled, read_npy, shared


class Help(CliTest):
    def test_help_and_version(self):
        top = nibble("--help")
        self.assertEqual(top.returncode, 0)
        self.assertRegex(nibble("--version").stdout, r"^nibble \d+\.\d+\.\d+\n$")
        for command in ("run", "quantize", "eval", "bench", "inspect", "tokenize", "pull", "list", "rm", "completion"):
            self.assertIn(command, top.stdout)
            text = nibble(command, "--help").stdout
            self.assertIn("Example", text)
            self.assertIn("--threads", text)

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            done = nibble("completion", shell)
            self.assertEqual(done.returncode, 0)
            self.assertIn("tokenize", done.stdout)


class Run(CliTest):
    def test_keys_and_greedy_determinism(self):
        answers = [self.run_json("run", "shakespeare", "-p", "ROMEO:", "-n", "40", "--temp", "0",
                                 "-t", threads, "--act", "f32") for threads in (1, 2, 4)]
        for key in ("text", "ids", "prompt_tokens", "generated_tokens", "finish_reason", "load_s",
                    "prefill_s", "decode_s", "prefill_tok_s", "decode_tok_s",
                    "weight_bytes_per_step", "kv_bytes_per_step", "achieved_bandwidth",
                    "bandwidth_fraction", "resident_bytes", "predicted_bytes", "spec"):
            self.assertIn(key, answers[0])
        self.assertEqual(answers[0]["generated_tokens"], 40)
        self.assertEqual(answers[0]["finish_reason"], "length")
        self.assertEqual(len(answers[0]["ids"]), 40)
        for answer in answers[1:]:
            self.assertEqual(answer["ids"], answers[0]["ids"])

    def test_seed_decides(self):
        def text(seed):
            return self.run_json("run", "shakespeare", "-p", "JULIET:", "-n", "60", "--temp", "1",
                                 "--seed", seed)["text"]
        self.assertEqual(text(7), text(7))
        self.assertNotEqual(text(7), text(8))

    def test_stop_string(self):
        free = self.run_json("run", "shakespeare", "-p", "ROMEO:", "-n", "80", "--temp", "0")
        stop = free["text"][20:24]
        cut = self.run_json("run", "shakespeare", "-p", "ROMEO:", "-n", "80", "--temp", "0",
                            "--stop", stop)
        self.assertEqual(cut["finish_reason"], "stop")
        self.assertEqual(cut["text"], free["text"][:free["text"].index(stop)])

    def test_stop_strings_are_taken_as_they_are(self):
        answer = self.run_json("run", "--stop", "[e]", "--stop", "zzz", "shakespeare", "-p", "ROMEO:",
                               "-n", "40", "--temp", "0")
        self.assertEqual(answer["finish_reason"], "length")

    def test_environment_goes_before_the_config_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
            config.write("[run]\nmax-tokens = 9\n")
            config.flush()
            answer = self.run_json("run", "shakespeare", "-p", "ROMEO:", "--config", config.name,
                                   environment={"NIBBLE_MAX_TOKENS": "4"})
        self.assertEqual(answer["generated_tokens"], 4)

    def test_prompt_from_file_and_standard_input(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("ROMEO:")
            file.flush()
            flags = ("-n", "20", "--temp", "0")
            by_file = self.run_json("run", "shakespeare", "-f", file.name, *flags)
            by_stdin = self.run_json("run", "shakespeare", *flags, stdin="ROMEO:")
            by_flag = self.run_json("run", "shakespeare", "-p", "ROMEO:", *flags)
        self.assertEqual(by_file["text"], by_flag["text"])
        self.assertEqual(by_stdin["text"], by_flag["text"])

    def test_environment_and_config(self):
        plain = self.run_json("run", "shakespeare", "-p", "ROMEO:", "-n", "9", "--temp", "0")
        by_environment = self.run_json("run", "shakespeare", "-p", "ROMEO:", "--temp", "0",
                                       environment={"NIBBLE_MAX_TOKENS": "9"})
        self.assertEqual(by_environment["text"], plain["text"])
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
            config.write('threads = 1\n[run]\nmax-tokens = 9\ntemp = 0\n')
            config.flush()
            by_config = self.run_json("run", "shakespeare", "-p", "ROMEO:", "--config", config.name)
        self.assertEqual(by_config["text"], plain["text"])

    def test_stories_give_the_expected_bytes(self):
        model = shared("models/stories260K/tinyllamas-stories-260k-f32.gguf")
        expected = shared("models/stories260K/expected_greedy_200.txt").read_text()
        answer = self.run_json("run", model, "--ids", "1", "-n", "200", "--temp", "0",
                               "--act", "f32", "--kv", "f32")
        self.assertEqual(answer["text"].strip(), expected.strip()[:len(answer["text"].strip())])
        self.assertGreater(len(answer["text"]), 440)

    def test_chat_model_answers(self):
        model = pulled("SmolLM2-135M-Instruct.Q4_1.gguf")
        answer = self.run_json("run", model, "-p", "What is the capital of France?", "--temp", "0",
                               "-n", "24", "--act", "f32")
        self.assertIn("Paris", answer["text"])


class Eval(CliTest):
    def test_logits_of_every_dense_architecture(self):
        for name in ("llama", "llama_rope_linear", "llama_rope_llama3", "llama_rope_yarn",
                     "llama_tied_bias", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2",
                     "smollm3"):
            folder = shared(f"models/hf-320/{name}")
            golden = json.loads((folder / "golden.json").read_text())
            with self.subTest(name=name), tempfile.TemporaryDirectory() as out:
                ids = pathlib.Path(out) / "ids.json"
                logits = pathlib.Path(out) / "logits.npy"
                ids.write_text(json.dumps(golden["ids"]))
                done = nibble("eval", folder, "--ids-file", ids, "--logits", logits,
                              "--act", "f32", "--kv", "f32", "--quiet")
                self.assertEqual(done.returncode, 0, done.stderr)
                shape, rows = read_npy(logits)
                self.assertEqual(shape, (320, 512))
                worst = 0.0
                for i, expected in enumerate(golden["next_logprob"]):
                    largest = max(rows[i])
                    total = math.fsum(math.exp(x - largest) for x in rows[i])
                    found = rows[i][golden["ids"][i + 1]] - largest - math.log(total)
                    worst = max(worst, abs(found - expected))
                self.assertLess(worst, 1e-4)

    def test_perplexity_of_named_windows(self):
        for name, file in (("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"),):
            model = pulled(file)
            golden = json.loads(shared(f"models/real/{name}.json").read_text())["ppl_llama"]
            found = self.run_json("eval", model, "--ids-file",
                                  shared(f"models/real/{name}.wiki_ids.json"), "--chunks",
                                  golden["chunks"], "--act", "f32", "--kv", "f32")
            self.assertEqual(found["tokens"], golden["n"])
            self.assertLess(abs(found["ppl"] / golden["ppl"] - 1), 1e-4)

    def test_gptq_protocol_counts(self):
        text = shared("corpora/tinyshakespeare/input.txt")
        found = self.run_json("eval", "shakespeare", "--text", text, "--protocol", "gptq", "--ctx",
                              "256", "--chunks", "4")
        self.assertEqual((found["tokens"], found["chunks"]), (4 * 255, 4))
        self.assertEqual(found["protocol"], "gptq")
        self.assertTrue(1 < found["ppl"] < 20)


class Bench(CliTest):
    def test_keys_and_counts(self):
        found = self.run_json("bench", "shakespeare", "-p", "32", "-n", "4", "--pg", "8,2", "-b",
                              "1,3", "-d", "0,16", "-r", "2", "--limits")
        for key in ("read_bandwidth", "cache_bandwidth", "int4_macs", "int8_macs", "f32_macs",
                    "barrier_s", "isa", "read_bandwidth_median", "int8_macs_median"):
            self.assertIn(key, found["limits"])
        self.assertEqual(len(found["rows"]), 2 * 2 * 3)
        self.assertEqual(set(found["rows"][0]),
                         {"test", "prompt", "gen", "batch", "depth", "act", "kv", "threads",
                          "tok_s", "tok_s_min", "tok_s_max", "latency_s", "bandwidth_fraction",
                          "bandwidth_fraction_best", "compute_fraction", "compute_fraction_best",
                          "alternations", "bandwidth_unsteady", "compute_unsteady"})
        self.assertIsInstance(found["parameters"], int)
        for row in found["rows"]:
            self.assertGreaterEqual(row["alternations"], 15)
            self.assertGreater(row["bandwidth_fraction"], 0)
            self.assertGreaterEqual(row["bandwidth_fraction_best"], row["bandwidth_fraction"])
            self.assertGreaterEqual(row["compute_fraction_best"], row["compute_fraction"])
            self.assertLessEqual(row["tok_s_min"], row["tok_s"])
            self.assertLessEqual(row["tok_s"], row["tok_s_max"])

    def test_random_shape_from_a_config(self):
        config = shared("models/hf-320/qwen3/config.json")
        found = self.run_json("bench", "--random", config, "--to", "q8_0", "-p", "8", "-n", "2",
                              "-r", "1")
        self.assertEqual([row["test"] for row in found["rows"]], ["pp", "tg"])
        self.assertIsNone(found["rows"][0]["bandwidth_fraction"])

    def test_every_output_has_the_same_rows(self):
        common = ("bench", "shakespeare", "-p", "8", "-n", "2", "-r", "1", "--kv", "f16,f32")
        tests = [("pp", "f16"), ("tg", "f16"), ("pp", "f32"), ("tg", "f32")]
        lines = nibble(*common, "-o", "jsonl").stdout.splitlines()
        self.assertEqual([(row["test"], row["kv"]) for row in map(json.loads, lines)], tests)
        head, *lines = nibble(*common, "-o", "csv").stdout.splitlines()
        keys = head.split(",")
        rows = [dict(zip(keys, line.split(","), strict=True)) for line in lines]
        self.assertEqual([(row["test"], row["kv"]) for row in rows], tests)
        self.assertEqual(rows[0]["bandwidth_fraction"], "")
        lines = nibble(*common, "-o", "md").stdout.splitlines()
        cells = [[cell.strip() for cell in line.split("|")] for line in lines]
        self.assertEqual([(row[1], row[5]) for row in cells[-4:]],
                         [("pp8", "f16"), ("tg2", "f16"), ("pp8", "f32"), ("tg2", "f32")])
        both = self.run_json("bench", "shakespeare", "-p", "8", "-n", "0", "-r", "1", "--kv-v", "f32")
        self.assertEqual(both["rows"][0]["kv"], "f16/f32")

    def test_attention_exactness(self):
        found = self.run_json("bench", "--attention-exactness")["attention_exactness"]
        self.assertEqual([entry["positions"] for entry in found], [1024, 8192, 32768])
        for entry in found:
            self.assertGreater(entry["max_error"], 0)
            self.assertLessEqual(entry["worst_ratio"], 1)
            self.assertEqual(entry["workspace_bytes"], found[0]["workspace_bytes"])

    def test_what_cannot_be_measured_is_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            config.write('{"model_type": "llama"')
            config.flush()
            self.assert_refused(nibble("bench", "--random", config.name), config.name)
        self.assert_refused(nibble("bench", "shakespeare", "--kv", "f16,"), "--kv")
        self.assert_refused(nibble("bench", "--random", "tinyllama-1.1b", "--to", "q9"), "q9")
        self.assert_refused(nibble("bench", "--random", "no-such-shape"), "tinyllama-1.1b")
        self.assert_refused(nibble("bench", "shakespeare", "-p", "400"), "400", "256")
        self.assert_refused(nibble("bench", "shakespeare", "--random", "llama-3-8b"), "both",
                            "shakespeare", "llama-3-8b")
        self.assert_refused(nibble("bench"), "MODEL", "--random")
        self.assert_refused(nibble("bench", "shakespeare", "-p", "0", "-n", "0"))
        self.assert_refused(nibble("bench", "shakespeare", "--to", "q8_0"), "--to", "--random")
        self.assert_refused(nibble("bench", "shakespeare", "--kv-memory", "much"), "--kv-memory",
                            "much")
        self.assert_refused(nibble("bench", "shakespeare", "-p", "200", "--kv-memory", "1KB"),
                            "--kv-memory", "200")
        self.assert_refused(nibble("bench", "shakespeare", "-p", "100", "-c", "64"), "--ctx", "64",
                            "100")
        self.assert_refused(nibble("bench", "shakespeare", "-b", "65537"), "65536")
        self.assert_refused(nibble("bench", "--attention-exactness", "--limits"), "--limits")
        known = nibble("bench", "--random", "tinyllama-1.1b", "--to", "q9").stderr.split("known:")[1]
        self.assertEqual(len(known.split()), len(set(known.split())))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            config.write('{"model_type": "llama", "num_local_experts": 8}')
            config.flush()
            self.assert_refused(nibble("bench", "--random", config.name), "num_local_experts")

    def test_context_and_memory_that_suffice(self):
        found = self.run_json("bench", "shakespeare", "-p", "64", "-n", "0", "-r", "1", "-c", "64",
                              "--kv-memory", "64MiB")
        self.assertEqual(found["rows"][0]["prompt"], 64)

    def test_rows_say_what_is_computed(self):
        for to, act in (("f16", "f32"), ("q8_0", "int8")):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
                config.write(json.dumps({
                    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
                    "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 96}))
                config.flush()
                found = self.run_json("bench", "--random", config.name, "--to", to, "-p", "8", "-n",
                                      "0", "-r", "1", "--act", "int8")
            self.assertEqual(found["rows"][0]["act"], act)

    def test_lists_in_a_config_file(self):
        def rows(text):
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(text)
                file.flush()
                found = self.run_json("--config", file.name, "bench", "shakespeare", "-r", "1")
            return [(r["prompt"], r["gen"], r["batch"], r["depth"], r["kv"]) for r in found["rows"]]

        tests = [(p, n, b, d, kv) for kv in ("f16", "f32") for d in (0, 16) for b in (1, 2)
                 for p, n in ((8, 0), (16, 0), (0, 2))]
        for text in ('[bench]\nprompt = "8,16"\ngen = 2\nbatch = "1,2"\ndepth = "0,16"\n'
                     'kv = "f16,f32"\n',
                     '[bench]\nprompt = [8, 16]\ngen = [2]\nbatch = [1, 2]\ndepth = [0, 16]\n'
                     'kv = ["f16", "f32"]\n',
                     'kv = "f16"\n[run]\nkv = "f32"\n[bench]\np = [8, 16]\nn = 2\nb = [1, 2]\n'
                     'd = [0, 16]\nkv = ["f16", "f32"]\n'):
            self.assertEqual(rows(text), tests, text)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_full_disk_is_named(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([BINARY, "bench", "shakespeare", "-p", "8", "-n", "0", "-r", "1"],
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=240)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output: No space left on device", done.stderr)



class Inspect(CliTest):
    def test_keys(self):
        found = self.run_json("inspect", "shakespeare", "--tensors", "--check")
        for key in ("architecture", "name", "parameters", "file_bytes", "weight_bytes",
                    "bits_per_weight", "context_length", "tokenizer", "chat_template", "tensors",
                    "kv_bytes_per_token", "card", "problems"):
            self.assertIn(key, found)
        self.assertEqual(found["architecture"], "gpt2")
        self.assertEqual(found["problems"], [])
        self.assertEqual(set(found["tensors"][0]), {"name", "type", "shape", "bytes"})

    def test_check_finds_a_nan(self):
        whole = bytearray(
            shared("models/stories260K/tinyllamas-stories-260k-f32.gguf").read_bytes())
        whole[-4:] = b"\x00\x00\xc0\x7f"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "nan.gguf"
            path.write_bytes(whole)
            done = nibble("inspect", path, "--check", "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        problems = json.loads(done.stdout)["problems"]
        self.assertEqual(len(problems), 1)
        self.assertIn("NaN", problems[0])


class Tokenize(CliTest):
    def test_both_ways(self):
        model = pulled("SmolLM2-135M-Instruct.Q4_1.gguf")
        text = "Hello  world, naïve 日本 🙂\n\tend"
        there = self.run_json("tokenize", model, "-p", text)
        back = self.run_json("tokenize", model, "--decode", "-p", json.dumps(there["ids"]))
        self.assertEqual(back["text"], text)
        self.assertEqual(set(there), {"ids", "pieces", "text"})

    def test_chat(self):
        model = pulled("SmolLM2-135M-Instruct.Q4_1.gguf")
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump([{"role": "system", "content": "Be brief."},
                       {"role": "user", "content": "Hi"}], file)
            file.flush()
            found = self.run_json("tokenize", model, "--chat", file.name,
                                  "--add-generation-prompt")
        self.assertEqual(found["text"], "<|im_start|>system\nBe brief.<|im_end|>\n"
                                        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(found["ids"][0], 1)


if __name__ == "__main__":
    unittest.main()
