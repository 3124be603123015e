"""nibble simulate: traces in, a report out, and wrong use."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from support import BINARY, CliTest, nibble, shared

SERVER = ("--model", "llama-3-8b", "--device", "h100")
AZURE = "traces/azure2023/AzureLLMInferenceTrace_code.csv"
SUMMARIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")


class Simulate(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def vidur(self, rows, name="trace.csv"):
        return self.write(name, "arrived_at,num_prefill_tokens,num_decode_tokens\n"
                          + "".join(f"{t},{a},{b}\n" for t, a, b in rows))

    def simulate(self, trace, *arguments):
        return self.run_json("simulate", "--trace", trace, *arguments)

    def test_the_azure_trace_on_eight_h100(self):
        report = self.simulate(shared(AZURE), "--model", "llama-3-70b", "--device", "h100",
                               "--devices", "8")
        self.assertEqual((report["requests"], report["finished"], report["rejected"]),
                         (8819, 8819, 0))
        for key in SUMMARIES:
            summary = report[key]
            self.assertEqual(set(summary), {"mean", "p50", "p90", "p99"})
            self.assertLess(0, summary["p50"])
            self.assertLessEqual(summary["p50"], summary["p90"])
            self.assertLessEqual(summary["p90"], summary["p99"])
        rows = shared(AZURE).read_text().split()[2:]
        generated = sum(int(row.split(",")[2]) for row in rows if row.count(",") == 2)
        self.assertEqual(report["generated_tokens"], generated)
        self.assertAlmostEqual(report["throughput_tok_s"], generated / report["duration_s"], 6)
        # No request is faster than the weights' bytes allow: 141 GB over 8 × 2.68 TB/s a token.
        self.assertGreater(report["tpot_s"]["p50"], 141e9 / 8 / 2.68e12)
        self.assertTrue(report["source"].startswith("predicted"))

    def test_the_published_formats(self):
        for trace, format_name in ((AZURE, "azure"), ("traces/vidur/splitwise_code.csv", "vidur"),
                                   ("traces/mooncake/synthetic_trace.jsonl", "mooncake"),
                                   ("traces/servingsim/sharegpt_lengths_300_sps10.csv",
                                    "servingsim")):
            path = shared(trace)
            report = self.simulate(path, *SERVER, "--limit", 40)
            named = self.simulate(path, *SERVER, "--limit", 40, "--format", format_name)
            for key in ("finished", "duration_s", "steps", "generated_tokens"):
                self.assertEqual(report[key], named[key])
            self.assertEqual(report["requests"], 40)
        # Prompts of 40,000 tokens do not fit a context of 8,192: they are refused, not forgotten.
        done = nibble("simulate", "--trace", shared("traces/mooncake/synthetic_trace.jsonl"),
                      *SERVER, "--limit", 40)
        self.assertIn("line 1: the request has 40166 tokens and the context holds 8192",
                      done.stderr)

    def test_prefixes_of_mooncake_are_found(self):
        spec = self.write("wide.json", json.dumps(
            {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
             "num_key_value_heads": 2, "vocab_size": 1000, "intermediate_size": 4096,
             "max_position_embeddings": 262144}))
        path = shared("traces/mooncake/synthetic_trace.jsonl")
        arguments = ("--model", spec, "--device", "h100", "--limit", 600)
        found = self.simulate(path, *arguments)
        self.assertGreater(found["prefix_hit_tokens"], 0)
        without = self.simulate(path, *arguments, "--prefix-cache", "off")
        self.assertEqual(without["prefix_hit_tokens"], 0)
        self.assertEqual(without["finished"], found["finished"])
        self.assertGreater(without["rows"], found["rows"])

    def test_rates(self):
        rng = random.Random(1)
        trace = self.vidur([(i * 0.5, rng.randrange(50, 900), rng.randrange(5, 90))
                            for i in range(300)])
        slow = self.simulate(trace, *SERVER, "--rate", 0.5)
        fast = self.simulate(trace, *SERVER, "--rate", 50)
        self.assertLess(slow["ttft_s"]["mean"], fast["ttft_s"]["mean"])
        self.assertAlmostEqual(slow["duration_s"] / 600, 1, 1)
        for process in ("poisson", "gamma"):
            one = self.simulate(trace, *SERVER, "--rate", 20, "--arrivals", process, "--cv", 3)
            again = self.simulate(trace, *SERVER, "--rate", 20, "--arrivals", process, "--cv", 3)
            other = self.simulate(trace, *SERVER, "--rate", 20, "--arrivals", process, "--cv", 3,
                                  "--seed", 2)
            self.assertEqual(one["duration_s"], again["duration_s"])
            self.assertNotEqual(one["duration_s"], other["duration_s"])
            self.assertEqual(one["generated_tokens"], slow["generated_tokens"])

    def test_policies(self):
        rng = random.Random(2)
        trace = self.vidur([(i * 0.02, rng.randrange(50, 900), rng.randrange(5, 300))
                            for i in range(400)])
        reports = {policy: self.simulate(trace, *SERVER, "--max-seqs", 32, "--policy", policy)
                   for policy in ("nibble", "vllm", "static")}
        self.assertEqual({r["finished"] for r in reports.values()}, {400})
        # A bus that waits until it is full and until all have got off is later and slower.
        for policy in ("nibble", "vllm"):
            self.assertLess(reports[policy]["ttft_s"]["mean"],
                            reports["static"]["ttft_s"]["mean"])
            self.assertGreater(reports[policy]["throughput_tok_s"],
                               reports["static"]["throughput_tok_s"])
        # No budget of time: first tokens come sooner, others wait for prompts beside them.
        self.assertLessEqual(reports["vllm"]["steps"], reports["nibble"]["steps"])

    def test_capacity(self):
        rng = random.Random(3)
        trace = self.vidur([(0, rng.randrange(100, 2000), rng.randrange(20, 200))
                            for _ in range(300)])
        found = self.simulate(trace, *SERVER, "--arrivals", "poisson", "--slo-ttft-ms", 500,
                              "--slo-tpot-ms", 25)
        self.assertGreater(found["capacity_rate"], 0)
        self.assertTrue(found["bounded"])
        for trial in found["trials"]:
            kept = trial["ttft_s"]["p99"] <= 0.5 and trial["tpot_s"]["p99"] <= 0.025
            self.assertEqual(trial["holds"], kept)
        best = max(t["rate"] for t in found["trials"] if t["holds"])
        self.assertEqual(found["capacity_rate"], best)
        strict = self.simulate(trace, *SERVER, "--arrivals", "poisson", "--slo-tpot-ms", 1)
        self.assertEqual(strict["capacity_rate"], 0)  # 15 GB take 5.6 ms

    def test_events_and_requests(self):
        trace = self.vidur([(0, 700, 20), (0.01, 300, 40), (0.02, 50, 1)])
        events, requests = self.folder / "e.json", self.folder / "r.jsonl"
        report = self.simulate(trace, *SERVER, "--events", events, "--requests", requests)
        written = json.loads(events.read_text())["traceEvents"]
        steps = [e for e in written if e["ph"] == "X"]
        self.assertEqual(len(steps), report["steps"])
        for before, after in zip(steps, steps[1:]):
            self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 0.002)
        self.assertEqual(sum(e["args"]["rows"] for e in steps), report["rows"])
        for name in ("wait", "prompt", "answer"):
            spans = {ph: {e["id"]: e["ts"] for e in written
                          if e["ph"] == ph and e["name"] == name} for ph in "be"}
            self.assertEqual(set(spans["b"]), {0, 1, 2})
            for one in range(3):
                self.assertLessEqual(spans["b"][one], spans["e"][one])
        lines = [json.loads(line) for line in requests.read_text().splitlines()]
        self.assertEqual(sorted(line["request"] for line in lines), [0, 1, 2])
        mean = sum(line["ttft_s"] for line in lines) / 3
        self.assertAlmostEqual(mean, report["ttft_s"]["mean"], 6)

    def test_the_table(self):
        trace = self.vidur([(0, 700, 20), (0.01, 300, 40)])
        done = nibble("simulate", "--trace", trace, *SERVER)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("2 finished of 2", "first token, ms", "not modelled", "llama-3-8b on h100"):
            self.assertIn(words, done.stdout)

    def test_wrong_use(self):
        trace = self.vidur([(0, 700, 20)])
        refuse = lambda *arguments: nibble("simulate", "--trace", *arguments)
        self.assert_refused(refuse(trace), "--model")
        self.assert_refused(refuse(trace, "--model", "llama-3-9b", "--device", "h100"),
                            "llama-3-8b")
        self.assert_refused(refuse(trace, "--model", "llama-3-8b", "--device", "h101"), "h100")
        self.assert_refused(refuse(trace, "--model", "70b", "--device", "rtx-4090"),
                            "leave no room", "--devices")
        self.assert_refused(refuse(trace, *SERVER, "--kv-memory", "1KB"), "holds no page")
        self.assert_refused(refuse(trace, *SERVER, "--arrivals", "poisson"), "--rate")
        self.assert_refused(refuse(trace, *SERVER, "--weights", "bf16,int8"), "--weights")
        self.assert_refused(refuse(trace, *SERVER, "--nominal", "--true"), "--nominal")
        self.assert_refused(refuse(trace, *SERVER, "-c", 100000), "100000", "8192")
        self.assert_refused(refuse(self.folder / "none.csv", *SERVER), "none.csv")
        self.assert_refused(refuse(self.folder, *SERVER), "expected a file")
        broken = self.vidur([(0, 700, 20), (1, "many", 3)], "broken.csv")
        self.assert_refused(refuse(broken, *SERVER), "broken.csv", "line 3", "'many'",
                            "expected a whole number")
        long_ones = self.vidur([(0, 9000, 20)], "long.csv")
        self.assert_refused(refuse(long_ones, *SERVER), "line 2", "9020", "8192")
        self.assert_refused(refuse(trace, *SERVER, "--check-steps", trace), "queued_order")
        before = trace.read_bytes()
        self.assert_refused(refuse(trace, *SERVER, "--events", trace), "--events", "--trace")
        self.assertEqual(trace.read_bytes(), before)

    def test_memory_does_not_grow_with_the_trace(self):
        def peak(count):
            rng = random.Random(4)
            path = self.vidur(((f"{i * 0.004:.3f}", rng.randrange(8, 120), rng.randrange(1, 6))
                               for i in range(count)), f"{count}.csv")
            process = subprocess.Popen([BINARY, "simulate", "--trace", str(path), *SERVER,
                                        "--json", "--quiet"], stdout=subprocess.PIPE)
            out = process.stdout.read()
            process.stdout.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = 0  # it has been waited for
            self.assertEqual(status, 0)
            self.assertEqual(json.loads(out)["finished"], count)
            return usage.ru_maxrss * 1024
        short, long = (500, 4000) if os.environ.get("NIBBLE_SANITIZED") else (5000, 60000)
        # A request that stayed would take a few hundred bytes.
        self.assertLess(peak(long) - peak(short), (long - short) * 60)


if __name__ == "__main__":
    unittest.main()
