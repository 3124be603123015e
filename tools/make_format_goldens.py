#!/usr/bin/env python3
"""Writes tests/golden/format/*.bin: what the gguf package and PyTorch make of each number format.

    python tools/make_format_goldens.py            # needs numpy, gguf (0.19.0), torch

One file per format: two sections (decode, encode) of {u32 code bytes, u32 floats, codes, floats};
an encode section without an encoder in the reference is empty. Decode: floats = decode(codes).
Encode: codes = encode(floats).
"""

import pathlib
import struct

import gguf
import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import NVFP4

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "format"

# Where the f16 scales of a block lie: random ones are drawn finite.
F16_OFFSETS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip
ENCODERS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "MXFP4"]


def section(codes: np.ndarray, floats: np.ndarray) -> bytes:
    codes = np.ascontiguousarray(codes).view(np.uint8).tobytes()
    floats = np.ascontiguousarray(floats, dtype=np.float32).tobytes()
    return struct.pack("<II", len(codes), len(floats) // 4) + codes + floats


def write(name: str, decode: bytes, encode: bytes) -> None:
    (OUT / f"{name.lower()}.bin").write_bytes(decode + encode)


def random_blocks(rng: np.random.Generator, name: str, count: int) -> np.ndarray:
    size = GGML_QUANT_SIZES[Type[name]][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in F16_OFFSETS.get(name, []):
        scales = rng.normal(0, 1, count) * 2.0 ** rng.integers(-20, 8, count)
        blocks[:, offset : offset + 2] = scales.astype(np.float16).view(np.uint8).reshape(count, 2)
    if name == "MXFP4":  # every exponent from the subnormals on, and the one that OCP calls NaN
        blocks[:, 0] = np.resize([0, 1, 2, 3, 100, 126, 127, 128, 200, 253, 254, 255], count)
    if name == "NVFP4":  # zero, subnormals, the largest, ggml's zero, signs
        blocks[:4, :4] = [[0, 1, 7, 8], [0x7E, 0x7F, 0x80, 0xFF], [0x38, 0x40, 9, 0x77], [2, 3, 4, 5]]
    return blocks


def sample_rows(rng: np.random.Generator, block: int) -> np.ndarray:
    """Rows with the traps of rounding: ties, zeros, equal values, signs of the largest."""
    rows = [rng.normal(0, 1, block) for _ in range(3)]
    rows.append(rng.normal(0, 1e-3, block) + 5.0)
    rows.append(rng.normal(0, 1e4, block))
    rows.append(rng.normal(0, 1e-7, block))
    rows.append(np.zeros(block))
    rows.append(np.full(block, -0.75))
    rows.append(np.resize([127.0, *(np.arange(-9, 10) / 2.0), -126.5], block))  # ties of Q8_0
    rows.append(np.resize([-8, 7.5, 0.5, -0.5, 1.5, -1.5, 2.5, 8.0], block))
    rows.append(np.resize([0.25, -0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 6.9, 7.9, -5.0], block))
    rows.append(np.resize([1.0, -1.0, 2**-10, 0.0], block))
    return np.array(rows, dtype=np.float32)


def encode_nvfp4(rows: np.ndarray) -> np.ndarray:
    """quantize_row_nvfp4_ref of ggml with the package's own scale conversions."""
    groups = rows.reshape(-1, 4, 16)
    scales = NVFP4.fp32_to_ue4m3(np.abs(groups).max(axis=-1) / np.float32(6.0))
    half = NVFP4.ue4m3_to_fp32(scales).astype(np.float32)
    values = np.array(NVFP4.kvalues, dtype=np.float32)
    errors = np.abs(half[..., None, None] * values - groups[..., None])
    best = np.argmin(errors, axis=-1).astype(np.uint8)
    packed = best[..., :8] | (best[..., 8:] << 4)
    return np.concatenate([scales.astype(np.uint8), packed.reshape(-1, 32)], axis=-1)


def gguf_formats(rng: np.random.Generator) -> None:
    for name in [*F16_OFFSETS, "MXFP4", "NVFP4"]:
        block, _ = GGML_QUANT_SIZES[Type[name]]
        blocks = random_blocks(rng, name, 4 if block == 256 else 16)
        decode = section(blocks, gguf.quants.dequantize(blocks, Type[name]))
        encode = section(np.zeros(0, np.uint8), np.zeros(0, np.float32))
        rows = sample_rows(rng, max(block, 64))
        if name in ENCODERS:
            encode = section(gguf.quants.quantize(rows, Type[name]), rows)
        elif name == "NVFP4":
            encode = section(encode_nvfp4(rows), rows)
        write(name, decode, encode)


def edge_floats(rng: np.random.Generator, largest: float) -> np.ndarray:
    """Finite floats no larger than the format's largest, subnormals and halfway cases among them."""
    scale = 2.0 ** rng.uniform(-30, np.log2(largest), 400)
    values = np.concatenate([rng.uniform(-1, 1, 400) * scale, [0.0, -0.0, largest, -largest]])
    return np.clip(values, -largest, largest).astype(np.float32)


def plain_formats(rng: np.random.Generator) -> None:
    # All finite codes, then floats in the format's range. Infinities and NaN are tested in C++.
    f16 = rng.integers(0, 65536, 1024).astype(np.uint16).view(np.float16)
    f16 = f16[np.isfinite(f16)]
    floats = edge_floats(rng, 65504.0)
    write("F16", section(f16, f16.astype(np.float32)), section(floats.astype(np.float16), floats))

    bits = rng.integers(0, 2**32, 1024).astype(np.uint32)
    floats = bits.view(np.float32)
    floats = floats[np.isfinite(floats)]
    codes = gguf.quants.quantize(floats, Type.BF16)
    write("BF16", section(codes, gguf.quants.dequantize(codes, Type.BF16)), section(codes, floats))

    f32 = edge_floats(rng, 1e30)
    write("F32", section(f32, f32), section(f32, f32))

    for name, dtype in [("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2)]:
        codes = torch.arange(256, dtype=torch.uint8)
        values = codes.view(dtype).to(torch.float32)
        finite = torch.isfinite(values)
        floats = torch.from_numpy(edge_floats(rng, float(torch.finfo(dtype).max)))
        write(name, section(codes[finite].numpy(), values[finite].numpy()),
              section(floats.to(dtype).view(torch.uint8).numpy(), floats.numpy()))  # fmt: skip


def grouped_formats(rng: np.random.Generator) -> None:
    """nibble's own blocks {f16 d, u8 z, codes}: d (code - z), round to nearest, asymmetric."""
    for bits, group in [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)]:
        top = np.float32((1 << bits) - 1)

        def pack(d, zero, codes):
            if bits == 4:
                halves = codes.reshape(len(codes), -1, 2, 16)
                codes = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(codes), -1)
            parts = [d.astype(np.float16).view(np.uint8).reshape(-1, 2), zero.reshape(-1, 1), codes]
            return np.concatenate(parts, axis=1).astype(np.uint8)

        d = (rng.normal(0, 1, 16) * 2.0 ** rng.integers(-20, 8, 16)).astype(np.float16)
        zero = rng.integers(0, 1 << bits, 16).astype(np.uint8)
        codes = rng.integers(0, 1 << bits, (16, group)).astype(np.uint8)
        values = d.astype(np.float32)[:, None] * (codes.astype(np.float32) - zero.astype(np.float32)[:, None])
        decode = section(pack(d, zero, codes), values)

        rows = sample_rows(rng, 128).reshape(-1, group)
        low, high = np.minimum(rows.min(axis=1), 0), np.maximum(rows.max(axis=1), 0)
        d = ((high - low) / top).astype(np.float16)
        step = d.astype(np.float32)
        inverse = np.where(step > 0, np.float32(1) / np.where(step > 0, step, 1), 0).astype(np.float32)
        zero = np.clip(np.round(-low * inverse), 0, top)
        codes = np.clip(np.round(rows * inverse[:, None]) + zero[:, None], 0, top).astype(np.uint8)
        encode = section(pack(d, zero.astype(np.uint8), codes), rows)
        write(f"w{bits}g{group}", decode, encode)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240607)
    with np.errstate(over="ignore"):
        gguf_formats(rng)
    plain_formats(rng)
    grouped_formats(np.random.default_rng(20240608))


if __name__ == "__main__":
    main()
