#!/usr/bin/env python3
"""Loads a server that speaks OpenAI's API and tells how it answers, in the terms and with the fields
of vLLM's `bench serve`. Python's standard library only; any such server may be asked.

    nibble serve smollm2-135m --port 8080 &
    bench/serve.py --url http://127.0.0.1:8080 --num-prompts 64 --max-concurrency 16 \\
        --input-len 128 --output-len 64
    bench/serve.py --check overhead --model-file smollm2-135m     # and streaming, and clients
"""

import argparse
import asyncio
import json
import math
import pathlib
import random
import ssl
import statistics
import sys
import time
import urllib.parse

WORDS = """the of and to in is was for that on as with by it he be at from this are or his an which
were not have had but they one all their has there been if more when will would who about time can
some what up out new said other into two over also only its first after any no people you man them
world life hand part child eye woman place work week case point government company number group
water night light house school story sound money paper music river table winter garden letter
""".split()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="address of the server")
    parser.add_argument("--endpoint", choices=("completions", "chat"), default="completions")
    parser.add_argument("--model", default="", help="name to ask for; none: the server's own")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--num-prompts", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0,
                        help="go on with requests for so long instead of --num-prompts")
    parser.add_argument("--request-rate", type=float, default=math.inf,
                        help="requests a second, at random times (a Poisson process); inf: all at once")
    parser.add_argument("--max-concurrency", type=int, default=0,
                        help="most requests at a time; 0: any number")
    parser.add_argument("--input-len", type=int, default=64, help="words of a prompt")
    parser.add_argument("--output-len", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--prefix-len", type=int, default=0, help="words that all prompts share")
    parser.add_argument("--prompt", default="", help="text of every prompt, in place of words")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--percentiles", default="50,90,99", help="of each metric")
    parser.add_argument("--goodput", nargs="*", default=[], metavar="NAME:MS",
                        help="bounds for ttft, tpot and e2el; counts requests within all of them")
    parser.add_argument("--save-result", default="", metavar="FILE", help="all figures as JSON")
    parser.add_argument("--insecure", action="store_true", help="take any certificate")
    own = parser.add_argument_group("what nibble's own server costs (starts it; serve_checks.py)")
    own.add_argument("--check", choices=("overhead", "streaming", "clients"))
    own.add_argument("--nibble", metavar="PROGRAM", default=str(
        pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/nibble"))
    own.add_argument("--model-file", help="of --check overhead: a file or a pulled model's name")
    own.add_argument("--vocabulary", type=int, default=30000, help="ids below it are asked")
    own.add_argument("--threads", type=int, default=1, help="of the engine")
    own.add_argument("--rounds", type=int, default=3)
    own.add_argument("--requests", type=int, default=64, help="of a round of --check overhead")
    return parser.parse_args()


class Outcome:
    def __init__(self):
        self.status = 0
        self.error = ""
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.ttft = None
        self.itl = []
        self.latency = 0.0


async def read_head(reader):
    status = int((await reader.readline()).split()[1])
    headers = {}
    while True:
        line = (await reader.readline()).strip()
        if not line:
            return status, headers
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()


async def pieces(reader, headers):
    """The body as it comes."""
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        while True:
            size = int((await reader.readline()).split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
            if size == 0:
                return
            yield data[:-2]
    elif b"content-length" in headers:
        yield await reader.readexactly(int(headers[b"content-length"]))
    else:
        while data := await reader.read(65536):
            yield data


def text_of(event):
    """The text of a chunk, or None where it has none to show."""
    for choice in event.get("choices") or []:
        delta = choice.get("delta") or {}
        text = choice.get("text") or delta.get("content") or delta.get("reasoning_content")
        if text:
            return text
    return None


class Client:
    def __init__(self, options):
        self.options = options
        url = urllib.parse.urlsplit(options.url)
        self.host, self.path = url.hostname, url.path.rstrip("/")
        self.tls = None
        if url.scheme == "https":
            self.tls = ssl.create_default_context()
            if options.insecure:
                self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.port = url.port or (443 if self.tls else 80)
        self.random = random.Random(options.seed)
        self.prefix = " ".join(self.random.choices(WORDS, k=options.prefix_len))

    def request(self):
        o = self.options
        text = o.prompt or (self.prefix + " " +
                            " ".join(self.random.choices(WORDS, k=o.input_len))).strip()
        body = {"max_tokens": o.output_len, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        if o.model:
            body["model"] = o.model
        if o.endpoint == "chat":
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": text}]
        else:
            path, body["prompt"] = "/v1/completions", text
        data = json.dumps(body).encode()
        key = f"Authorization: Bearer {o.api_key}\r\n" if o.api_key else ""
        head = (f"POST {self.path}{path} HTTP/1.1\r\nHost: {self.host}\r\n{key}Connection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n")
        return head.encode() + data

    async def ask(self, data):
        outcome, writer = Outcome(), None
        start = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls,
                                                           limit=1 << 20)
            writer.write(data)
            await self.read_answer(reader, outcome, start)
        except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        finally:
            if writer:
                writer.close()
        outcome.latency = time.perf_counter() - start
        return outcome

    async def read_answer(self, reader, outcome, start):
        outcome.status, headers = await read_head(reader)
        if outcome.status != 200:
            outcome.error = f"status {outcome.status}"
            return
        rest, last, ended = b"", start, False
        async for piece in pieces(reader, headers):
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                if not event.startswith(b"data:"):
                    continue
                payload = event[5:].strip()
                if payload == b"[DONE]":
                    ended = True
                    continue
                event = json.loads(payload)
                if "error" in event:
                    outcome.error = str(event["error"])
                if event.get("usage"):
                    outcome.prompt_tokens = event["usage"]["prompt_tokens"]
                    outcome.output_tokens = event["usage"]["completion_tokens"]
                if text_of(event) is None:
                    continue
                now = time.perf_counter()
                if outcome.ttft is None:
                    outcome.ttft = now - start
                else:
                    outcome.itl.append(now - last)
                last = now
        if not ended and not outcome.error:
            outcome.error = "the stream ended without [DONE]"


async def run(options, client=None):
    client = client or Client(options)
    arrivals = random.Random(options.seed + 1)
    gate = asyncio.Semaphore(options.max_concurrency) if options.max_concurrency else None
    tasks = []

    async def one():
        outcome = await client.ask(client.request())
        if outcome.error:
            await asyncio.sleep(0.1)  # a server that is gone is not stormed
        if gate:
            gate.release()
        return outcome

    start = time.perf_counter()
    while True:
        if gate:
            await gate.acquire()
        now = time.perf_counter() - start
        if now >= options.seconds if options.seconds else len(tasks) >= options.num_prompts:
            break
        tasks.append(asyncio.create_task(one()))
        if options.request_rate != math.inf:
            await asyncio.sleep(arrivals.expovariate(options.request_rate))
        elif options.seconds and not gate:
            await asyncio.sleep(0)
    outcomes = await asyncio.gather(*tasks)
    return outcomes, time.perf_counter() - start


def percentile(values, p):
    """As numpy's: linear between the two that are nearest."""
    values = sorted(values)
    at = (len(values) - 1) * p / 100
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def p99(values):
    return percentile(values, 99)


def goodput(options, done, duration):
    bounds = {}
    for given in options.goodput:
        name, _, bound = given.partition(":")
        if name not in ("ttft", "tpot", "e2el") or not bound:
            sys.exit(f"--goodput: expected ttft:MS, tpot:MS or e2el:MS, found {given!r}")
        bounds[name] = float(bound) / 1000
    if not bounds:
        return {}
    good = 0
    for outcome in done:
        values = {"ttft": outcome.ttft, "e2el": outcome.latency, "tpot": tpot(outcome) or 0.0}
        good += all(values[name] <= bound for name, bound in bounds.items())
    return {"request_goodput": good / duration}


def tpot(outcome):
    if outcome.output_tokens < 2:
        return None
    return (outcome.latency - outcome.ttft) / (outcome.output_tokens - 1)


def summarize(options, outcomes, duration):
    done = [o for o in outcomes if not o.error and o.ttft is not None]
    refused = sum(o.status in (429, 503) for o in outcomes)
    tokens_in = sum(o.prompt_tokens for o in done)
    tokens_out = sum(o.output_tokens for o in done)
    result = {"date": time.strftime("%Y%m%d-%H%M%S"), "endpoint_type": options.endpoint,
              "model_id": options.model, "num_prompts": len(outcomes),
              "request_rate": "inf" if options.request_rate == math.inf else options.request_rate,
              "max_concurrency": options.max_concurrency or None, "duration": duration,
              "completed": len(done), "refused": refused,
              "failed": len(outcomes) - len(done) - refused,
              "total_input_tokens": tokens_in, "total_output_tokens": tokens_out,
              "request_throughput": len(done) / duration,
              "output_throughput": tokens_out / duration,
              "total_token_throughput": (tokens_in + tokens_out) / duration}
    result |= goodput(options, done, duration)
    series = {"ttft": [o.ttft for o in done], "tpot": [t for o in done if (t := tpot(o))],
              "itl": [gap for o in done for gap in o.itl], "e2el": [o.latency for o in done]}
    for name, values in series.items():
        values = [1000 * v for v in values]
        if not values:
            continue
        result[f"mean_{name}_ms"] = statistics.fmean(values)
        result[f"median_{name}_ms"] = statistics.median(values)
        result[f"std_{name}_ms"] = statistics.pstdev(values)
        for p in options.percentiles.split(","):
            result[f"p{p}_{name}_ms"] = percentile(values, float(p))
    return result


def show(options, result, outcomes):
    print("============ Serving Benchmark Result ============")
    rows = [("Successful requests:", "completed"), ("Refused (429, 503):", "refused"),
            ("Failed requests:", "failed"), ("Benchmark duration (s):", "duration"),
            ("Total input tokens:", "total_input_tokens"),
            ("Total generated tokens:", "total_output_tokens"),
            ("Request throughput (req/s):", "request_throughput"),
            ("Request goodput (req/s):", "request_goodput"),
            ("Output token throughput (tok/s):", "output_throughput"),
            ("Total token throughput (tok/s):", "total_token_throughput")]
    for label, key in rows:
        if key in result:
            value = result[key]
            print(f"{label:<38}{value if isinstance(value, int) else format(value, '.2f'):>12}")
    for name, title in (("ttft", "Time to First Token"), ("tpot", "Time per Output Token"),
                        ("itl", "Inter-token Latency"), ("e2el", "End-to-end Latency")):
        if f"mean_{name}_ms" not in result:
            continue
        print(f"---------------{title}---------------")
        for what in ["mean", "median"] + ["p" + p for p in options.percentiles.split(",")]:
            label = f"{what.capitalize()} {name.upper()} (ms):"
            print(f"{label:<38}{result[f'{what}_{name}_ms']:>12.2f}")
    print("==================================================")
    errors = {o.error for o in outcomes if o.error and o.status not in (429, 503)}
    for error in sorted(errors)[:5]:
        print(f"failed: {error}", file=sys.stderr)


def main():
    options = parse_arguments()
    if options.check:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
        import serve_checks
        return serve_checks.CHECKS[options.check](options)
    outcomes, duration = asyncio.run(run(options))
    result = summarize(options, outcomes, duration)
    show(options, result, outcomes)
    if options.save_result:
        with open(options.save_result, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return 1 if result["failed"] or not result["completed"] else 0


if __name__ == "__main__":
    sys.exit(main())
