#!/usr/bin/env python3
"""Whether the speed that `nibble advise` prints is the speed that its row then has.

    bench/advise_check.py ADVICE.json [--nibble PATH] [--work FOLDER] [--rows N]

ADVICE.json is what `nibble advise ... --json` printed, run from this folder. The row that it took,
and --rows more of the front, are made by its own `quantize` command where they are not there, and
timed by `nibble bench`: steps at the end of the context, and a prompt alone. Printed beside one
another with the stated error of each; at the end how many lie within two of them. Run it on the
machine that the advice is about, with nothing else running.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

STEPS = 8


def run(nibble, *arguments):
    done = subprocess.run([nibble, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def value_of(words, flag, fallback=None):
    return words[words.index(flag) + 1] if flag in words else fallback


def bench(nibble, model, row, advice, *test):
    words = shlex.split(advice["serve_command"])
    kv = row["kv"].split("/")
    flags = ["--kv-k", kv[0], "--kv-v", kv[-1]]
    if row["kv_skip_layers"]:
        flags += ["--kv-skip-layers", ",".join(map(str, row["kv_skip_layers"]))]
    for flag in ("--act", "-t"):
        if value_of(words, flag):
            flags += [flag, value_of(words, flag)]
    out = json.loads(run(nibble, "bench", model, *test, *flags, "-r", 5, "--json", "--quiet"))
    return out["rows"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("advice", type=pathlib.Path)
    parser.add_argument("--nibble", default="build/release/bin/nibble")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=0)
    own = parser.parse_args()
    advice = json.loads(own.advice.read_text())
    if advice["choice"] is None:
        sys.exit("the advice took no row")
    front = [row for row in advice["rows"] if row["pareto"] and row["batch"]]
    rows = [advice["rows"][advice["choice"]["row"]]]
    rows += [row for row in front if row not in rows][:own.rows]
    quantize = shlex.split(advice["quantize_command"] or "")
    model = shlex.split(advice["serve_command"])[2] if not quantize else quantize[2]
    within = all_figures = 0
    print(f"{'weights':12} {'kv':12} {'figure':8} {'printed':>12} {'error':>10} {'again':>12} "
          f"{'off':>8}")
    with tempfile.TemporaryDirectory() as folder:
        work = own.work or pathlib.Path(folder)
        for row in rows:
            path = advice["written"] if row is rows[0] and advice["written"] else model
            if row["weights"] != "own" and path == model:
                path = work / f"{row['weights']}.gguf"
                if not path.exists():
                    run(own.nibble, "quantize", model, path, "--to", row["weights"],
                        "--no-quality", "--quiet")
            context = advice["context"]
            steps = min(STEPS, context)
            step = bench(own.nibble, path, row, advice, "-p", 0, "-n", steps, "-b", row["batch"],
                         "-d", context - steps)
            prompt = bench(own.nibble, path, row, advice, "-p", context, "-n", 0, "-b", 1)
            again = {"tpot_s": row["batch"] / step["tok_s"], "ttft_s": context / prompt["tok_s"]}
            for key, seconds in again.items():
                error = row[key + "_error"]
                off = seconds / row[key] - 1
                within += abs(seconds - row[key]) <= 2 * error
                all_figures += 1
                print(f"{row['weights']:12} {row['kv']:12} {key:8} {1e3 * row[key]:9.3f} ms "
                      f"{1e3 * error:7.3f} ms {1e3 * seconds:9.3f} ms {100 * off:+7.1f}% "
                      f"({row['source']['speed']})")
    print(f"{within} of {all_figures} within two of their stated errors")


if __name__ == "__main__":
    main()
