#!/usr/bin/env python3
"""Converts a llama2.c checkpoint (legacy format, version 0) and its tokenizer.bin to GGUF v3.

    python3 tools/llama2c_to_gguf.py stories260K.bin tok512.bin stories260K.gguf

The weights stay 32-bit floats. Both formats rotate neighbouring pairs in RoPE, so no row is
reordered. llama2.c stores the SentencePiece mark U+2581 as a space; it is put back here. Only the
standard library is used.
"""

import argparse
import pathlib
import struct
import sys

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # GGUF value types
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # GGUF token types
F32 = 0  # GGUF tensor type


class BadFile(Exception):
    pass


class Reader:
    def __init__(self, path):
        self.path = path
        self.data = path.read_bytes()
        self.at = 0

    def take(self, count, what):
        if count < 0 or count > len(self.data) - self.at:
            raise BadFile(f"{self.path}: {what} needs {count} bytes at offset {self.at}, "
                          f"the file has {len(self.data)}")
        self.at += count
        return self.data[self.at - count:self.at]

    def unpack(self, form, what):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), what))


def read_checkpoint(path):
    """(config, [(GGUF name, shape with the fastest dimension first, bytes)])."""
    reader = Reader(path)
    names = ("dim", "hidden", "layers", "heads", "kv_heads", "vocabulary", "context")
    config = dict(zip(names, reader.unpack("7i", "the header")))
    shared = config["vocabulary"] > 0
    config["vocabulary"] = abs(config["vocabulary"])
    if min(config.values()) <= 0 or config["dim"] % config["heads"] \
            or config["heads"] % config["kv_heads"]:
        raise BadFile(f"{path}: no legacy llama2.c header: {config}")
    dim, hidden, layers = config["dim"], config["hidden"], config["layers"]
    head = dim // config["heads"]
    kv_dim = head * config["kv_heads"]
    tensors = []

    def one(name, *shape):
        count = 4
        for size in shape:
            count *= size
        tensors.append((name, shape, reader.take(count, name)))

    def per_layer(name, *shape):
        for layer in range(layers):
            one(f"blk.{layer}.{name}.weight", *shape)

    one("token_embd.weight", dim, config["vocabulary"])
    per_layer("attn_norm", dim)
    per_layer("attn_q", dim, dim)
    per_layer("attn_k", dim, kv_dim)
    per_layer("attn_v", dim, kv_dim)
    per_layer("attn_output", dim, dim)
    per_layer("ffn_norm", dim)
    per_layer("ffn_gate", dim, hidden)  # w1
    per_layer("ffn_down", hidden, dim)  # w2
    per_layer("ffn_up", dim, hidden)    # w3
    one("output_norm.weight", dim)
    reader.take(2 * 4 * config["context"] * (head // 2), "the RoPE tables")  # computed, not read
    if not shared:
        one("output.weight", dim, config["vocabulary"])
    if reader.at != len(reader.data):
        raise BadFile(f"{path}: {len(reader.data) - reader.at} bytes too many")
    return config, tensors


def read_tokenizer(path, count):
    """[(piece, score, type)] for every id."""
    reader = Reader(path)
    reader.unpack("i", "the longest token's length")
    tokens = []
    for index in range(count):
        score, length = reader.unpack("fi", f"token {index}")
        piece = reader.take(length, f"token {index}").decode("utf-8")
        if index < 3:
            kind = UNKNOWN if index == 0 else CONTROL
            tokens.append((("<unk>", "<s>", "</s>")[index], 0.0, kind))
        elif len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            tokens.append((piece, score, BYTE))
        else:
            tokens.append((piece.replace(" ", "\u2581"), score, NORMAL))
    return tokens


def gguf_string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def metadata(config, tokens, name):
    yield "general.architecture", STRING, "llama"
    yield "general.name", STRING, name
    yield "general.alignment", UINT32, ALIGNMENT
    yield "general.file_type", UINT32, 0
    yield "llama.context_length", UINT32, config["context"]
    yield "llama.embedding_length", UINT32, config["dim"]
    yield "llama.block_count", UINT32, config["layers"]
    yield "llama.feed_forward_length", UINT32, config["hidden"]
    yield "llama.attention.head_count", UINT32, config["heads"]
    yield "llama.attention.head_count_kv", UINT32, config["kv_heads"]
    yield "llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5
    yield "llama.rope.dimension_count", UINT32, config["dim"] // config["heads"]
    yield "llama.rope.freq_base", FLOAT32, 10000.0
    yield "llama.vocab_size", UINT32, config["vocabulary"]
    yield "tokenizer.ggml.model", STRING, "llama"
    yield "tokenizer.ggml.tokens", (ARRAY, STRING), [piece for piece, _, _ in tokens]
    yield "tokenizer.ggml.scores", (ARRAY, FLOAT32), [score for _, score, _ in tokens]
    yield "tokenizer.ggml.token_type", (ARRAY, INT32), [kind for _, _, kind in tokens]
    yield "tokenizer.ggml.unknown_token_id", UINT32, 0
    yield "tokenizer.ggml.bos_token_id", UINT32, 1
    yield "tokenizer.ggml.eos_token_id", UINT32, 2
    yield "tokenizer.ggml.add_bos_token", BOOL, True
    yield "tokenizer.ggml.add_eos_token", BOOL, False
    yield "tokenizer.ggml.add_space_prefix", BOOL, True


def padding(count):
    return b"\0" * (-count % ALIGNMENT)


def build_gguf(config, tensors, tokens, name):
    entries = list(metadata(config, tokens, name))
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)))
    for key, kind, value in entries:
        out += gguf_string(key)
        if isinstance(kind, tuple):
            out += struct.pack("<IIQ", kind[0], kind[1], len(value))
            for item in value:
                out += gguf_value(kind[1], item)
        else:
            out += struct.pack("<I", kind) + gguf_value(kind, value)
    offset = 0
    for tensor, shape, data in tensors:
        out += gguf_string(tensor) + struct.pack("<I", len(shape))
        out += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", F32, offset)
        offset += len(data) + len(padding(len(data)))
    out += padding(len(out))
    for _, _, data in tensors:
        out += data + padding(len(data))
    return bytes(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        config, tensors = read_checkpoint(arguments.checkpoint)
        tokens = read_tokenizer(arguments.tokenizer, config["vocabulary"])
        data = build_gguf(config, tensors, tokens, arguments.checkpoint.stem)
        unfinished = arguments.out.with_name(arguments.out.name + ".part")
        unfinished.write_bytes(data)
        unfinished.replace(arguments.out)
    except (BadFile, OSError, UnicodeDecodeError) as error:
        print(f"llama2c_to_gguf: {error}", file=sys.stderr)
        return 2
    print(f"{arguments.out}: {len(data)} bytes, {len(tensors)} tensors, {len(tokens)} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
