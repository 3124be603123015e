#!/usr/bin/env python3
"""Holds the simulator to what a vLLM server measured. The first half of its requests calibrates a
device (three numbers: how much of the data sheet's bandwidth and arithmetic is reached, and what a
step costs beside them); the second half is predicted and compared. Python's standard library only.

    bench/simulate_vs_vllm.py --nibble build/release/bin/nibble \\
        --trace vllm_measured_RTX4090_Llama-3.1-8B.jsonl --model llama-3-8b --device rtx-4090
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import serve

METRICS = ("ttft", "tpot", "e2e")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--nibble", default="build/release/bin/nibble")
    parser.add_argument("--trace", required=True,
                        help="JSON lines with input_toks, output_toks, arrival_time, queued_ts, "
                             "first_token_ts and last_token_ts")
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--device", default="data/devices/rtx-4090.json", help="a device file")
    parser.add_argument("--max-seqs", type=int, default=256)
    parser.add_argument("--max-batch-tokens", type=int, default=2048)
    parser.add_argument("--save", default="", metavar="FILE", help="the calibrated device")
    return parser.parse_args()


def measured(path):
    requests = [json.loads(line) for line in open(path, encoding="utf-8")]
    # The clock of arrivals is another one than that of the server; queued_ts is on the server's.
    requests.sort(key=lambda r: r["queued_ts"])
    begin = requests[0]["queued_ts"]
    out = []
    for r in requests:
        decode = r["last_token_ts"] - r["first_token_ts"]
        out.append({"arrival": r["queued_ts"] - begin, "input": r["input_toks"],
                    "output": r["output_toks"], "end": r["last_token_ts"] - begin,
                    "ttft": r["first_token_ts"] - r["queued_ts"],
                    "tpot": decode / max(1, r["output_toks"] - 1),
                    "e2e": r["last_token_ts"] - r["queued_ts"]})
    return out


class Simulator:
    def __init__(self, options, requests, folder):
        self.options, self.folder = options, folder
        self.base = json.loads(pathlib.Path(options.device).read_text())
        self.trace = folder / "trace.jsonl"
        self.trace.write_text("".join(json.dumps(
            {"arrival_time": r["arrival"], "input_toks": r["input"], "output_toks": r["output"]})
            + "\n" for r in requests))
        self.count = len(requests)

    def device(self, logs):
        bandwidth, arithmetic, overhead = (math.exp(x) for x in logs)
        spec = dict(self.base, bandwidth=self.base["bandwidth"] * bandwidth,
                    bandwidth_efficiency=1, overhead_s=overhead,
                    bf16_flops=self.base["bf16_flops"] * arithmetic)
        spec["sources"] = {"bandwidth": "fitted", "bandwidth_efficiency": "1: fitted",
                           "bf16_flops": "fitted", "overhead_s": "fitted"}
        return spec

    def run(self, logs):
        """ttft, tpot and e2e of every request."""
        device, out = self.folder / "device.json", self.folder / "out.jsonl"
        device.write_text(json.dumps(self.device(logs)))
        done = subprocess.run(
            [self.options.nibble, "simulate", "--trace", self.trace, "--model",
             self.options.model, "--device", device, "--policy", "vllm", "--max-seqs",
             str(self.options.max_seqs), "--max-batch-tokens",
             str(self.options.max_batch_tokens), "--requests", out, "--json", "--quiet"],
            capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        times = [None] * self.count
        for line in out.read_text().splitlines():
            r = json.loads(line)
            if r["rejected"]:
                sys.exit(f"request {r['request']} was refused")
            times[r["request"]] = {
                "ttft": r["ttft_s"], "e2e": r["e2e_s"],
                "tpot": (r["e2e_s"] - r["ttft_s"]) / max(1, r["output_toks"] - 1)}
        return times, json.loads(done.stdout)


def loss(predicted, wanted):
    """Squared errors of logarithms, so that factors count and not seconds."""
    total = 0
    for a, b in zip(predicted, wanted):
        total += sum(math.log(max(a[m], 1e-6) / max(b[m], 1e-6)) ** 2 for m in METRICS)
    return total / len(wanted)


def minimise(function, start, step, rounds):
    """Nelder and Mead (1965), without what three variables do not need."""
    points = [(function(start), start)]
    for i in range(len(start)):
        moved = [x + step * (i == j) for j, x in enumerate(start)]
        points.append((function(moved), moved))
    for _ in range(rounds):
        points.sort(key=lambda p: p[0])
        centre = [sum(p[1][i] for p in points[:-1]) / (len(points) - 1)
                  for i in range(len(start))]

        def toward(factor):
            at = [c + factor * (w - c) for c, w in zip(centre, points[-1][1])]
            return function(at), at
        tried = toward(-1)
        if tried[0] < points[0][0]:
            tried = min(tried, toward(-2), key=lambda p: p[0])
        elif tried[0] >= points[-2][0]:
            tried = min(tried, toward(0.5), key=lambda p: p[0])
            if tried[0] >= points[-1][0]:
                best = points[0][1]
                points = [points[0]] + [
                    (function(half), half) for half in
                    ([(a + b) / 2 for a, b in zip(best, p[1])] for p in points[1:])]
                continue
        points[-1] = tried
    return min(points, key=lambda p: p[0])


def compare(title, predicted, wanted):
    print(f"\n{title}\n{'':<8}{'measured mean':>15}{'simulated':>12}{'error':>9}"
          f"{'measured p99':>15}{'simulated':>12}{'error':>9}{'median |error| of a request':>30}")
    for m in METRICS:
        unit = 1000 if m != "e2e" else 1
        row = f"{m + (' ms' if unit == 1000 else ' s'):<8}"
        for statistic in (statistics.fmean, serve.p99):
            a, b = statistic([w[m] for w in wanted]), statistic([p[m] for p in predicted])
            row += f"{a * unit:>15.2f}{b * unit:>12.2f}{100 * (b / a - 1):>+8.1f}%"
        each = sorted(abs(p[m] / w[m] - 1) for p, w in zip(predicted, wanted))
        print(row + f"{100 * each[len(each) // 2]:>29.1f}%")


def main():
    options = parse_arguments()
    requests = measured(options.trace)
    half = len(requests) // 2
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(options, requests, pathlib.Path(folder))
        start = [math.log(x) for x in (simulator.base.get("bandwidth_efficiency", 1), 0.7, 2e-3)]
        error, best = minimise(lambda logs: loss(simulator.run(logs)[0][:half], requests[:half]),
                               start, 0.3, 60)
        spec = simulator.device(best)
        predicted, report = simulator.run(best)
    print(f"{len(requests)} requests; fitted on the first {half}: "
          f"{spec['bandwidth'] / 1e9:.0f} GB/s, {spec['bf16_flops'] / 1e12:.1f} TFLOP/s, "
          f"{spec['overhead_s'] * 1e3:.2f} ms a step; root of the mean squared log error "
          f"{math.sqrt(error / len(METRICS)):.3f}")
    compare(f"first {half}, fitted", predicted[:half], requests[:half])
    compare(f"last {len(requests) - half}, predicted", predicted[half:], requests[half:])
    tokens = sum(r["output"] for r in requests)
    a, b = tokens / max(r["end"] for r in requests), report["throughput_tok_s"]
    print(f"\nthroughput of all: measured {a:.1f}, simulated {b:.1f} tokens/s ({100 * (b / a - 1):+.1f}%)")
    if options.save:
        pathlib.Path(options.save).write_text(json.dumps(spec, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
