#!/usr/bin/env python3
"""Compares nibble with llama.cpp on one GGUF file: speed in alternation, and perplexity.

    pip install llama-cpp-python
    python bench/compare.py model.gguf --text wiki.test.raw
    python bench/compare.py --random tinyllama-1.1b --to q4_k_m --tokenizer model.gguf
    python bench/compare.py model.gguf --peer-bench ik_llama.cpp/build/bin --peer-repack

Tests: prefill (a prompt of 512 tokens), generation (128 tokens one by one after 16), and batch (16
sequences that generate together, each with its own sequence id, tokens of all counted). The peer
first tries its settings one after the other (threads, flash attention, batch size, kind of cache)
and keeps the best of each. Then both run in turn, several rounds, the order changing, and medians and
the median of the rounds' ratios are printed: the machine's mood changes by tens of percent, but
little within a round. A speed counts only with the perplexity beside it, so both programs score the
same windows of the text (llama.cpp's protocol: windows of 512, the second half scored). nibble's
figures are those of `nibble bench`: forward passes and the greedy choice, no sampler on either side.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ("prefill", "generation", "batch")


def note(*words):
    print(*words, file=sys.stderr, flush=True)


def best_settings(peer, test):
    """Settings found one after the other, from a sensible start; and all that was tried."""
    choices = peer.choices(test)
    best = {"threads": choices["threads"][0], "flash": choices["flash"][0], "ubatch": 512}
    best |= {name: values[0] for name, values in choices.items() if name not in best}
    tried = {json.dumps(best): peer.rate(test, best)}
    for name, values in choices.items():
        for value in values:
            settings = best | {name: value}
            key = json.dumps(settings)
            if key not in tried:
                try:
                    tried[key] = peer.rate(test, settings)
                except RuntimeError as error:
                    note(f"  {error}")
                    tried[key] = 0
                note(f"  {test}: peer {key} {tried[key]:.1f} tokens/s")
        best = json.loads(max(tried, key=tried.get))
    return best, tried


def nibble_json(arguments, *words):
    command = [arguments.nibble, *words, *arguments.nibble_flags, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"nibble {' '.join(map(str, words))[:200]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def nibble_rate(arguments, test):
    a = arguments
    words = {"prefill": ("-p", a.prompt, "-n", 0),
             "generation": ("-p", 0, "-n", a.generate, "-d", a.depth),
             "batch": ("-p", 0, "-n", a.batch_steps, "-d", a.depth, "-b", a.batch)}[test]
    return nibble_json(a, "bench", a.model, *words, "-r", 1)["rows"][0]["tok_s"]


def measure_speed(peer, arguments):
    result = {}
    for test in arguments.tests:
        settings, tried = best_settings(peer, test)
        peer.use(test, settings)
        result[test] = {"peer_settings": settings, "peer_tried": tried}
    rounds = {test: [] for test in arguments.tests}
    for number in range(arguments.rounds):
        for test in arguments.tests:
            if number % 2 == 0:
                theirs = peer.run(test)
                ours = nibble_rate(arguments, test)
            else:
                ours = nibble_rate(arguments, test)
                theirs = peer.run(test)
            rounds[test].append((ours, theirs))
            note(f"  round {number + 1}, {test}: nibble {ours:.1f}, peer {theirs:.1f} tokens/s")
    for test, pairs in rounds.items():
        ours, theirs = zip(*pairs)
        ratios = [a / b for a, b in pairs]
        result[test] |= {"nibble_tok_s": statistics.median(ours),
                         "peer_tok_s": statistics.median(theirs),
                         "nibble_best": max(ours), "peer_best": max(theirs),
                         "ratio": statistics.median(ratios),
                         "ratio_min": min(ratios), "ratio_max": max(ratios),
                         "rounds": [{"nibble": a, "peer": b} for a, b in pairs]}
    return result


def measure_perplexity(peer, arguments):
    window = 512
    result = {"windows": arguments.windows, "window": window,
              "peer": peer.perplexity(arguments.windows, window)}
    for act in ("int8", "f32"):
        answer = nibble_json(arguments, "eval", arguments.model, "--text", arguments.text, "--ctx",
                             window, "--chunks", arguments.windows, "--protocol", "llama", "--act",
                             act)
        result[f"nibble_act_{act}"] = answer["ppl"]
    note("  perplexity:", result)
    return result


def random_model(arguments):
    """The file of a random shape, written unless it is there."""
    shape = pathlib.Path(arguments.random).name.removesuffix(".json")
    name = f"random-{shape}-{arguments.to}.gguf"
    path = ROOT / "build/models" / name
    if not path.exists():
        if not arguments.tokenizer:
            raise RuntimeError("--random needs --tokenizer, a GGUF file to take the vocabulary from")
        path.parent.mkdir(parents=True, exist_ok=True)
        tool = arguments.nibble.parent / "write_random"
        subprocess.run([tool, arguments.random, arguments.to, arguments.tokenizer, path],
                       check=True)
    return path


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, nargs="?", help="a GGUF file for both")
    parser.add_argument("--random", metavar="SHAPE", help="a shape of nibble bench --random instead")
    parser.add_argument("--to", default="q4_k_m", help="format of the random weights")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="GGUF file with a vocabulary")
    parser.add_argument("--text", type=pathlib.Path,
                        default=ROOT / "examples/shakespeare/input.txt")
    parser.add_argument("--nibble", type=pathlib.Path, default=ROOT / "build/release/bin/nibble")
    parser.add_argument("--peer-bench", type=pathlib.Path,
                        help="folder of another llama.cpp build's tools, instead of the library")
    parser.add_argument("--peer-name", help="its name in the table")
    parser.add_argument("--peer-repack", action="store_true",
                        help="ik_llama.cpp's run-time repacking (-rtr)")
    parser.add_argument("--tests", nargs="+", choices=TESTS, default=list(TESTS))
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prefill test")
    parser.add_argument("--generate", type=int, default=128, help="tokens of the generation test")
    parser.add_argument("--depth", type=int, default=16, help="prompt before generation")
    parser.add_argument("--batch", type=int, default=16, help="sequences of the batch test")
    parser.add_argument("--batch-steps", type=int, default=48, help="tokens of each of them")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--windows", type=int, default=8, help="windows of 512 for perplexity")
    parser.add_argument("--ubatch", type=int, nargs="+", default=[512, 256, 128],
                        help="batch sizes that the peer tries for prefill")
    parser.add_argument("--no-perplexity", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object to standard output")
    parser.add_argument("nibble_flags", nargs="*", help="after --: more flags for nibble")
    arguments = parser.parse_args()
    if (arguments.model is None) == (arguments.random is None):
        parser.error("give a model file, or --random SHAPE")
    arguments.nibble = arguments.nibble.resolve()
    return arguments


def open_peer(arguments):
    if arguments.peer_bench:
        from peer_tools import ToolsPeer
        return ToolsPeer(arguments)
    from peer_library import LibraryPeer
    return LibraryPeer(arguments)


def print_table(result, arguments):
    print(f"{result['model']}, nibble beside {result['peer']}; tokens/s, medians of "
          f"{arguments.rounds} rounds\n")
    print("| test | nibble | peer | ratio (least … most) | the peer's settings |")
    print("|---|---:|---:|---:|---|")
    for test in arguments.tests:
        row = result[test]
        settings = ", ".join(f"{k} {v}" for k, v in row["peer_settings"].items())
        print(f"| {test} | {row['nibble_tok_s']:.1f} | {row['peer_tok_s']:.1f} | "
              f"{row['ratio']:.2f} ({row['ratio_min']:.2f} … {row['ratio_max']:.2f}) | {settings} |")
    if "perplexity" in result:
        scores = result["perplexity"]
        print(f"| perplexity, {scores['windows']} windows | {scores['nibble_act_int8']:.4f} | "
              f"{scores['peer']:.4f} | | nibble with f32 activations "
              f"{scores['nibble_act_f32']:.4f} |")
    if result["peer_flags"]:
        print(f"\nThe peer's flags: {result['peer_flags']}")


def main():
    arguments = parse_arguments()
    try:
        if arguments.random:
            arguments.model = random_model(arguments)
        peer = open_peer(arguments)
        note(f"{arguments.model.name}, {peer.name}; {peer.flags}")
        result = {"model": arguments.model.name, "peer": peer.name, "peer_flags": peer.flags,
                  **measure_speed(peer, arguments)}
        if not arguments.no_perplexity:
            result["perplexity"] = measure_perplexity(peer, arguments)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        note(f"compare.py: {error}")
        return 2
    if arguments.json:
        print(json.dumps(result))
    else:
        print_table(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
