"""What a server tells of itself: metrics, the trace of requests, the trace of steps."""

import json
import pathlib
import re
import subprocess
import tempfile
import threading
import unittest

from server_support import BINARY, PATIENCE, Server, ServerTest, wait_for, write_long_model

# What vLLM's own engine exposes (its docs, "Production metrics"), but for what only a GPU or a
# several-engine setup has.
VLLM = """num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries_total
prefix_cache_hits_total prompt_tokens_total generation_tokens_total request_success_total
num_preemptions_total time_to_first_token_seconds inter_token_latency_seconds
request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds
request_inference_time_seconds request_prefill_time_seconds request_decode_time_seconds
request_prompt_tokens request_generation_tokens request_max_num_generation_tokens
request_params_n request_params_max_tokens request_prefill_kv_computed_tokens
iteration_tokens_total prompt_tokens_cached_total cache_config_info""".split()
OURS = """step_time_seconds read_bytes_total read_bytes_per_step read_bytes_per_second kv_pages
preemptions_total read_bandwidth_bytes_per_second bandwidth_fraction""".split()


def samples(server):
    """{name{labels}: value} of /metrics, without the model's name."""
    out = {}
    for line in server.get("/metrics").body.decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            out[re.sub(r'model_name="[^"]*",?', "", name).replace("{}", "")] = float(value)
    return out


class Metrics(ServerTest):
    model = "long"
    # Pages for 384 tokens: three answers of 200 behind prompts of 6 do not fit together.
    arguments = ("--metrics-prefix", "vllm", "--ctx", 384, "--kv-memory", "200kB", "--max-seqs", 3,
                 "--read-bandwidth", "10GB")

    def test_names(self):
        self.assertEqual(self.server.complete("ROMEO:", max_tokens=4).status, 200)
        text = self.server.get("/metrics").body.decode()
        types = dict(re.findall(r"# TYPE vllm:(\S+) (\S+)", text))
        self.assertEqual(sorted(set(VLLM + OURS) - set(types)), [])
        for name, kind in types.items():
            present = re.findall(rf"^vllm:{name}(?:_bucket|_sum|_count)?\{{", text, re.M)
            if name not in ("requests_refused_total",):
                self.assertTrue(present, f"{name} is announced and has no value")
            self.assertIn(f"# HELP vllm:{name} ", text)
            self.assertIn(kind, ("counter", "gauge", "histogram"))

    def test_steps_and_bytes(self):
        before = samples(self.server)
        self.server.complete("ROMEO:", max_tokens=50, ignore_eos=True)
        after = samples(self.server)
        moved = {name: after[name] - before.get(name, 0) for name in after}
        self.assertEqual(moved["vllm:generation_tokens_total"], 50)
        self.assertEqual(moved["vllm:steps_total"], 50)
        self.assertEqual(moved["vllm:step_time_seconds_count"], 50)
        self.assertEqual(moved["vllm:iteration_tokens_total_sum"], 6 + 49)
        self.assertGreater(moved["vllm:step_time_seconds_sum"], 0)
        self.assertEqual(moved['vllm:read_bytes_total{kind="weights"}'],
                         50 * after["vllm:weight_bytes_per_step"])
        self.assertGreater(moved['vllm:read_bytes_total{kind="kv"}'], 0)
        self.assertEqual(after["vllm:read_bandwidth_bytes_per_second"], 1e10)
        pages = [after[f'vllm:kv_pages{{state="{s}"}}'] for s in ("used", "cached", "free")]
        self.assertEqual(sum(pages), self.server.status()["kv"]["pages_total"])
        wait_for(lambda: samples(self.server)["vllm:bandwidth_fraction"] > 0, "a sample")
        now = samples(self.server)
        self.assertAlmostEqual(now["vllm:bandwidth_fraction"],
                               now["vllm:read_bytes_per_second"] / 1e10, places=12)

    def test_preemptions_have_reasons(self):
        body = {"prompt": "ROMEO:", "max_tokens": 300, "ignore_eos": True, "n": 3}
        self.assertEqual(self.server.post("/v1/completions", body).status, 200)
        now = samples(self.server)
        self.assertGreater(now["vllm:num_preemptions_total"], 0)
        self.assertEqual(now['vllm:preemptions_total{reason="answer"}'] +
                         now['vllm:preemptions_total{reason="prompt"}'],
                         now["vllm:num_preemptions_total"])


