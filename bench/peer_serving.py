#!/usr/bin/env python3
"""Two servers under the same load: `nibble serve` and llama.cpp's llama-server, built elsewhere. One
runs at a time, in turn; bench/serve.py asks both the same. llama-server gets a slot for each client
and continuous batching; of several sets of its flags those are taken that are fastest in a short
trial. Prints each round, and the ratio of the medians.

    bench/peer_serving.py model.gguf --llama-server BUILD/bin/llama-server --clients 16 \\
        --input-len 64 --output-len 64 --seconds 30 --rounds 3
"""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
NIBBLE = HERE.parent / "build/release/bin/nibble"
# What its documentation and its users turn for several clients on processors.
LLAMA_FLAGS = ("--flash-attn on", "--flash-attn off", "--flash-attn on --kv-unified",
               "--flash-attn on --ubatch-size 256", "--flash-attn on --poll 100")
METRICS = ("output_throughput", "p50_ttft_ms", "p99_ttft_ms", "p50_itl_ms", "p99_itl_ms")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--llama-server", required=True, help="the program")
    parser.add_argument("--nibble", default=str(NIBBLE), help="the program")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--input-len", type=int, default=64, help="words of a prompt")
    parser.add_argument("--output-len", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--seconds", type=float, default=30, help="of a round of one server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trial-seconds", type=float, default=10, help="of each set of flags")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--llama-flags", help="these, and no trials of its flags")
    parser.add_argument("--nibble-flags", default="", help="more flags for nibble serve")
    parser.add_argument("--save-result", metavar="FILE", help="all rounds as JSON")
    return parser.parse_args()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def healthy(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def running(command):
    """A server from its start to its end; gives its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "--port", str(port)], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 300
            while not healthy(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    text = log.read().decode(errors="replace")
                    raise RuntimeError(f"{shlex.join(command)} does not serve:\n{text[-2000:]}")
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def nibble_command(o):
    return [o.nibble, "serve", o.model, "--threads", str(o.threads), "--max-seqs", str(o.clients),
            "--ctx", str(o.input_len * 4 + o.output_len + 64), *shlex.split(o.nibble_flags)]


def llama_command(o, flags):
    tokens = (o.input_len * 4 + o.output_len + 64) * o.clients
    return [o.llama_server, "--model", o.model, "--threads", str(o.threads), "--threads-batch",
            str(o.threads), "--parallel", str(o.clients), "--cont-batching", "--ctx-size",
            str(tokens), "--cache-ram", "0", "--no-webui", *shlex.split(flags)]


def load(o, url, seconds, seed):
    """What serve.py says of one round; a first short one is not counted."""
    def ask(seconds, file):
        subprocess.run([sys.executable, str(HERE / "serve.py"), "--url", url, "--seconds",
                        str(seconds), "--max-concurrency", str(o.clients), "--input-len",
                        str(o.input_len), "--output-len", str(o.output_len), "--seed", str(seed),
                        "--percentiles", "50,99", "--save-result", file],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(file).read_text())
    with tempfile.TemporaryDirectory() as folder:
        ask(1, f"{folder}/warm.json")
        return ask(seconds, f"{folder}/result.json")


def measure(o, command, seconds, seed=0):
    with running(command) as url:
        return load(o, url, seconds, seed)


def best_llama_flags(o):
    if o.llama_flags is not None:
        return o.llama_flags
    tried = {}
    for flags in LLAMA_FLAGS:
        try:
            result = measure(o, llama_command(o, flags), o.trial_seconds)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"  {flags}: {str(error).splitlines()[0]}")
            continue
        tried[flags] = result["output_throughput"]
        print(f"  {flags}: {tried[flags]:.1f} tokens/s", flush=True)
    if not tried:
        sys.exit("no set of flags served")
    return max(tried, key=tried.get)


def say(name, result):
    print(f"{name:<8}{result['output_throughput']:>9.1f} tokens/s   TTFT p50 "
          f"{result['p50_ttft_ms']:8.1f} p99 {result['p99_ttft_ms']:8.1f} ms   ITL p50 "
          f"{result['p50_itl_ms']:6.1f} p99 {result['p99_itl_ms']:6.1f} ms   "
          f"{result['completed']} answers, {result['failed']} failed", flush=True)


def main():
    o = parse_arguments()
    print("llama-server's flags:")
    flags = best_llama_flags(o)
    commands = {"nibble": nibble_command(o), "llama": llama_command(o, flags)}
    for command in commands.values():
        print(shlex.join(command))
    rounds = {name: [] for name in commands}
    for number in range(o.rounds):
        order = list(commands) if number % 2 == 0 else list(commands)[::-1]
        for name in order:
            rounds[name].append(measure(o, commands[name], o.seconds, number))
            say(name, rounds[name][-1])
    median = {name: {m: statistics.median(r[m] for r in results) for m in METRICS}
              for name, results in rounds.items()}
    ours, theirs = median["nibble"], median["llama"]
    print(f"throughput {ours['output_throughput'] / theirs['output_throughput']:.2f} times; "
          f"TTFT p50 {ours['p50_ttft_ms']:.1f} against {theirs['p50_ttft_ms']:.1f} ms, "
          f"p99 {ours['p99_ttft_ms']:.1f} against {theirs['p99_ttft_ms']:.1f} ms")
    if o.save_result:
        pathlib.Path(o.save_result).write_text(
            json.dumps({"model": o.model, "llama_flags": flags, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
