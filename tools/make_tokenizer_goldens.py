#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/*.json: token ids by the Python packages.

    tools/make_tokenizer_goldens.py [--data ../shared/data] [--out tests/golden/tokenizer]

published.json: tokenizers of --data that come without expected ids.
synthetic.json: small tokenizer.json files, one for each kind of normaliser, pre-tokeniser, decoder,
post-processor, model option and added-token flag, with their ids.
Needs: tokenizers, sentencepiece, tiktoken.
"""

import argparse
import base64
import json
import pathlib
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)

TEXTS = [
    "", " ", "  ", "Hello world", " Hello  world \n\n\n x", "\t\r\n", "I'm WE'LL don't 'S it’s",
    "3.14159 1234567 ½ ²³ ١٢٣ Ⅷ", "naïve Café Straße İstanbul ǅ ſ", "e\u0301a\u0308 n\u0303",
    "漢字かなカナー 日本語。中文，标点！", "안녕하세요 세계", "العربية हिन्दी ไทย",
    "😀👍🏽👨‍👩‍👧🇩🇪 ❤️", "a\u00a0b\u2003c\u3000d\u200be\u2028f\ufeffg", "ﬁﬂ Ａ１ ｱ ㌔ ™",
    "<s>x</s> <unk> <|im_start|>user", "foo_bar(x)[1] = {\"k\": 'v'}; // ok?", "▁under ▁▁ Ġ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "xyz" * 30, "\u0000\u0007\u007f", "a-b a--b -",
    "The quick brown fox jumps over the lazy dog.", "... !!! ?! ,,",
]
TRAINING = TEXTS + ["the cat sat on the mat", "the dog ate the cat", "low lower lowest newer"]


def cases(reference, texts=None):
    out = []
    for text in texts or TEXTS:
        ids = reference.encode(text).ids
        reference.encode_special_tokens = True
        plain = reference.encode(text, add_special_tokens=False).ids
        reference.encode_special_tokens = False
        row = {"text": text, "ids": ids, "plain": plain}
        # tokenizers 0.23 decodes a normalised added token to its normalised text, older ones to its
        # own, as nibble does.
        if all(t.content == reference.id_to_token(i)
               for i, t in reference.get_added_tokens_decoder().items()):
            row["decoded"] = reference.decode(ids, skip_special_tokens=False)
        out.append(row)
    return out


def train(model, trainer_texts=None, **options):
    """A small vocabulary of the model's kind."""
    from tokenizers import trainers
    tokenizer = Tokenizer(model)
    if "normalizer" in options:
        tokenizer.normalizer = options["normalizer"]
    if "pre_tokenizer" in options:
        tokenizer.pre_tokenizer = options["pre_tokenizer"]
    kinds = {"BPE": trainers.BpeTrainer, "WordPiece": trainers.WordPieceTrainer,
             "Unigram": trainers.UnigramTrainer, "WordLevel": trainers.WordLevelTrainer}
    name = type(model).__name__
    arguments = {"vocab_size": options.get("vocab_size", 160), "show_progress": False,
                 "special_tokens": options.get("special", ["<unk>", "<s>", "</s>"])}
    if name == "Unigram":
        arguments["unk_token"] = "<unk>"
    if name == "BPE" and "alphabet" in options:
        arguments["initial_alphabet"] = options["alphabet"]
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if key in options:
            arguments[key] = options[key]
    tokenizer.train_from_iterator(trainer_texts or TRAINING, kinds[name](**arguments))
    return tokenizer


def bpe(**options):
    return train(models.BPE(unk_token="<unk>", **options.pop("model", {})), **options)


