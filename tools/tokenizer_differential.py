#!/usr/bin/env python3
"""Compares nibble's tokenizer with the Python packages on generated texts.

    tools/tokenizer_differential.py --driver build/release/bin/tokenize_lines \
        [--data ../shared/data] [--seed 1] [--count 300] [--only NAME] [FILE ...]

FILE: tokenizer.json, *.model or *.tiktoken; without one, all of --data. Every tokenizer.ggml.pre
expression is compared with the `regex` package too. Exit code 1: a difference was found.
Needs: tokenizers, sentencepiece, tiktoken, regex.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unicodedata

POOLS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " ",
    " \t\n\r",
    "\u00a0\u2003\u3000\u2028\u0085\u200b\u200d\ufeff",
    ".,;:!?'\"()[]{}<>|/\\@#$%^&*-_=+`~",
    "äöüßéèñçøåÄÖÜÉÑİıſǅ",
    "абвгдеёжзАБВГД",
    "αβγδεζΑΒΓΔ",
    "漢字仮名日本語中文简体",
    "ひらがなカタカナー",
    "한국어글자",
    "العربيةאבגד",
    "हिन्दीกขคง",
    "\u0301\u0308\u0323\u20d0",
    "😀🎉👍🏽👨‍👩‍👧🇩🇪❤️",
    "½²³ⅣⅷⅫ१२३٤٥",
    "▁Ġ«»“”‘’…—–",
    "ﬁﬂａＡ１ｱ㌔",
    "\x00\x01\x07\x1b\x7f\x9f",
]
WORDS = ["the", "The", "Hello", "world", "I'm", "don't", "WE'LL", "it's", "  ", "\n\n", "    ",
         "1234567", "3.14", "foo_bar", "https://example.com/a?b=c", "camelCase", "XMLHttp", "don’t",
         " token", "\r\n", "\t\t", "ﬀ", "naïve", "Straße", "e\u0301", "안녕", "中国人"]


def known(c):
    """Characters that Unicode 14 has, the version of the oldest table in use."""
    return unicodedata.category(c) not in ("Cn", "Cs")


def make_text(rng, special):
    parts = []
    for _ in range(rng.randint(0, 14)):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(WORDS))
        elif kind < 0.8:
            pool = rng.choice(POOLS)
            parts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 8))))
        elif kind < 0.86 and special:
            parts.append(rng.choice(special))
        elif kind < 0.92:
            parts.append(rng.choice(rng.choice(POOLS)) * rng.randint(2, 60))
        else:
            c = chr(rng.randint(1, 0x2FFFF))
            parts.append(c if known(c) and c.isprintable() else "x")
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def drive(driver, arguments, texts):
    stdin = "".join(json.dumps(t) + "\n" for t in texts)
    done = subprocess.run([driver, *arguments], input=stdin.encode(), capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode())
    lines = done.stdout.decode().split("\n")[:-1]
    assert len(lines) == len(texts), (len(lines), len(texts))
    return [json.loads(line) for line in lines]


class Report:
    def __init__(self):
        self.differences = 0

    def compare(self, name, texts, ours, expected):
        bad = 0
        for text, got, want in zip(texts, ours, expected):
            if got == want:
                continue
            bad += 1
            if bad <= 3:
                print(f"  {name}: {text!r}\n    nibble    {str(got)[:300]}\n    reference "
                      f"{str(want)[:300]}")
        self.differences += bad
        print(f"{name}: {len(texts)} texts, {bad} differences", flush=True)


def check_hf(path, options, rng, report):
    from tokenizers import Tokenizer
    reference = Tokenizer.from_file(str(path))
    # A file beside it would change what is put around a text: compare the file alone.
    with tempfile.TemporaryDirectory() as folder:
        alone = pathlib.Path(folder) / "tokenizer.json"
        alone.write_bytes(path.read_bytes())
        special = [t.content for t in reference.get_added_tokens_decoder().values()]
        texts = [make_text(rng, special) for _ in range(options.count)]
        want = [reference.encode(t).ids for t in texts]
        got = drive(options.driver, [str(alone)], texts)
        report.compare(f"{path.name} ids", texts, [g.get("ids") for g in got], want)
        decoded = [reference.decode(ids, skip_special_tokens=False) for ids in want]
        report.compare(f"{path.name} text", texts, [g.get("text") for g in got], decoded)
        reference.encode_special_tokens = True
        want = [reference.encode(t, add_special_tokens=False).ids for t in texts]
        got = drive(options.driver, [str(alone), "--no-special", "--plain"], texts)
        report.compare(f"{path.name} plain", texts, [g.get("ids") for g in got], want)


def check_sentencepiece(path, options, rng, report):
    import sentencepiece
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    texts = [make_text(rng, []).replace("\x00", "") for _ in range(options.count)]
    want = [reference.encode(t) for t in texts]
    with tempfile.TemporaryDirectory() as folder:
        alone = pathlib.Path(folder) / "tokenizer.model"
        alone.write_bytes(path.read_bytes())
        got = drive(options.driver, [str(alone), "--no-special", "--plain"], texts)
    report.compare(f"{path.name} ids", texts, [g.get("ids") for g in got], want)


def check_tiktoken(path, options, rng, report):
    import base64
    import tiktoken
    import tiktoken_ext.openai_public as public
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    # The constructor's own arguments, without its download.
    name = path.stem
    original = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda *a, **k: ranks
    arguments = getattr(public, name)()
    public.load_tiktoken_bpe = original
    reference = tiktoken.Encoding(**arguments)
    special = list(arguments["special_tokens"])
    texts = [make_text(rng, special) for _ in range(options.count)]
    want = [reference.encode(t, allowed_special="all") for t in texts]
    got = drive(options.driver, [str(path)], texts)
    report.compare(f"{path.name} ids", texts, [g.get("ids") for g in got], want)
    report.compare(f"{path.name} text", texts, [g.get("text") for g in got], texts)
    want = [reference.encode(t, disallowed_special=()) for t in texts]
    got = drive(options.driver, [str(path), "--plain"], texts)
    report.compare(f"{path.name} plain", texts, [g.get("ids") for g in got], want)


def check_vocab_merges(vocab, merges, options, rng, report):
    from tokenizers import Tokenizer, models, pre_tokenizers
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "vocab.json").write_bytes(vocab.read_bytes())
        (folder / "merges.txt").write_bytes(merges.read_bytes())
        reference = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"),
                                                   str(folder / "merges.txt")))
        reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        texts = [make_text(rng, []) for _ in range(options.count)]
        want = [reference.encode(t).ids for t in texts]
        got = drive(options.driver, [str(folder / "vocab.json"), "--plain"], texts)
    report.compare(f"{vocab.parent.name}/{vocab.name} ids", texts, [g.get("ids") for g in got],
                   want)


def python_expression(expression):
    """\\x{e9} is a character of its own to the `regex` package."""
    return re.sub(r"\\x\{([0-9a-f]+)\}", lambda m: chr(int(m.group(1), 16)), expression)


def split_with_regex(expressions, text):
    import regex
    pieces = [text] if text else []
    for expression in expressions:
        compiled = regex.compile(python_expression(expression), regex.V1 | regex.MULTILINE)
        after = []
        for piece in pieces:
            start = 0
            for m in compiled.finditer(piece):
                after.append(piece[start:m.start()])
                after.append(m.group())
                start = m.end()
            after.append(piece[start:])
        pieces = [p for p in after if p]
    return pieces


def check_pre_types(options, rng, report):
    listed = subprocess.run([options.driver, "--pre-list"], capture_output=True, check=True)
    rows = [json.loads(line) for line in listed.stdout.decode().splitlines()]
    seen = {}
    for row in rows:
        key = json.dumps(row["expressions"])
        if key in seen:
            continue
        seen[key] = row["name"]
        texts = [make_text(rng, ["<sentinel:12>", "IMGIMGABZ"]) for _ in range(options.count)]
        # U+001C … U+001F are white space to Python's package alone.
        texts = [t.translate({c: None for c in range(0x1C, 0x20)}) for t in texts]
        want = [split_with_regex(row["expressions"], t) for t in texts]
        got = drive(options.driver, ["--pre", row["name"]], texts)
        report.compare(f"pre {row['name']}", texts, got, want)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--driver", default=str(root / "build/release/bin/tokenize_lines"))
    parser.add_argument("--data", type=pathlib.Path, default=root / "../shared/data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--only", default="", help="part of a file's name, or 'pre'")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    files = options.files
    folder = options.data / "tokenizers"
    if not files:
        files = sorted([*folder.glob("*/*tokenizer.json"), *folder.glob("*/*.model*"),
                        *folder.glob("*/*.tiktoken"), *folder.glob("*/vocab.json"),
                        *folder.glob("*/encoder.json")])
    report = Report()
    for path in files:
        if options.only not in path.name:
            continue
        rng = random.Random(f"{options.seed}/{path.name}")
        if path.suffix == ".tiktoken":
            check_tiktoken(path, options, rng, report)
        elif path.name in ("vocab.json", "encoder.json"):
            merges = [path.parent / n for n in ("merges.txt", "vocab.bpe")]
            check_vocab_merges(path, next(m for m in merges if m.exists()), options, rng, report)
        elif path.suffix == ".json":
            check_hf(path, options, rng, report)
        else:
            check_sentencepiece(path, options, rng, report)
    if not options.files and options.only in ("", "pre"):
        check_pre_types(options, random.Random(options.seed), report)
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