class Traces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "m").mkdir()
        self.model = write_long_model(self.folder / "m")

    def serve(self, name):
        server = Server(self.model, "--trace-log", self.folder / f"{name}.log", "--trace-steps",
                        self.folder / f"{name}.steps")
        self.addCleanup(server.stop)
        return server

    def lines(self, name):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def test_requests_and_steps(self):
        server = self.serve("a")
        shared = "the same beginning of forty letters and more, "
        server.complete(shared + "ROMEO:", max_tokens=5, ignore_eos=True)
        server.complete(shared + "JULIET", max_tokens=7, ignore_eos=True, priority=2)
        server.complete("a" * 40, n=2, max_tokens=3, ignore_eos=True)
        client = server.raw()
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n"
                       b'{"prompt": "ROMEO:", "max_tokens": 30000, "ignore_eos":true}')
        wait_for(lambda: server.status()["engine"]["running"] == 1, "a running request")
        client.close()
        wait_for(server.idle, "an idle engine")
        self.assertEqual(server.stop(), 0)

        head, *requests = self.lines("a.log")
        self.assertEqual((head["nibble_trace"], head["block_tokens"]), (1, 32))
        self.assertEqual(head["config"]["max_rows"], 512)
        self.assertGreater(len(head["price"]["points"]), 1)
        self.assertGreater(head["config"]["pools"][0]["pages"], 0)
        self.assertEqual([r["output_toks"] for r in requests[:3]], [5, 7, 3])
        self.assertEqual([r["input_toks"] for r in requests], [52, 52, 40, 6])
        self.assertEqual([len(r["hash_ids"]) for r in requests], [1, 1, 1, 0])
        self.assertEqual(requests[0]["hash_ids"], requests[1]["hash_ids"])
        self.assertNotEqual(requests[0]["hash_ids"], requests[2]["hash_ids"])
        self.assertEqual((requests[1]["priority"], requests[1]["cached_toks"]), (2, 32))
        self.assertEqual((requests[2]["n"], requests[2]["all_output_toks"]), (2, 6))
        self.assertEqual([r["cancelled"] for r in requests], [False, False, False, True])
        for text in ("ROMEO", "same beginning"):
            self.assertNotIn(text, (self.folder / "a.log").read_text())

        steps = self.lines("a.steps")
        self.assertEqual([s["step"] for s in steps], list(range(1, len(steps) + 1)))
        for step in steps:
            self.assertGreater(step["seconds"], 0)
            self.assertGreaterEqual(step["rows"], step["prompt_rows"])
        self.assertEqual(sum(s["accepted"] for s in steps[:5]), 5)
        # Two choices of one request are two sequences.
        self.assertEqual(sum(s["admitted"] for s in steps), 5)

        # Another server's salt is another one.
        other = self.serve("b")
        other.complete(shared + "ROMEO:", max_tokens=5, ignore_eos=True)
        other.stop()
        self.assertNotEqual(self.lines("b.log")[1]["hash_ids"], requests[0]["hash_ids"])

    def test_a_trace_is_replayed(self):
        server = self.serve("c")
        for i in range(4):
            server.complete("a question of some letters, and a few more " + str(i), max_tokens=4,
                            ignore_eos=True)
        server.stop()
        done = subprocess.run([BINARY, "bench", str(self.model), "--serve-trace",
                               str(self.folder / "c.log"), "-o", "json", "--quiet"],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        row = json.loads(done.stdout)["rows"][0]
        self.assertEqual((row["finished"], row["prompt_tokens"], row["generated_tokens"]),
                         (4, 4 * 44, 4 * 4))
        self.assertEqual(row["prefix_hit_tokens"], 3 * 32)  # as the server's own requests had
        cut = self.folder / "cut.log"
        cut.write_text('{"nibble_trace": 1}\n')
        done = subprocess.run([BINARY, "bench", str(self.model), "--serve-trace", str(cut)],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 2)
        self.assertIn("line 1", done.stderr)

    def simulate(self, *arguments):
        return subprocess.run([BINARY, "simulate", "--json", "--quiet", *map(str, arguments)],
                              capture_output=True, text=True, timeout=PATIENCE)

    def test_a_simulation_plans_the_same_steps(self):
        """Requests of all kinds at once, with too few pages: the scheduler that served them and the
        one that simulates them make the same plans, step by step."""
        server = Server(self.model, "--trace-log", self.folder / "d.log", "--trace-steps",
                        self.folder / "d.steps", "-c", "512", "--kv-memory", "200KB",
                        "--max-seqs", "4", "--max-batch-tokens", "96")
        self.addCleanup(server.stop)
        shared = "what many of these prompts begin with, in a hundred letters " * 2
        texts = [shared + "and then", shared, "short", shared[::-1] + "x" * 90, "y" * 200]

        def ask(i):
            server.complete(texts[i % 5] + str(i % 7), max_tokens=5 + 37 * i % 150,
                            ignore_eos=True, n=1 + (i % 8 == 3), priority=i % 3)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
        for thread in threads:
            thread.start()
        client = server.raw()
        body = b'{"prompt": "ROMEO:", "max_tokens": 400, "ignore_eos":true}'
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                       % len(body) + body)
        wait_for(lambda: server.status()["engine"]["running"] > 0, "running requests")
        client.close()
        for thread in threads:
            thread.join()
        wait_for(server.idle, "an idle engine")
        self.assertEqual(server.stop(), 0)
        steps = self.lines("d.steps")
        done = self.simulate("--trace", self.folder / "d.log", "--check-steps",
                             self.folder / "d.steps")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual((report["steps_compared"], report["steps_different"]), (len(steps), 0))
        self.assertGreater(report["preemptions"], 0)
        self.assertEqual(report["preemptions"], sum(s["preempted"] for s in steps))
        self.assertGreater(report["prefix_hit_tokens"], 0)
        self.assertEqual(report["finished"], 24)

        # A log in which one step is another one is told, and where.
        changed = [dict(step) for step in steps]
        changed[5]["rows"] += 1
        (self.folder / "e.steps").write_text("".join(json.dumps(s) + "\n" for s in changed))
        done = self.simulate("--trace", self.folder / "d.log", "--check-steps",
                             self.folder / "e.steps")
        self.assertEqual(done.returncode, 1)
        self.assertIn("step 6, rows", done.stderr)
        # By its own times the same log is simulated at the server's prices.
        done = self.simulate("--trace", self.folder / "d.log")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("prices", json.loads(done.stdout)["source"])

    def test_files_that_cannot_be_written(self):
        done = subprocess.run([BINARY, "serve", str(self.model), "--port", "0", "--trace-log",
                               str(self.folder / "none" / "x")], capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot be written", done.stderr)


if __name__ == "__main__":
    unittest.main()