def synthetic():
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    n, p, d = normalizers, pre_tokenizers, decoders
    yield "bpe plain", bpe(pre_tokenizer=p.WhitespaceSplit())
    for name, normalizer in {
        "NFC": n.NFC(), "NFD": n.NFD(), "NFKC": n.NFKC(), "NFKD": n.NFKD(),
        "Lowercase": n.Lowercase(), "Strip": n.Strip(), "StripLeft": n.Strip(True, False),
        "StripAccents": n.Sequence([n.NFD(), n.StripAccents()]),
        "Replace": n.Replace("o", "0"), "ReplaceRegex": n.Replace(Regex(r"\s+"), " "),
        "Prepend": n.Prepend("▁"), "Nmt": n.Nmt(), "Bert": n.BertNormalizer(),
        "BertCased": n.BertNormalizer(lowercase=False, strip_accents=False),
        "BertAccents": n.BertNormalizer(lowercase=True, strip_accents=False),
        "BertPlain": n.BertNormalizer(clean_text=False, handle_chinese_chars=False),
        "Sequence": n.Sequence([n.NFKC(), n.Lowercase(), n.Replace(" ", "▁")]),
    }.items():
        yield f"normalizer {name}", bpe(normalizer=normalizer, pre_tokenizer=p.Whitespace())
    for name, pre in {
        "Whitespace": p.Whitespace(), "WhitespaceSplit": p.WhitespaceSplit(),
        "Punctuation": p.Punctuation(), "PunctuationMerged": p.Punctuation("merged_with_next"),
        "PunctuationContiguous": p.Punctuation("contiguous"), "Bert": p.BertPreTokenizer(),
        "Delimiter": p.CharDelimiterSplit("-"), "Digits": p.Digits(False),
        "DigitsEach": p.Digits(True), "Metaspace": p.Metaspace(),
        "MetaspaceFirst": p.Metaspace(prepend_scheme="first"),
        "MetaspaceNever": p.Metaspace(prepend_scheme="never", split=False),
        "Sequence": p.Sequence([p.WhitespaceSplit(), p.Digits(True), p.Punctuation()]),
        "FixedLength": p.FixedLength(3),
    }.items():
        yield f"pre {name}", bpe(pre_tokenizer=pre, vocab_size=220)
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next",
                     "contiguous"):
        for invert in (False, True):
            pre = p.Split(Regex(r"\s|[aeiou]{1,2}+"), behavior, invert)
            yield f"split {behavior} {invert}", bpe(pre_tokenizer=pre)
    yield "split text", bpe(pre_tokenizer=p.Split("the", "isolated"))
    yield "split sets", bpe(pre_tokenizer=p.Split(
        Regex(r"[\p{L}&&[^\p{Han}]]+|\p{Han}+|[^\s\p{L}]+|(?i:HELLO)\h"), "isolated"))
    for name, options in {"": {}, " prefix": {"add_prefix_space": True},
                          " no regex": {"use_regex": False}}.items():
        options = {"add_prefix_space": False, **options}
        tokenizer = train(models.BPE(), pre_tokenizer=p.ByteLevel(**options), vocab_size=300,
                          alphabet=alphabet)
        tokenizer.decoder = d.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel()
        yield f"byte level{name}", tokenizer
    tokenizer = train(models.BPE(), pre_tokenizer=p.Sequence(
        [p.ByteLevel(add_prefix_space=False), p.Digits(True)]), vocab_size=300, alphabet=alphabet)
    tokenizer.decoder = d.ByteLevel()
    yield "byte level then digits", tokenizer
    yield from synthetic_models(alphabet)
    yield from synthetic_rest(alphabet)


