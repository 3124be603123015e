#!/usr/bin/env python3
"""The tables of docs/quality.md: quantises a model by every recipe and prints what each costs.

  tools/quality_table.py methods --text wiki.test.raw
  tools/quality_table.py importance --text wiki.test.raw --chunks 16
  tools/quality_table.py methods --text wiki.test.raw --keep       # on a busy machine
  tools/quality_table.py methods --text wiki.test.raw --speed      # later, on a quiet one

Runs `nibble quantize MODEL OUT ... --text TEXT --json` once per recipe and keeps each answer in
--work, so that a run that was stopped goes on where it was. Standard library only.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

MODELS = ("smollm2-135m-f16", "gemma3-270m-f16")

# Name of a row, and what quantize is given. "calib" is appended where a recipe looks at text.
IMPORTANCE = [(f"{mix}{label}", ["--to", mix] + more)
              for mix in ("q4_k_m", "q3_k_m", "q2_k", "iq4_xs")
              for label, more in (("", []), (" + importance", ["calib"]))]
GROUPS = {"rtn": [], "gptq": ["calib"], "gptq act-order": ["--act-order", "calib"],
          "awq": ["calib"], "awq clip": ["--clip", "calib"], "smoothquant+gptq": ["calib"]}
METHODS = [
    ("q8_0", ["--to", "q8_0"]),
    ("q6_k", ["--to", "q6_k"]),
    ("q5_k_m", ["--to", "q5_k_m"]),
    ("q4_k_m", ["--to", "q4_k_m"]),
    ("q4_k_m + importance", ["--to", "q4_k_m", "calib"]),
    ("q4_k_m gptq", ["--to", "q4_k_m", "--method", "gptq", "calib"]),
    ("iq4_xs + importance", ["--to", "iq4_xs", "calib"]),
    ("q4_0", ["--to", "q4_0"]),
    ("q4_0 gptq", ["--to", "q4_0", "--method", "gptq", "calib"]),
    ("q4_1", ["--to", "q4_1"]),
    ("q4_1 hqq", ["--to", "q4_1", "--method", "hqq"]),
    ("mxfp4", ["--to", "mxfp4"]),
    ("q3_k_m + importance", ["--to", "q3_k_m", "calib"]),
    # 64 inputs a group: SmolLM2's width of 576 is no multiple of 128.
    *[(f"w4a16-g64 {name}", ["--to", "w4a16-g64", "--method", name.split()[0], *flags])
      for name, flags in GROUPS.items()],
    ("w8a8, one scale a matrix", ["--to", "w8a8", "--granularity", "tensor"]),
    ("w8a8, one a row", ["--to", "w8a8"]),
    ("w8a8 smoothquant", ["--to", "w8a8", "--method", "smoothquant", "calib"]),
    ("fp8, one scale a matrix", ["--to", "fp8"]),
    ("fp8-dynamic, one a row", ["--to", "fp8-dynamic"]),
    ("llm-int8", ["--to", "llm-int8", "--method", "llm-int8"]),
    # Not for Gemma, whose norms behind attention and FFN stand in the way.
    ("q4_0 rotated", ["--to", "q4_0", "--rotate", "--seed", "1"]),
    ("q4_0 rotated gptq", ["--to", "q4_0", "--rotate", "--seed", "1", "--method", "gptq", "calib"]),
]
SETS = {"importance": IMPORTANCE, "methods": METHODS}


def quantize(args, model, name, recipe):
    """The JSON of one run, from --work where it is there."""
    slug = f"{pathlib.Path(model).name}-{name}".replace(" ", "_").replace(",", "")
    kept = args.work / f"{slug}.json"
    folder = any(word in " ".join(recipe) for word in ("w4a16", "w8a", "fp8", "llm-int8"))
    out = args.work / (slug if folder else f"{slug}.gguf")
    found = json.loads(kept.read_text()) if kept.exists() else run(args, model, name, recipe, out)
    if found is None:
        return None
    if args.speed and "tokens_per_second" not in found and out.exists():
        found["tokens_per_second"] = speed(args, out)
    kept.write_text(json.dumps(found))
    if not args.keep and out.exists():
        shutil.rmtree(out) if folder else out.unlink()
    return found


def run(args, model, name, recipe, out):
    flags = [flag for flag in recipe if flag != "calib"]
    importance = args.work / f"{pathlib.Path(model).name}.imatrix.gguf"
    if "calib" in recipe and "--method" not in recipe and importance.exists():
        flags += ["--imatrix", str(importance)]  # what the first such recipe collected
    elif "calib" in recipe:
        flags += ["--calib", args.calib, "--calib-sequences", str(args.calib_sequences)]
        flags += [] if "--method" in recipe else ["--save-imatrix", str(importance)]
    command = [args.nibble, "quantize", model, str(out), *flags, "--text", args.text,
               "--chunks", str(args.chunks), "--act", args.act, "--force", "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        print(f"{name}: {done.stderr.strip()}", file=sys.stderr, flush=True)
        return None
    return json.loads(done.stdout) | {"command": " ".join(command[1:])}


def speed(args, model):
    """Tokens a second of one answer, as users run it: median of the rounds of `nibble bench`."""
    done = subprocess.run([args.nibble, "bench", str(model), "-p", "0", "-n", "64", "-r", "5",
                           "-o", "json", "--quiet"], capture_output=True,
                          encoding="utf-8", check=True)
    return json.loads(done.stdout)["rows"][0]["tok_s"]


def row(name, found):
    quality = found["card"]["quality"]
    cells = [name, f"{found['bits_per_weight']:.2f}",
             f"{quality['ppl']:.3f} ± {quality['ppl_se']:.3f}",
             f"{quality['kld']:.5f} ± {quality['kld_se']:.5f}",
             f"{100 * quality['top1']:.1f}% ± {100 * quality['top1_se']:.1f}%"]
    if "tokens_per_second" in found:
        cells.append(f"{found['tokens_per_second']:.0f}")
    # The card's are of the quantising alone; the measurement has both models in memory.
    card = found["card"]
    cells += [f"{card['peak_resident_bytes'] / 1e6:.0f} MB", f"{card['cpu_seconds']:.0f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--text", required=True, help="measured on; not the calibration's")
    parser.add_argument("--calib", default="built-in")
    parser.add_argument("--calib-sequences", default=16, type=int, help="of 512 tokens; 0: all")
    parser.add_argument("--model", action="append", help=f"default: {', '.join(MODELS)}")
    parser.add_argument("--chunks", default=16, type=int, help="windows of 512 tokens; 0: all")
    parser.add_argument("--act", default="f32", help="f32: the weights' error alone")
    parser.add_argument("--only", default="", help="recipes whose name contains this")
    parser.add_argument("--speed", action="store_true", help="also run `nibble bench` on what was made or kept")
    parser.add_argument("--keep", action="store_true", help="keep the files that were made")
    parser.add_argument("--nibble", default="build/release/bin/nibble")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/quality"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for model in args.model or MODELS:
        head = ["recipe", "bits", "perplexity", "divergence", "same top"]
        head += (["tokens/s"] if args.speed else []) + ["peak memory", "CPU seconds"]
        print(f"\n{model}\n\n| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
        for name, recipe in SETS[args.set]:
            if args.only in name:
                found = quantize(args, model, name, recipe)
                if found:
                    print(row(name, found), flush=True)


if __name__ == "__main__":
    main()
