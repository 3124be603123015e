"""bench/compare.py with a peer whose tools are scripts that print what llama.cpp's print."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import BINARY, SOURCE

BENCH = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
echo 'ggml: some chatter'
echo '[ { "n_prompt": 8, "avg_ts": 123.5, "stddev_ts": 0.0 } ]'
"""
BATCHED = """#!/bin/sh
if [ "$3" = "" ]; then echo '-fa, --flash-attn (auto|on|off|0|1)'; exit 0; fi
echo "batched $@" >> "$(dirname "$0")/calls"
case "$*" in *"-npl 1 "*) b=1; rate=55.5 ;; *) b=2; rate=77.25 ;; esac
echo '|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |'
echo '|-------|--------|------|--------|----------|----------|----------|----------|'
echo "|     4 |      3 |    $b |     14 |    0.100 |    80.00 |    0.080 |    $rate |"
"""
PERPLEXITY = """#!/bin/sh
echo 'Final estimate: PPL over 2 chunks for n_ctx=512 = 24.3870 +/- 0.51'
"""


class Compare(unittest.TestCase):
    def run_compare(self, *words, bench=BENCH):
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder)
            for name, text in (("llama-bench", bench), ("llama-batched-bench", BATCHED),
                               ("llama-perplexity", PERPLEXITY)):
                (tools / name).write_text(text)
                (tools / name).chmod(0o755)
            done = subprocess.run(
                [sys.executable, SOURCE / "bench/compare.py", "--nibble", BINARY, "--peer-bench",
                 tools, "--peer-repack", "--rounds", "2", "--prompt", "8", "--generate", "4",
                 "--depth", "4", "--batch", "2", "--batch-steps", "3", "--windows", "1", *words],
                capture_output=True, text=True, timeout=240, check=False)
            calls = (tools / "calls").read_text() if (tools / "calls").exists() else ""
        return done, calls

    def model(self):
        return SOURCE / "models/shakespeare"

    def test_speeds_in_turn_with_the_best_settings(self):
        done, calls = self.run_compare(self.model(), "--no-perplexity", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        for test, rate in (("prefill", 123.5), ("generation", 55.5), ("batch", 77.25)):
            row = found[test]
            self.assertEqual(row["peer_tok_s"], rate)
            self.assertEqual(len(row["rounds"]), 2)
            self.assertGreater(row["nibble_tok_s"], 0)
            self.assertGreaterEqual(len(row["peer_tried"]), 2)
            self.assertIn(row["ratio"], [sum(r["nibble"] / r["peer"] for r in row["rounds"]) / 2])
        self.assertIn("-rtr 1", calls)
        self.assertIn("-fa off", calls)
        self.assertIn("-npp 4 -ntg 3 -npl 2", calls)
        self.assertIn("-npp 4 -ntg 4 -npl 1", calls)  # as deep as nibble

    def test_table_and_a_peer_that_fails(self):
        done, _ = self.run_compare(self.model(), "--no-perplexity", "--tests", "prefill",
                                   "--peer-name", "fake")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| prefill |", done.stdout)
        self.assertIn("beside fake", done.stdout)
        done, _ = self.run_compare(self.model(), "--tests", "prefill",
                                   bench="#!/bin/sh\necho no such model >&2\nexit 1\n")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such model", done.stderr)

    def test_perplexity_is_the_estimate_and_not_the_window(self):
        sys.path.insert(0, str(SOURCE / "bench"))
        from peer_tools import ToolsPeer
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder)
            for name, text in (("llama-perplexity", PERPLEXITY), ("llama-batched-bench", BATCHED)):
                (tools / name).write_text(text)
                (tools / name).chmod(0o755)
            peer = ToolsPeer(argparse.Namespace(peer_bench=tools, peer_name=None, peer_repack=False,
                                                model="m.gguf", text="t.txt"))
            self.assertEqual(peer.perplexity(2, 512), 24.387)


if __name__ == "__main__":
    unittest.main()
