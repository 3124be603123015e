"""bench --serve-trace, --shared-prefix, --interference: whole engines, measured."""

import json
import pathlib
import tempfile
import unittest

from support import CliTest, nibble

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
          "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 2, "vocab_size": 96, "max_position_embeddings": 4096,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
LENGTHS = [(20, 9), (31, 4), (5, 17), (64, 1), (12, 12), (33, 3), (1, 8)]


class BenchServe(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.config = self.write("config.json", json.dumps(CONFIG))

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def bench(self, *arguments):
        return ["bench", "--random", self.config, "--to", "q8_0", *arguments]

    def vidur(self, lengths):
        lines = [f"{i * 0.001},{a},{b}" for i, (a, b) in enumerate(lengths)]
        return self.write("trace.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n"
                          + "\n".join(lines))

    def check_summary(self, row, key):
        summary = row[key]
        self.assertEqual(set(summary), {"mean", "p50", "p90", "p99"}, key)
        self.assertLess(0, summary["p50"])
        self.assertLessEqual(summary["p50"], summary["p90"])
        self.assertLessEqual(summary["p90"], summary["p99"])

    def test_a_trace_is_served_both_ways(self):
        # Two that can never be served: no prompt, and longer than the context.
        trace = self.vidur(LENGTHS + [(0, 5), (4000, 97)])
        rows = self.run_json(*self.bench("--serve-trace", trace, "--max-seqs", 3))["rows"]
        self.assertEqual([row["batching"] for row in rows], ["continuous", "static"])
        for row in rows:
            self.assertEqual((row["requests"], row["finished"], row["rejected"]), (9, 7, 2))
            self.assertEqual(row["prompt_tokens"], sum(a for a, _ in LENGTHS))
            self.assertEqual(row["generated_tokens"], sum(b for _, b in LENGTHS))
            self.assertEqual(row["source"], "measured")
            for key in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
                self.check_summary(row, key)
            self.assertGreater(row["throughput_tok_s"], 0)
            self.assertGreater(row["kv_peak_pages"], 0)
        # Buses of 3, 3 and 1: as many steps as the longest answer of each needs, at least.
        self.assertGreaterEqual(rows[1]["steps"], 17 + 12 + 8)

    def test_formats_limits_and_outputs(self):
        mooncake = self.write("trace.jsonl", "".join(
            json.dumps({"timestamp": i, "input_length": 1030, "output_length": 2,
                        "hash_ids": [1, 2, 10 + i]}) + "\n" for i in range(5)))
        done = self.run_json(*self.bench("--serve-trace", mooncake, "--batching", "continuous",
                                         "--limit", 4, "--concurrency", 1, "--format", "mooncake"))
        (row,) = done["rows"]
        self.assertEqual(row["finished"], 4)
        self.assertEqual(row["prefix_hit_tokens"], 3 * 1024)
        trace = self.vidur(LENGTHS)
        lines = nibble(*self.bench("--serve-trace", trace, "-o", "csv", "--rate", 2000))
        self.assertEqual(lines.returncode, 0, lines.stderr)
        header, *values = lines.stdout.splitlines()
        self.assertIn("ttft_s_p90", header.split(","))
        self.assertEqual([len(line.split(",")) for line in values], [len(header.split(","))] * 2)
        table = nibble(*self.bench("--serve-trace", trace, "--max-step-ms", 5,
                                   "--max-batch-tokens", 16)).stdout.splitlines()
        self.assertEqual(len({line.count("|") for line in table if line.startswith("|")}), 1)

    def test_a_shared_prefix_is_computed_once(self):
        (row,) = self.run_json(*self.bench("--shared-prefix", 1024, "--limit", 6))["rows"]
        self.assertEqual((row["finished"], row["prefix_hit_tokens"]), (6, 5 * 1024))
        self.assertGreater(row["ttft_ratio"], 0)
        (row,) = self.run_json(*self.bench("--shared-prefix", 1024, "--limit", 3,
                                           "--prefix-cache", "off"))["rows"]
        self.assertEqual(row["prefix_hit_tokens"], 0)

    def test_a_prompt_beside_answers(self):
        rows = self.run_json(*self.bench("--interference", 1500, "--answers", 2))["rows"]
        self.assertEqual([row["max_step_ms"] for row in rows], [None, 0])
        for row in rows:
            self.check_summary(row, "alone_itl_s")
            self.check_summary(row, "during_itl_s")
            self.assertGreater(row["prompt_ttft_s"], 0)
        # 512 rows a step without a budget: 3 steps.
        self.assertLessEqual(rows[1]["tokens_during"], 6)
        self.assertGreater(rows[0]["tokens_during"], rows[1]["tokens_during"])

    def test_refusals(self):
        trace = self.vidur([(3, "x")])
        self.assert_refused(nibble(*self.bench("--serve-trace", trace)), "trace.csv", "line 2",
                            "num_decode_tokens", "'x'")
        self.assert_refused(nibble(*self.bench("--serve-trace", trace, "--format", "azure")),
                            "line 1", "TIMESTAMP")
        self.assert_refused(nibble(*self.bench("--serve-trace", self.folder / "none.csv")),
                            "none.csv")
        self.assert_refused(nibble(*self.bench("--serve-trace", trace, "--rate", 0)), "rate")
        self.assert_refused(nibble(*self.bench("--serve-trace", trace, "--rate", "nan")), "rate",
                            "nan")
        self.assert_refused(nibble(*self.bench("--serve-trace", trace, "--max-step-ms", "nan")),
                            "--max-step-ms", "nan")
        self.assert_refused(nibble(*self.bench("--serve-trace", trace, "--limits")), "--limits")
        self.assert_refused(nibble(*self.bench("--shared-prefix", 512, "--attention-exactness")),
                            "--attention-exactness")
        self.assert_refused(nibble(*self.bench("--serve-trace", trace, "--format", "xml")), "xml")
        self.assert_refused(nibble(*self.bench("--rate", 2)), "serve-trace")
        self.assert_refused(nibble(*self.bench("--shared-prefix", 700)), "700", "512")
        self.assert_refused(nibble(*self.bench("--interference", 5000)), "5000", "4096")
        self.assert_refused(nibble(*self.bench("--interference", 100, "--serve-trace", trace)))
        self.assert_refused(nibble(*self.bench("--interference", 100, "--answers", 16)), "17", "16")
        # An answer that is over before it was timed ends the wait for it.
        self.assert_refused(nibble(*self.bench("--interference", 20, "-c", 40)), "40")
        self.assert_refused(nibble(*self.bench("--shared-prefix", 512, "-c", 256, "--limit", 2)),
                            "512", "256")


if __name__ == "__main__":
    unittest.main()
