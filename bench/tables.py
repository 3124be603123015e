#!/usr/bin/env python3
"""Runs the micro-benchmarks and prints the tables of docs/performance.md.

    cmake --preset release -DNIBBLE_BENCH=ON && cmake --build build/release
    python bench/tables.py matmul --formats q4_k q8_0
    python bench/tables.py all > tables.md

Limits (read bandwidth, multiply peaks) run in the same process as the kernels, in random order,
several times; the figures are medians and the fractions medians over medians. Run it on a machine
that does nothing else.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ISAS = ("scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "neon")
TABLES = ("matmul", "pack", "elementwise", "vocabulary", "threads")
NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def plain(name):
    """Without what Google Benchmark adds to a name."""
    return re.sub(r"/(real_time|iterations:[0-9]+)", "", name)


def run(arguments, program, pattern, repetitions=None):
    """{benchmark name: {counter: median}} of the names that match the pattern; "label" its label."""
    command = [arguments.bin / program, f"--benchmark_filter={pattern}", "--benchmark_format=json",
               f"--benchmark_min_time={arguments.min_time}",
               f"--benchmark_repetitions={repetitions or arguments.repetitions}",
               "--benchmark_enable_random_interleaving=true"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise RuntimeError(f"{program}: {done.stderr.strip()[-500:] or 'no benchmark matches'}")
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    entries = json.loads(done.stdout)["benchmarks"]
    for entry in sorted(entries, key=lambda entry: entry["family_index"]):
        if entry["run_type"] != "iteration":
            continue
        name = plain(entry["run_name"])
        for key, value in entry.items():
            if key in ("GB/s", "GMAC/s", "of_cache", "bytes_per_second", "real_time",
                       "cpu_share") or key.endswith("_ns"):
                scale = NS[entry["time_unit"]] if key == "real_time" else 1
                found[name][key].append(value * scale)
    result = {name: {key: statistics.median(values) for key, values in counters.items()}
              for name, counters in found.items()}
    for entry in entries:
        if entry.get("label") and plain(entry["run_name"]) in result:
            result[plain(entry["run_name"])]["label"] = entry["label"]
    return result


def table(heads, rows):
    print("| " + " | ".join(heads) + " |")
    print("|---" + "|---:" * (len(heads) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def percent(value, limit):
    return f"{value:.0f} ({100 * value / limit:.0f}%)" if limit else f"{value:.0f}"


def matmul_names(arguments):
    listed = subprocess.run([arguments.bin / "matmul_bench", "--benchmark_list_tests=true"],
                            capture_output=True, text=True, check=True).stdout.split()
    return [plain(name) for name in listed]


def print_matmul(arguments):
    """Few tokens with all threads, as share of read bandwidth; 256 with one, of its peak."""
    names = matmul_names(arguments)
    workers = max(int(name.rsplit("_", 1)[1]) for name in names if "/workers_" in name)
    formats = list(dict.fromkeys(name.split("/")[0] for name in names if "/act_" in name))
    formats = [f for f in formats if not arguments.formats or f in arguments.formats]
    few = [t for t in (1, 4, 16) if any(f"/tokens_{t}/" in name for name in names)]
    for act in arguments.acts:
        for isa in arguments.isas:
            rows = []
            for name in formats:
                key = f"{name}/act_{act}/{isa}"
                if not any(n.startswith(key + "/") for n in names):
                    continue
                tokens = "|".join(map(str, few))
                found = run(arguments, "matmul_bench",
                            f"^({key}/tokens_({tokens})/workers_{workers}(/.*)?|{key}/tokens_256/"
                            f"workers_1(/.*)?|peak/[a-z0-9]+/{isa}|read/workers_{workers}(/.*)?)$")
                read = found[f"read/workers_{workers}"]["GB/s"]
                kind = found[f"{key}/tokens_256/workers_1"]["label"]
                peak = found[f"peak/{kind}/{isa}"]["GMAC/s"]
                row = [name, f"{read:.0f}", f"{peak:.0f}"]
                for t in few:
                    one = found[f"{key}/tokens_{t}/workers_{workers}"]
                    bound = max(one["GB/s"] / read, one["GMAC/s"] / (peak * workers))
                    row.append(percent(one["GB/s"], read) if t == 1
                               else f"{one['GMAC/s']:.0f} ({100 * bound:.0f}%)")
                row.append(percent(found[f"{key}/tokens_256/workers_1"]["GMAC/s"], peak))
                rows.append(row)
            if not rows:
                continue
            print(f"act={act}, {isa}\n")
            heads = ["format", f"read, {workers} threads, GB/s", "peak, 1 thread, GMAC/s"]
            heads += [f"{t} token{'' if t == 1 else 's'}, {workers} threads, "
                      + ("GB/s (of read)" if t == 1 else "GMAC/s (of the nearer limit)")
                      for t in few]
            table([*heads, "256 tokens, 1 thread, GMAC/s (of peak)"], rows)


def print_pack(arguments):
    found = run(arguments, "matmul_bench", "^pack/")
    table(["format", "packed, GB/s of file bytes"],
          [[name.split("/")[1], f"{counters['bytes_per_second'] * 1e-9:.2f}"]
           for name, counters in found.items()])


def print_elementwise(arguments):
    by_op(arguments, "elementwise_bench", "/2048$")


def print_vocabulary(arguments):
    by_op(arguments, "elementwise_bench",
          "^(max|arg_max|sum_exp|log_sum_exp|collect|top_[0-9]+)/.*/262144$")


def by_op(arguments, program, pattern):
    """A row per kernel, a column per instruction set."""
    found = run(arguments, program, pattern)
    isas = [isa for isa in arguments.isas if any(f"/{isa}/" in name for name in found)]
    rows = collections.defaultdict(dict)
    for name, counters in found.items():
        op, isa, _ = name.split("/")
        rows[op][isa] = f"{counters['GB/s']:.1f} ({100 * counters['of_cache']:.0f}%)"
    table(["kernel", *(f"{isa}, GB/s (of the cache)" for isa in isas)],
          [[op, *(cells.get(isa, "-") for isa in isas)] for op, cells in rows.items()])


def print_threads(arguments):
    found = run(arguments, "thread_pool_bench", ".", repetitions=1)
    rows = []
    for name, counters in found.items():
        if "cpu_share" in counters:
            rows.append([name, f"{100 * counters['cpu_share']:.2f}% of a processor", "", ""])
        else:
            rows.append([name, *(f"{counters[key] / 1e3:.2f} µs"
                                 for key in ("median_ns", "p90_ns", "p99_ns"))])
    table(["what", "median", "90%", "99%"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=[*TABLES, "all"])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--formats", nargs="*", help="default: all")
    parser.add_argument("--isas", nargs="*", choices=ISAS, default=list(ISAS[1:]))
    parser.add_argument("--acts", nargs="*", choices=("int8", "f32"), default=["int8", "f32"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.05)
    arguments = parser.parse_args()
    wanted = TABLES if "all" in arguments.tables else arguments.tables
    print(f"{os.cpu_count()} processors; medians of {arguments.repetitions}\n")
    try:
        for name in wanted:
            print(f"### {name}\n")
            globals()[f"print_{name}"](arguments)
    except RuntimeError as error:
        print(f"tables.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
