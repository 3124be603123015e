#!/usr/bin/env python3
"""llama.cpp under the load of bench/serve.py, without HTTP: its library, driven as its server drives
it (slots; a step has the next token of every answer, then whole prompts up to the batch), and clients
that ask again as soon as they are answered. What its server can reach at best.

    pip install llama-cpp-python numpy
    bench/peer_serving.py model.gguf --clients 16 --input-len 64 --output-len 64 --seconds 15
"""

import argparse
import json
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import llama_cpp  # noqa: E402
import numpy as np  # noqa: E402

from peer_library import Context  # noqa: E402


class Slot:
    def __init__(self, number, ids):
        self.number, self.ids = number, ids
        self.computed, self.last, self.answered = 0, None, 0
        self.asked, self.first = time.perf_counter(), None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--input-len", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=2048, help="most rows of a step")
    parser.add_argument("--ubatch", type=int, default=512)
    parser.add_argument("--flash", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def step(context, slots, options):
    """Computes one step; the slots that got a token."""
    rows, wanting = [], []
    for slot in slots:
        if slot.last is not None:
            wanting.append((slot, len(rows)))
            rows.append((slot.last, slot.computed, slot.number, True))
            slot.computed += 1
    for slot in slots:
        while slot.last is None and slot.computed < len(slot.ids) and len(rows) < options.batch:
            ends = slot.computed + 1 == len(slot.ids)
            if ends:
                wanting.append((slot, len(rows)))
            rows.append((slot.ids[slot.computed], slot.computed, slot.number, ends))
            slot.computed += 1
    context.decode(rows)
    for slot, row in wanting:
        logits = llama_cpp.llama_get_logits_ith(context.context, row)
        slot.last = int(np.argmax(np.ctypeslib.as_array(logits, (context.vocabulary,))))
        slot.answered += 1
    return [slot for slot, _ in wanting]


def main():
    options = parse_arguments()
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(options.model.encode(),
                                                 llama_cpp.llama_model_default_params())
    settings = {"threads": options.threads, "ubatch": options.ubatch, "flash": options.flash,
                "unified": False, "batch": options.batch}
    context = Context(model, settings, options.input_len + options.output_len + 64, options.clients)
    memory = llama_cpp.llama_get_memory(context.context)
    draw = random.Random(options.seed)

    def ask(number):
        llama_cpp.llama_memory_seq_rm(memory, number, -1, -1)
        return Slot(number, [draw.randrange(100, 30000) for _ in range(options.input_len)])

    slots = [ask(i) for i in range(options.clients)]
    started, tokens, ttft, gaps = time.perf_counter(), 0, [], []
    while (now := time.perf_counter()) - started < options.seconds:
        served = step(context, slots, options)
        done = time.perf_counter()
        tokens += len(served)
        for slot in served:
            if slot.first is None:
                slot.first = done
                ttft.append(done - slot.asked)
            else:
                gaps.append(done - now)
            if slot.answered == options.output_len:
                slots[slot.number] = ask(slot.number)
    seconds = time.perf_counter() - started
    if not gaps:
        sys.exit("no answer came to its second token: give it more --seconds")
    print(json.dumps({"output_throughput": tokens / seconds, "requests": len(ttft),
                      **{f"p{p}_ttft_ms": 1e3 * float(np.percentile(ttft, p)) for p in (50, 99)},
                      **{f"p{p}_step_ms": 1e3 * float(np.percentile(gaps, p)) for p in (50, 99)}}))


if __name__ == "__main__":
    main()
