"""What the server itself costs: the checks of `serve.py --check NAME`. Each starts its servers, loads
them and prints its figures; a machine that does nothing else is needed for good ones.

    overhead   throughput and first tokens of the server beside `nibble bench` under the same load
    streaming  tokens a second through one core, with a model that costs next to nothing
    clients    a thousand streams at a time for a minute: errors, resident size, tokens of each
"""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import serve

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests/server"))


def processors():
    """One for a server's thread and one for the client; the same twice where there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


@contextlib.contextmanager
def server(o, model, *flags, cpus=None):
    """`nibble serve` on a free port, loaded; gives its address and process."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [o.nibble, "serve", str(model), "--port", str(port), *map(str, flags)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    if cpus is not None:
        os.sched_setaffinity(process.pid, cpus)  # of threads to come too
    url = f"http://127.0.0.1:{port}"
    try:
        while not answers(url):
            if process.poll() is not None:
                raise SystemExit(f"{' '.join(command)} does not serve")
            time.sleep(0.05)
        yield url, process
    finally:
        process.terminate()
        process.wait()


def answers(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def long_model():
    """A random model of 100 thousand parameters, whose answers never end by themselves."""
    os.environ.setdefault("NIBBLE_SOURCE", str(SOURCE))
    os.environ.setdefault("NIBBLE_BIN", "")
    from server_support import write_long_model
    with tempfile.TemporaryDirectory() as folder:
        yield write_long_model(folder)


def resident_mb(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return 0.0


# --- overhead


class FirstToken:
    """One request at a time over one connection, with as little of Python in between as may be."""

    def __init__(self, url):
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, body):
        """Seconds to the first token's chunk, which a head and no role come before."""
        data = json.dumps(body).encode()
        request = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}"
                   "\r\n\r\n").encode() + data
        got, first = b"", None
        begun = time.perf_counter()
        self.socket.sendall(request)
        while not got.endswith(b"0\r\n\r\n"):
            got += self.socket.recv(65536)
            if first is None and b"\r\ndata: " in got:
                first = time.perf_counter() - begun
        if b"[DONE]" not in got:
            raise SystemExit(f"no answer: {got[:300]}")
        return first


def completion(ids, answer):
    return {"prompt": ids, "max_tokens": answer, "ignore_eos": True, "temperature": 0,
            "stream": True}


def bench_row(o, trace, concurrency):
    done = subprocess.run([o.nibble, "bench", o.model_file, "--serve-trace", trace, "--concurrency",
                           str(concurrency), "--batching", "continuous", "-t", str(o.threads),
                           "--max-seqs", "16", "--json"], check=True, capture_output=True)
    [row] = json.loads(done.stdout)["rows"]
    return row


