#!/usr/bin/env python3
"""Compares nibble with llama.cpp on one GGUF file: speed in alternation, and perplexity.

    pip install llama-cpp-python
    python bench/compare.py model.gguf --text wiki.test.raw

Prefill is a prompt of 512 tokens, generation 128 tokens one by one. The peer first tries its thread
counts, batch sizes and both attention paths; its best of each is what nibble is compared with. Then
both run in turn, several rounds, and medians and the median of the rounds' ratios are printed: the
machine's mood changes by tens of percent, but little within a round. A speed counts only with the
perplexity beside it, so both programs score the same windows of the text (llama.cpp's protocol:
windows of 512, the second half scored). The peer only decodes; nibble's generation samples too.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent


def note(*words):
    print(*words, file=sys.stderr, flush=True)


class Peer:
    """One llama.cpp context; settings are {threads, ubatch, flash}."""

    def __init__(self, model, settings, context):
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = context
        parameters.n_batch = context
        parameters.n_ubatch = settings["ubatch"]
        parameters.n_threads = settings["threads"]
        parameters.n_threads_batch = settings["threads"]
        if hasattr(parameters, "flash_attn_type"):
            parameters.flash_attn_type = 1 if settings["flash"] else 0
        else:
            parameters.flash_attn = settings["flash"]
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.context = llama_cpp.llama_init_from_model(model, parameters)
        if not self.context:
            raise RuntimeError(f"llama.cpp refuses {settings}")

    def close(self):
        llama_cpp.llama_free(self.context)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def decode(self, ids):
        array = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(ids))):
            raise RuntimeError("llama_decode failed")

    def prefill_rate(self, ids):
        self.clear()
        started = time.perf_counter()
        self.decode(ids)
        llama_cpp.llama_synchronize(self.context)
        return len(ids) / (time.perf_counter() - started)

    def generation_rate(self, prompt, following):
        self.clear()
        self.decode(prompt)
        llama_cpp.llama_synchronize(self.context)
        started = time.perf_counter()
        for token in following:
            self.decode([token])
            llama_cpp.llama_synchronize(self.context)
        return len(following) / (time.perf_counter() - started)

    def window_losses(self, window):
        """-log p of the tokens in the window's second half."""
        self.clear()
        count, half = len(window), len(window) // 2
        batch = llama_cpp.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for i, token in enumerate(window):
            batch.token[i] = token
            batch.pos[i] = i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i >= half
        if llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        losses = []
        for i in range(half, count - 1):
            row = llama_cpp.llama_get_logits_ith(self.context, i)
            logits = np.ctypeslib.as_array(row, (self.vocabulary,)).astype(np.float64)
            top = logits.max()
            losses.append(top + math.log(np.exp(logits - top).sum()) - logits[window[i + 1]])
        llama_cpp.llama_batch_free(batch)
        return losses


def silence_peer():
    callback = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    return callback  # must outlive the library's use of it


def tokenize(model, text):
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    data = text.encode("utf-8")
    room = len(data) + 16
    ids = (llama_cpp.llama_token * room)()
    count = llama_cpp.llama_tokenize(vocabulary, data, len(data), ids, room, True, False)
    return list(ids[:count]), bool(llama_cpp.llama_vocab_get_add_bos(vocabulary)), \
        llama_cpp.llama_vocab_bos(vocabulary)