def synthetic_models(alphabet):
    p, d = pre_tokenizers, decoders
    few = ["abc the cat"] * 3
    for fuse in (False, True):
        yield f"bpe fuse_unk {fuse}", bpe(model={"fuse_unk": fuse}, trainer_texts=few)
    tokenizer = bpe(model={"byte_fallback": True}, trainer_texts=few,
                    special=["<unk>", *(f"<0x{b:02X}>" for b in range(256))], vocab_size=300)
    tokenizer.decoder = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(),
                                    d.Strip(" ", 1, 0)])
    # Trained as special tokens, the bytes must not be found in texts.
    raw = json.loads(tokenizer.to_str())
    raw["added_tokens"] = raw["added_tokens"][:1]
    yield "bpe byte fallback", Tokenizer.from_str(json.dumps(raw))
    yield "bpe no unk", train(models.BPE(), trainer_texts=few)
    tokenizer = bpe(pre_tokenizer=p.WhitespaceSplit(), end_of_word_suffix="</w>",
                    model={"end_of_word_suffix": "</w>"})
    tokenizer.decoder = d.BPEDecoder()
    yield "bpe suffix", tokenizer
    tokenizer = bpe(pre_tokenizer=p.WhitespaceSplit(), continuing_subword_prefix="##",
                    model={"continuing_subword_prefix": "##"})
    tokenizer.decoder = d.WordPiece()
    yield "bpe prefix", tokenizer
    tokenizer = train(models.BPE(ignore_merges=True), pre_tokenizer=p.ByteLevel(False),
                      vocab_size=300, alphabet=alphabet)
    raw = json.loads(tokenizer.to_str())
    raw["model"]["vocab"]["hedog"] = 300  # a token that no merges lead to
    raw["model"]["vocab"]["xyzxyz"] = 301
    yield "bpe ignore merges", Tokenizer.from_str(json.dumps(raw))
    tokenizer = train(models.WordPiece(unk_token="<unk>"), pre_tokenizer=p.BertPreTokenizer())
    tokenizer.decoder = d.WordPiece()
    yield "wordpiece", tokenizer
    tokenizer = train(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=4),
                      pre_tokenizer=p.BertPreTokenizer())
    tokenizer.decoder = d.WordPiece("##", False)
    yield "wordpiece short words", tokenizer
    yield "word level", train(models.WordLevel(unk_token="<unk>"), pre_tokenizer=p.Whitespace())
    tokenizer = Tokenizer(models.WordLevel(
        {c: i for i, c in enumerate(["<unk>", *sorted(set("".join(TEXTS)))])}, "<unk>"))
    tokenizer.pre_tokenizer = p.Split(Regex(r"(?m:.)"), "isolated")
    tokenizer.decoder = d.Fuse()
    yield "characters", tokenizer
    tokenizer = train(models.Unigram(), pre_tokenizer=p.Metaspace(), vocab_size=260)
    tokenizer.decoder = d.Metaspace()
    yield "unigram", tokenizer
    raw = json.loads(tokenizer.to_str())
    raw["model"]["byte_fallback"] = True
    raw["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    raw["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁",
                                   "prepend_scheme": "always", "split": True}]}
    yield "unigram byte fallback", Tokenizer.from_str(json.dumps(raw))


