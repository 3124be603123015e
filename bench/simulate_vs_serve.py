#!/usr/bin/env python3
"""Holds the simulator to a real server on this machine, in one run: starts `nibble serve` with
--trace-log, asks it the requests of a trace at their times, then simulates that log at the prices
of steps that the server measured when it started. Python's standard library only.

    bench/simulate_vs_serve.py --nibble build/release/bin/nibble --model smollm2-135m \\
        --trace trace.csv --limit 40 --rate 2
"""

import argparse
import asyncio
import csv
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import serve

METRICS = ("ttft", "tpot", "e2e")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--nibble", default="build/release/bin/nibble")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--trace", default="", help="CSV with lengths in one of the forms of "
                        "nibble simulate; none: random ones")
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--rate", type=float, default=2, help="requests a second, a Poisson process")
    parser.add_argument("--most-input", type=int, default=512, help="longer prompts are cut")
    parser.add_argument("--most-output", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", nargs="*", default=[], help="flags of nibble serve")
    parser.add_argument("--simulate", nargs="*", default=[],
                        help="flags of nibble simulate, such as --model X --device here")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="keep the logs there")
    return parser.parse_args()


def lengths(options):
    rng = random.Random(options.seed)
    if not options.trace:
        return [(int(rng.lognormvariate(4.5, 0.9)) + 4, int(rng.lognormvariate(3, 0.7)) + 1)
                for _ in range(options.limit)]
    rows = list(csv.DictReader(open(options.trace, encoding="utf-8")))[:options.limit]
    names = next(n for n in (("ContextTokens", "GeneratedTokens"),
                             ("num_prefill_tokens", "num_decode_tokens"),
                             ("input_toks", "output_toks")) if n[0] in rows[0])
    return [(int(r[names[0]]), int(r[names[1]])) for r in rows]


class Server:
    def __init__(self, options, log):
        self.process = subprocess.Popen(
            [options.nibble, "serve", options.model, "--port", "0", "--trace-log", log,
             "--trace-steps", f"{log}.steps", *options.serve], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"listening on (https?://\S+:\d+)", line):
                self.url = found.group(1)
                break
        else:
            sys.exit("no server:\n" + "".join(said))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health") as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait()


async def ask_all(url, asked, rate, seed):
    """Outcomes with their times, as bench/serve.py's client sees them."""
    options = argparse.Namespace(url=url, insecure=False, seed=seed, prefix_len=0, prompt="",
                                 input_len=1, output_len=1, model="", api_key="",
                                 endpoint="completions")
    client = serve.Client(options)
    rng = random.Random(seed + 1)
    times, now = [], 0.0
    for _ in asked:
        times.append(now)
        now += rng.expovariate(rate)
    begin = time.perf_counter()

    async def one(at, prompt, output):
        ids = [rng.randrange(1000, 8000) for _ in range(prompt)]
        await asyncio.sleep(max(0, begin + at - time.perf_counter()))
        body = json.dumps({"prompt": ids, "max_tokens": output, "temperature": 0, "stream": True,
                           "ignore_eos": True, "stream_options": {"include_usage": True}}).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {client.host}\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        return await client.ask(head + body)
    outcomes = await asyncio.gather(*(one(at, *lens) for at, lens in zip(times, asked)))
    return outcomes, time.perf_counter() - begin


def read_log(path):
    head, *lines = (json.loads(line) for line in pathlib.Path(path).read_text().splitlines())
    out = []
    for r in lines:
        gaps = max(1, r["output_toks"] - 1)
        out.append({"ttft": r["ttft_s"], "e2e": r["e2e_s"],
                    "tpot": (r["e2e_s"] - r["ttft_s"]) / gaps, "tokens": r["output_toks"],
                    "end": r["arrival_time_ns"] / 1e9 + r["e2e_s"],
                    "begin": r["arrival_time_ns"] / 1e9})
    return head, out


def simulated(options, log, folder):
    out = folder / "requests.jsonl"
    done = subprocess.run([options.nibble, "simulate", "--trace", log, "--requests", out, "--json",
                           "--quiet", *options.simulate], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    times = [{"ttft": r["ttft_s"], "e2e": r["e2e_s"],
              "tpot": (r["e2e_s"] - r["ttft_s"]) / max(1, r["output_toks"] - 1)} for r in rows]
    return times, json.loads(done.stdout)


def main():
    options = parse_arguments()
    asked = [(max(1, min(a, options.most_input)), max(1, min(b, options.most_output)))
             for a, b in lengths(options)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary)
        log = folder / "served.jsonl"
        server = Server(options, log)
        try:
            outcomes, _ = asyncio.run(ask_all(server.url, asked, options.rate, options.seed))
        finally:
            server.stop()
        failed = [o for o in outcomes if o.error]
        if failed:
            sys.exit(f"{len(failed)} requests failed: {failed[0].error}")
        _, served = read_log(log)
        predicted, report = simulated(options, log, folder)
        steps = [json.loads(line) for line in open(f"{log}.steps", encoding="utf-8")]
        took = sum(s["seconds"] for s in steps)
        priced = sum(s["price_s"] for s in steps)
    print(f"{len(served)} requests at {options.rate}/s; {report['source']}\n")
    print(f"{'':<22}{'served':>12}{'simulated':>12}{'error':>9}{'bound':>8}")
    rows = []
    for name, statistic, bound in (("mean", statistics.fmean, 10), ("p99", serve.p99, 20)):
        for m in METRICS:
            rows.append((f"{m} {name}, ms", 1e3 * statistic([s[m] for s in served]),
                         1e3 * statistic([p[m] for p in predicted]), bound))
    duration = max(s["end"] for s in served) - min(s["begin"] for s in served)
    rows.append(("throughput, tokens/s", sum(s["tokens"] for s in served) / duration,
                 report["throughput_tok_s"], 10))
    kept = True
    for name, a, b, bound in rows:
        error = 100 * (b / a - 1)
        within = abs(error) <= bound
        kept &= within
        print(f"{name:<22}{a:>12.2f}{b:>12.2f}{error:>+8.1f}%{bound:>7}%{'' if within else '  *'}")
    print(f"\n{len(steps)} steps took {took:.2f} s where their prices say {priced:.2f} s "
          f"({100 * (priced / took - 1):+.1f}%)")
    ttft = statistics.fmean([o.ttft for o in outcomes if o.ttft is not None])
    print(f"between the server's clock and the client's: "
          f"{1e3 * (ttft - statistics.fmean([s['ttft'] for s in served])):.2f} ms of the mean TTFT")
    print("all within their bounds" if kept else "* outside of its bound")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