class IdClient(serve.Client):
    """Prompts of random ids, as bench has them."""

    def request(self):
        o = self.options
        data = json.dumps(completion([self.random.randrange(100, o.vocabulary)
                                      for _ in range(o.input_len)], o.output_len)
                          | {"stream_options": {"include_usage": True}}).encode()
        return (f"POST {self.path}/v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def served_throughput(o, url):
    o.url, o.max_concurrency, o.num_prompts, o.seconds = url, 16, o.requests, 0
    outcomes, seconds = asyncio.run(serve.run(o, IdClient(o)))
    failed = [one.error for one in outcomes if one.error]
    if failed:
        raise SystemExit(f"{len(failed)} failed: {failed[0]}")
    return sum(one.output_tokens for one in outcomes) / seconds


def overhead(o):
    if not o.model_file:
        raise SystemExit("--check overhead needs --model-file FILE (or a pulled model's name)")
    with tempfile.TemporaryDirectory() as folder:
        many, few = f"{folder}/many.csv", f"{folder}/few.csv"
        for path, count in ((many, o.requests), (few, 40)):
            pathlib.Path(path).write_text(
                "arrived_at,num_prefill_tokens,num_decode_tokens\n" +
                "".join(f"0,{o.input_len},{o.output_len if path == many else 2}\n"
                        for _ in range(count)))
        rates, firsts = {"bench": [], "server": []}, {"bench": [], "server": []}
        for number in range(o.rounds):
            for name in ("bench", "server") if number % 2 == 0 else ("server", "bench"):
                if name == "bench":
                    rates[name].append(bench_row(o, many, 16)["throughput_tok_s"])
                    firsts[name].append(1e3 * bench_row(o, few, 1)["ttft_s"]["p50"])
                else:
                    with server(o, o.model_file, "-t", o.threads, "--max-seqs", 16) as (url, _):
                        rates[name].append(served_throughput(o, url))
                        draw, client = random.Random(number), FirstToken(url)
                        times = [client.ask(completion([draw.randrange(100, o.vocabulary)
                                                        for _ in range(o.input_len)], 2))
                                 for _ in range(40)]
                        firsts[name].append(1e3 * statistics.median(times))
                print(f"{name:<7}{rates[name][-1]:9.1f} tokens/s, 16 at a time; first token of one "
                      f"alone p50 {firsts[name][-1]:7.2f} ms", flush=True)
    rate = {name: statistics.median(values) for name, values in rates.items()}
    first = {name: min(values) for name, values in firsts.items()}
    print(f"throughput {100 * (1 - rate['server'] / rate['bench']):+.1f}% below bench (3% wanted); "
          f"first token {first['server'] - first['bench']:+.2f} ms (1 ms wanted)")
    return 0


# --- streaming


def streaming(o):
    for_server, for_client = processors()
    with long_model() as model, server(o, model, "-t", 1, "--max-seqs", 64, "--ctx", 512,
                                       "--kv-memory", "32MB", cpus={for_server}) as (url, _):
        os.sched_setaffinity(0, {for_client})
        o.url, o.max_concurrency, o.input_len, o.output_len = url, 64, 6, 400
        o.seconds = o.seconds or 12
        outcomes, seconds = asyncio.run(serve.run(o))
    result = serve.summarize(o, outcomes, seconds)
    serve.show(o, result, outcomes)
    print(f"streaming on one core, the engine's steps included: "
          f"{result['output_throughput']:.0f} tokens/s (10,000 wanted)")
    return 1 if result["failed"] else 0


# --- clients


class Watch(threading.Thread):
    """Resident size every ten seconds, and what /health takes, once a second."""

    def __init__(self, url, process):
        super().__init__(daemon=True)
        self.url, self.process, self.stop = url, process, threading.Event()
        self.health = []

    def run(self):
        begun, next_size = time.monotonic(), 10.0
        while not self.stop.wait(1):
            asked = time.perf_counter()
            if answers(self.url):
                self.health.append(1e3 * (time.perf_counter() - asked))
            else:
                self.health.append(float("inf"))
            if time.monotonic() - begun >= next_size:
                print(f"after {next_size:3.0f} s: {resident_mb(self.process):7.1f} MB resident, "
                      f"/health in at most {max(self.health):.0f} ms", flush=True)
                next_size += 10


async def all_clients(o, count):
    client, end = serve.Client(o), time.perf_counter() + o.seconds
    kinds, refused = {}, 0

    async def one(number):
        nonlocal refused
        tokens, requests = 0, 0
        await asyncio.sleep(number / 1000)  # a thousand connections within a second
        while time.perf_counter() < end:
            outcome = await client.ask(client.request())
            if outcome.status in (429, 503):
                refused += 1
                await asyncio.sleep(1)
            elif outcome.error:
                kinds[outcome.error] = kinds.get(outcome.error, 0) + 1
                await asyncio.sleep(0.1)
            tokens += outcome.output_tokens
            requests += 1
        return tokens, requests

    done = await asyncio.gather(*(one(i) for i in range(count)))
    return done, refused, kinds


def clients(o):
    count = o.max_concurrency or 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count)), hard))
    with long_model() as model, server(o, model, "-t", o.threads, "--max-seqs", 64, "--ctx", 512,
                                       "--kv-memory", "32MB", "--max-queue", 2 * count,
                                       "--max-connections", count + 100) as (url, process):
        o.url, o.input_len, o.output_len, o.seconds = url, 6, 400, o.seconds or 60
        watch = Watch(url, process)
        watch.start()
        done, refused, kinds = asyncio.run(all_clients(o, count))
        watch.stop.set()
        watch.join()
        print(f"at the end: {resident_mb(process):7.1f} MB resident, /health in at most "
              f"{max(watch.health):.0f} ms of {len(watch.health)} times")
    tokens = sorted(t for t, _ in done)
    print(f"{count} clients, {sum(r for _, r in done)} requests, {refused} refused with 429 or 503, "
          f"{sum(kinds.values())} errors")
    for kind, number in sorted(kinds.items()):
        print(f"  {number} times {kind}")
    print(f"tokens of a client: least {tokens[0]}, median {statistics.median(tokens):.0f}, most "
          f"{tokens[-1]}")
    return 1 if kinds else 0


CHECKS = {"overhead": overhead, "streaming": streaming, "clients": clients}