def synthetic_rest(alphabet):
    p, d = pre_tokenizers, decoders
    flags = [AddedToken("<mask>", lstrip=True), AddedToken("<sep>", rstrip=True),
             AddedToken("cat", single_word=True), AddedToken("Fox", normalized=True),
             AddedToken("  ", normalized=False), AddedToken("ab", special=True),
             AddedToken("abc", normalized=False)]
    texts = ["x <mask> y <mask>", "a <sep>  b<sep>", "cat concat cat's the cat.", "a fox FOX Fox",
             "a  b   c    d", "ab abc abcd xab", "<mask><sep>cat", " <mask>  <sep>  cat ", ""]
    for name, normalizer in {"": None, " lowercase": normalizers.Lowercase(),
                             " prepend": normalizers.Prepend("▁")}.items():
        tokenizer = bpe(pre_tokenizer=p.WhitespaceSplit())
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.add_tokens(flags)
        yield f"added tokens{name}", (tokenizer, texts)
    for name, processor in {
        "template": processors.TemplateProcessing(
            single="<s> $A </s> <s>", special_tokens=[("<s>", 1), ("</s>", 2)]),
        "bert": processors.BertProcessing(("</s>", 2), ("<s>", 1)),
        "roberta": processors.RobertaProcessing(("</s>", 2), ("<s>", 1)),
        "sequence": processors.Sequence([
            processors.ByteLevel(), processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", 1)])]),
    }.items():
        tokenizer = bpe(pre_tokenizer=p.WhitespaceSplit())
        tokenizer.post_processor = processor
        yield f"post {name}", tokenizer
    for name, decoder in {
        "ctc": d.CTC("a", "e"), "strip": d.Strip("h", 0, 1), "replace": d.Replace("a", "_"),
        "regex": d.Replace(Regex("[aeiou]"), "."), "metaspace never": d.Metaspace("▁", "never"),
        "sequence": d.Sequence([d.Replace("th", "TH"), d.Fuse(), d.Strip("T", 1, 0)]),
    }.items():
        tokenizer = bpe(pre_tokenizer=p.Metaspace())
        tokenizer.decoder = decoder
        yield f"decoder {name}", tokenizer


class TiktokenReference:
    def __init__(self, path):
        import tiktoken
        import tiktoken_ext.openai_public as public
        ranks = {}
        for line in path.read_bytes().splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        original = public.load_tiktoken_bpe
        public.load_tiktoken_bpe = lambda *a, **k: ranks
        arguments = getattr(public, path.stem)()
        public.load_tiktoken_bpe = original
        self.encoding = tiktoken.Encoding(**arguments)

    def rows(self, texts):
        return [{"text": t, "ids": self.encoding.encode(t, allowed_special="all")} for t in texts]


def published(folder):
    """name: the file under tokenizers/, and its rows."""
    import sentencepiece
    texts = TEXTS + ["<|endoftext|>x", "<|im_end|>\n", "def f(x):\n    return x  # ok\n\n\n"]
    for name in ("minimind/tokenizer.json", "phi-3-mini/tokenizer.json"):
        reference = Tokenizer.from_file(str(folder / name))
        rows = [{"text": t, "ids": reference.encode(t, add_special_tokens=False).ids}
                for t in texts]
        yield name, rows
    for name, vocab, merges in (("gpt2/encoder.json", "encoder.json", "vocab.bpe"),
                                ("qwen2/vocab.json", "vocab.json", "merges.txt")):
        with tempfile.TemporaryDirectory() as temporary:
            temporary = pathlib.Path(temporary)
            base = (folder / name).parent
            (temporary / "v.json").write_bytes((base / vocab).read_bytes())
            (temporary / "m.txt").write_bytes((base / merges).read_bytes())
            reference = Tokenizer(models.BPE.from_file(str(temporary / "v.json"),
                                                       str(temporary / "m.txt")))
        if name.startswith("qwen2"):
            pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
                       r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
            reference.normalizer = normalizers.NFC()
            reference.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
            config = json.loads((folder / "qwen2/tokenizer_config.json").read_text())
            reference.add_special_tokens([t["content"] for _, t in sorted(
                config["added_tokens_decoder"].items(), key=lambda item: int(item[0]))])
        else:
            reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            reference.add_special_tokens(["<|endoftext|>"])
        yield name, [{"text": t, "ids": reference.encode(t).ids} for t in texts]
    for name in ("mistral/tokenizer.model.v1", "mistral/mistral_instruct_tokenizer_240323.model.v3",
                 "sentencepiece/test_model.model", "sentencepiece/test_ja_model.model"):
        reference = sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
        plain = [t for t in texts if "\x00" not in t]
        yield name, [{"text": t, "ids": reference.encode(t)} for t in plain]
    name = "tiktoken/cl100k_base.tiktoken"
    yield name, TiktokenReference(folder / name).rows(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--data", type=pathlib.Path, default=root / "../shared/data")
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/golden/tokenizer")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, tokenizer in synthetic():
        tokenizer, texts = tokenizer if isinstance(tokenizer, tuple) else (tokenizer, None)
        rows.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()),
                     "cases": cases(tokenizer, texts)})
    write(options.out / "synthetic.json", rows)
    rows = [{"file": name, "cases": found}
            for name, found in published(options.data / "tokenizers")]
    write(options.out / "published.json", rows)


def write(path, rows):
    """One row per line, so that differences can be read."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")
    print(path, len(rows), "rows,", path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
