"""nibble advise on the demonstration GPT: what is printed is what its own commands give."""

import html.parser
import json
import os
import pathlib
import shlex
import signal
import subprocess
import tempfile
import unittest
import urllib.request

from support import BINARY, SOURCE, CliTest, nibble

TEXT = SOURCE / "examples/shakespeare/input.txt"
KEYS = {"weights", "kv", "batch", "tok_s", "ttft_s", "tpot_s", "memory_bytes", "kld", "kld_se",
        "ppl", "source", "pareto"}


class Advise(CliTest):
    @classmethod
    def setUpClass(cls):
        if os.environ.get("NIBBLE_SANITIZED"):
            raise unittest.SkipTest("calibrating takes a sanitizer many minutes")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.environment = {"XDG_CACHE_HOME": folder.name, "TMPDIR": str(cls.folder / "tmp")}
        (cls.folder / "tmp").mkdir()
        # So short that all of it is measured long before a budget ends, however slow the machine.
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(TEXT.read_text()[:12000])
        # The first run calibrates by itself.
        done = cls.advise(cls, "--json", "--report", cls.folder / "report.html", "--write",
                          cls.folder / "out", "--budget-s", 300, timeout=900)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.messages = done.stderr
        cls.out = json.loads(done.stdout)

    def advise(self, *arguments, timeout=600):
        return nibble("advise", "shakespeare", "--text", self.text, "-t", 1, "--concurrency", 4,
                      "--context", 128, "--max-quality-loss", 0.05, *arguments,
                      environment=self.environment, timeout=timeout)

    def run_command(self, command, *more):
        arguments = shlex.split(command)
        self.assertEqual(arguments[0], "nibble")
        return nibble(*arguments[1:], *more, environment=self.environment, timeout=600)

    def test_rows(self):
        rows = self.out["rows"]
        self.assertGreaterEqual(len({row["weights"] for row in rows}), 5)
        self.assertGreaterEqual(len({row["kv"] for row in rows}), 5)
        for row in rows:
            self.assertLessEqual(KEYS, set(row))
            self.assertEqual(set(row["source"]), {"speed", "memory", "quality"})
            self.assertAlmostEqual(row["tok_s"] * row["tpot_s"], row["batch"])
        choice = self.out["choice"]
        self.assertTrue(choice["pareto"] or choice["kld"] is not None)
        self.assertLessEqual(choice["kld"] + 2 * choice["kld_se"], 0.05)
        self.assertEqual({k: v for k, v in choice.items() if k != "row"}, rows[choice["row"]])
        for kind in ("speed", "quality"):
            self.assertEqual(choice["source"][kind], "measured")

    def test_pareto_is_what_it_says(self):
        rows = [row for row in self.out["rows"] if row["kld"] is not None]
        key = lambda row: (row["tpot_s"] / row["batch"], row["ttft_s"], row["memory_bytes"],
                           row["kld"])
        for row in rows:
            beaten = any(all(a <= b for a, b in zip(key(other), key(row))) and key(other) != key(row)
                         for other in rows)
            self.assertEqual(row["pareto"], not beaten, row)

    def test_it_calibrates_and_announces_costs(self):
        self.assertIn("nibble calibrate --quick", self.messages)
        self.assertTrue(list((self.folder / "nibble/devices").iterdir()))
        self.assertRegex(self.messages, r"window 1 of 128 tokens: about [0-9.]+ s")
        self.assertRegex(self.messages, r"steps of 4 sequences and a prompt: about [0-9.]+ s")

    def test_nothing_is_left_behind(self):
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_the_page(self):
        text = (self.folder / "report.html").read_text()

        class Page(html.parser.HTMLParser):
            rows, charts, classes = 0, 0, set()

            def handle_starttag(self, tag, attributes):
                self.rows += tag == "tr"
                self.charts += tag == "svg"
                self.classes.add(dict(attributes).get("class"))

        page = Page()
        page.feed(text)
        self.assertEqual(page.rows, len(self.out["rows"]) + 1)
        self.assertGreaterEqual(page.charts, 1)
        self.assertLessEqual({"measured", "choice"}, page.classes)
        self.assertIn(self.out["serve_command"], text)

    # The divergence by `eval`, and the memory by the server itself.
    def test_the_commands_give_the_figures(self):
        choice = self.out["choice"]
        written = pathlib.Path(self.out["written"])
        self.assertTrue(written.exists())
        done = self.run_command(self.out["check_command"], "--json", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        measured = json.loads(done.stdout)
        self.assertAlmostEqual(measured["kld"]["mean"], choice["kld"], delta=1e-9)
        self.assertAlmostEqual(measured["kld"]["se"], choice["kld_se"], delta=1e-9)
        self.assertAlmostEqual(measured["ppl"], choice["ppl"], delta=1e-8 * choice["ppl"])
        self.assertEqual(self.served_bytes(), choice["memory_bytes"])
        card = json.loads(nibble("inspect", written, "--card", "--json").stdout)["card"]
        self.assertAlmostEqual(card["quality"]["kld"], choice["kld"], delta=1e-9)

    def served_bytes(self):
        command = shlex.split(self.out["serve_command"])
        server = subprocess.Popen([BINARY, *command[1:], "--port", "0"], stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, **self.environment})
        try:
            for line in server.stderr:
                if line.startswith("  page http://"):
                    break
            address = line.split()[1].rstrip("/")
            with urllib.request.urlopen(address + "/v1/models") as answer:
                self.assertTrue(json.load(answer)["data"])
            body = json.dumps({"prompt": "ROMEO:", "max_tokens": 4}).encode()
            request = urllib.request.Request(address + "/v1/completions", body,
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                self.assertTrue(json.load(answer)["choices"][0]["text"])
            with urllib.request.urlopen(address + "/status") as answer:
                return json.load(answer)["memory"]["predicted_bytes"]
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)

    def test_quantize_makes_the_same_file(self):
        # By memory, whose choice no clock has a part in.
        done = self.advise("--json", "--objective", "memory", "--budget-s", 60)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        command = shlex.split(out["quantize_command"])
        command[3] = str(self.folder / "made.gguf")
        done = nibble(*command[1:], "--json", "--quiet", environment=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        if out["choice"]["kv"] == "f16":
            self.assertAlmostEqual(json.loads(done.stdout)["kld"], out["choice"]["kld"], delta=1e-9)
        written = self.folder / "written.gguf"
        done = nibble("quantize", "shakespeare", written, "--to", self.out["choice"]["weights"],
                      "--no-quality", "--quiet", environment=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        tensors = lambda path: json.loads(
            nibble("inspect", path, "--tensors", "--json").stdout)["tensors"]
        self.assertEqual(tensors(written), tensors(self.out["written"]))

    def test_it_goes_on_where_it_stopped(self):
        done = self.advise("--json", "--budget-s", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        again = json.loads(done.stdout)
        before = {(row["weights"], row["kv"]): row for row in self.out["rows"]}
        kept = 0
        for row in again["rows"]:
            old = before[row["weights"], row["kv"]]
            if old["source"]["speed"] == "measured":
                self.assertEqual(row["tok_s"], old["tok_s"])
                kept += 1
        self.assertGreater(kept, 0)

    def test_stages_of_a_pipe(self):
        done = self.advise("--budget-s", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("predicted, after", done.stdout)
        self.assertIn("TTFT", done.stdout)
        self.assertIn("\nnibble serve ", done.stdout)
        self.assertNotIn("\033", done.stdout)

    def test_built_in_text_is_labelled(self):
        done = nibble("advise", "shakespeare", "-t", 1, "--context", 128, "--budget-s", 5,
                      "--weights", "q8_0", "--kv", "int8", environment=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not your text", done.stdout)

    def test_layers_are_kept_for_a_target(self):
        done = self.advise("--json", "--budget-s", 300, "--weights", "q8_0", "--kv", "int4",
                           "--kv-target", 0.0005)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        (report,) = out["kv_layers"]
        self.assertEqual(report["kv"], "int4")
        for layer in report["layers"]:
            self.assertGreater(layer["keys_kld"] + layer["values_kld"], 0)
        self.assertGreater(report["kld"], 0.0005)
        self.assertLessEqual(report["left_kld"], 0.0005)
        skipped = {tuple(row["kv_skip_layers"]) for row in out["rows"]}
        self.assertEqual(skipped, {(), tuple(report["skip_layers"])})

    def test_interrupted(self):
        folder = self.folder / "interrupted"
        folder.mkdir()
        environment = {**os.environ, **self.environment, "TMPDIR": str(folder)}
        text = self.folder / "other.txt"
        text.write_text(TEXT.read_text()[40000:140000])
        process = subprocess.Popen(
            [BINARY, "advise", "shakespeare", "--text", str(text), "-t", "1", "--context", "128",
             "--budget-s", "300"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment)
        for line in process.stdout:
            if "about" in line and "window 2" in line:
                break
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, error)
        self.assertIn("the same command goes on", error)
        self.assertIn("divergence", out)
        self.assertEqual(list(folder.iterdir()), [])

    def test_other_devices(self):
        done = nibble("advise", "shakespeare", "--text", TEXT, "-t", 1, "--context", 128,
                      "--device", "h100", "--emit", "vllm", "--budget-s", 40, "--json",
                      "--write", self.folder / "vllm", "--max-quality-loss", 1,
                      environment=self.environment, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertTrue(all(row["source"]["speed"] == "predicted" for row in out["rows"]))
        self.assertTrue(any(row["source"]["quality"] == "measured" for row in out["rows"]))
        self.assertTrue(out["serve_command"].startswith("vllm serve "), out["serve_command"])
        if out["written"]:
            config = json.loads((pathlib.Path(out["written"]) / "config.json").read_text())
            self.assertEqual(config["quantization_config"]["quant_method"], "compressed-tensors")


class WrongUse(CliTest):
    def refused(self, *arguments, words=()):
        self.assert_refused(nibble("advise", *arguments, timeout=120), *words)

    def test_wrong_use(self):
        for arguments, words in (
                (("smollm2-135n",), ("smollm2-135m",)),
                (("/no/such/file.gguf",), ("/no/such/file.gguf",)),
                (("shakespeare", "--device", "h1000"), ("h1000", "h100")),
                (("shakespeare", "--memory", "0"), ("--memory",)),
                (("shakespeare", "--memory", "-5GB"), ("--memory",)),
                (("shakespeare", "--memory", "lots"), ("--memory", "lots")),
                (("shakespeare", "--concurrency", "0"), ("--concurrency",)),
                (("shakespeare", "--concurrency", "-3"), ("--concurrency",)),
                (("shakespeare", "--context", "0"), ("--context",)),
                (("shakespeare", "--context", "100000"), ("--context", "100000")),
                (("shakespeare", "--budget-s", "0"), ("--budget-s",)),
                (("shakespeare", "--max-quality-loss", "-1"), ("--max-quality-loss",)),
                (("shakespeare", "--max-quality-loss", "nan"), ("--max-quality-loss",)),
                (("shakespeare", "--objective", "beauty"), ("--objective",)),
                (("shakespeare", "--weights", "q9_z"), ("q9_z",)),
                (("shakespeare", "--kv", "int5"), ("int5",)),
                (("shakespeare", "--emit", "vllm"), ("--device",)),
                (("shakespeare", "--text", "/no/such.txt"), ("/no/such.txt",))):
            with self.subTest(arguments=arguments):
                self.refused(*arguments, words=words)

    def test_the_report_is_told_before_the_work(self):
        done = nibble("advise", "shakespeare", "--report", "/no/such/folder/x.html", timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--report: /no/such/folder", done.stderr)

    def test_texts(self):
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            file.write(b"caf\xe9 " * 1000)
            file.flush()
            self.refused("shakespeare", "--text", file.name, words=("UTF-8", file.name))


if __name__ == "__main__":
    unittest.main()