def best_settings(model, ids, arguments):
    """The peer's fastest settings for prefill and for generation, each tried twice."""
    cores = len(os.sched_getaffinity(0))
    prefill, generation = {}, {}
    for threads in sorted({1, max(1, cores // 2), cores}):
        for flash in (False, True):
            for ubatch in arguments.ubatch:
                settings = {"threads": threads, "ubatch": ubatch, "flash": flash}
                peer = Peer(model, settings, arguments.context)
                key = json.dumps(settings)
                prefill[key] = max(peer.prefill_rate(ids[:arguments.prompt]) for _ in range(2))
                line = f"  peer {key}: prefill {prefill[key]:.1f}"
                if ubatch == arguments.ubatch[0]:
                    generation[key] = max(peer.generation_rate(ids[:arguments.depth],
                                                               ids[arguments.depth:][:32])
                                          for _ in range(2))
                    line += f", generation {generation[key]:.1f}"
                note(line)
                peer.close()
    return (json.loads(max(prefill, key=prefill.get)),
            json.loads(max(generation, key=generation.get)))


def nibble_json(arguments, *words):
    command = [arguments.nibble, *words, *arguments.nibble_flags, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"nibble {' '.join(map(str, words))[:200]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def nibble_run(arguments, ids, count):
    return nibble_json(arguments, "run", arguments.model, "--ids", ",".join(map(str, ids)),
                       "-n", count, "--temp", 0, "--ctx", arguments.context, "--ignore-eos")


def measure_speed(model, ids, arguments):
    prefill_settings, generation_settings = best_settings(model, ids, arguments)
    prefill_peer = Peer(model, prefill_settings, arguments.context)
    generation_peer = Peer(model, generation_settings, arguments.context)
    prompt = ids[:arguments.prompt]
    start, following = ids[:arguments.depth], ids[arguments.depth:][:arguments.generate]
    rates = {"prefill": [], "generation": []}
    nibble = {}
    for number in range(arguments.rounds):
        peer_prefill = prefill_peer.prefill_rate(prompt)
        ours_prefill = nibble_run(arguments, prompt, 1)["prefill_tok_s"]
        peer_generation = generation_peer.generation_rate(start, following)
        nibble = nibble_run(arguments, start, arguments.generate)
        rates["prefill"].append((ours_prefill, peer_prefill))
        rates["generation"].append((nibble["decode_tok_s"], peer_generation))
        note(f"  round {number + 1}: prefill {ours_prefill:.1f} / {peer_prefill:.1f}, generation "
             f"{nibble['decode_tok_s']:.1f} / {peer_generation:.1f} tokens/s (nibble / peer)")
    result = {"peer_settings": {"prefill": prefill_settings, "generation": generation_settings}}
    for name, pairs in rates.items():
        ours, theirs = zip(*pairs)
        result[name] = {"tokens": arguments.prompt if name == "prefill" else arguments.generate,
                        "nibble_tok_s": statistics.median(ours),
                        "peer_tok_s": statistics.median(theirs),
                        "nibble_best": max(ours), "peer_best": max(theirs),
                        "ratio": statistics.median(a / b for a, b in pairs),
                        "rounds": [{"nibble": a, "peer": b} for a, b in pairs]}
    result["nibble_run"] = {key: nibble.get(key) for key in (
        "load_s", "weight_bytes_per_step", "kv_bytes_per_step", "achieved_bandwidth",
        "bandwidth_fraction", "resident_bytes", "predicted_bytes")}
    prefill_peer.close()
    generation_peer.close()
    return result


def measure_perplexity(model, ids, add_bos, bos, arguments):
    window = 512
    windows = min(arguments.windows, len(ids) // window)
    if windows < 2:
        raise RuntimeError(f"the text has {len(ids)} tokens, two windows of {window} are needed")
    settings = {"threads": len(os.sched_getaffinity(0)), "ubatch": window, "flash": False}
    peer = Peer(model, settings, window)
    losses = []
    for number in range(windows):
        part = ids[number * window:(number + 1) * window]
        losses += peer.window_losses([bos, *part[1:]] if add_bos else part)
    peer.close()
    result = {"windows": windows, "window": window, "peer": math.exp(statistics.fmean(losses))}
    for act in ("int8", "f32"):
        answer = nibble_json(arguments, "eval", arguments.model, "--text", arguments.text, "--ctx",
                             window, "--chunks", windows, "--protocol", "llama", "--act", act)
        result[f"nibble_act_{act}"] = answer["ppl"]
        note(f"  perplexity, nibble --act {act}: {answer['ppl']:.4f}")
    note(f"  perplexity, peer: {result['peer']:.4f}")
    return result


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="a GGUF file that both can read")
    parser.add_argument("--text", type=pathlib.Path,
                        default=ROOT / "examples/shakespeare/input.txt")
    parser.add_argument("--nibble", type=pathlib.Path, default=ROOT / "build/release/bin/nibble")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prefill test")
    parser.add_argument("--generate", type=int, default=128, help="tokens of the generation test")
    parser.add_argument("--depth", type=int, default=16, help="prompt of the generation test")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--windows", type=int, default=8, help="windows of 512 for perplexity")
    parser.add_argument("--ubatch", type=int, nargs="+", default=[128, 256, 512],
                        help="batch sizes that the peer tries")
    parser.add_argument("--no-perplexity", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object to standard output")
    parser.add_argument("nibble_flags", nargs="*", help="after --: more flags for nibble")
    arguments = parser.parse_args()
    arguments.context = max(arguments.prompt, arguments.depth + arguments.generate) + 64
    return arguments


def main():
    arguments = parse_arguments()
    callback = silence_peer()
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(arguments.model).encode(),
                                                 llama_cpp.llama_model_default_params())
    if not model:
        note(f"llama.cpp cannot read {arguments.model}")
        return 2
    ids, add_bos, bos = tokenize(model, arguments.text.read_text(encoding="utf-8"))
    note(f"{arguments.model.name}, llama-cpp-python {llama_cpp.__version__}")
    result = {"model": arguments.model.name, "peer": f"llama-cpp-python {llama_cpp.__version__}",
              **measure_speed(model, ids, arguments)}
    if not arguments.no_perplexity:
        result["perplexity"] = measure_perplexity(model, ids, add_bos, bos, arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"{'':12}{'nibble':>10}{'peer':>10}{'ratio':>8}   (medians, tokens/s)")
        for name in ("prefill", "generation"):
            row = result[name]
            print(f"{name:12}{row['nibble_tok_s']:10.1f}{row['peer_tok_s']:10.1f}"
                  f"{row['ratio']:8.2f}")
        if "perplexity" in result:
            scores = result["perplexity"]
            print(f"{'perplexity':12}{scores['nibble_act_int8']:10.3f}{scores['peer']:10.3f}"
                  f"           (nibble with f32 activations {scores['nibble_act_f32']:.3f})")
    del callback
    return 0


if __name__ == "__main__":
    sys.exit(main())
