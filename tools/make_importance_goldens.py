#!/usr/bin/env python3
"""Writes tests/golden/format/importance/*.bin: what ggml's searches make of rows.

    python tools/make_importance_goldens.py libggml-base.so     # needs numpy

The library is the one of llama.cpp or of the llama-cpp-python package, for x86-64: there nothing in it
is compiled with contraction, as nothing in nibble is. One file per type: {u32 rows, u32 columns},
importance [columns], values [rows][columns], codes with the importance, codes without.
"""

import ctypes
import pathlib
import struct
import sys

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "format" / "importance"
# ggml's ids, and the bytes of a block.
TYPES = {
    "q4_0": (2, 18, 32), "q4_1": (3, 20, 32), "q5_0": (6, 22, 32), "q5_1": (7, 24, 32),
    "q2_k": (10, 84, 256), "q3_k": (11, 110, 256), "q4_k": (12, 144, 256), "q5_k": (13, 176, 256),
    "q6_k": (14, 210, 256), "iq4_nl": (20, 18, 32), "iq4_xs": (23, 136, 256),
}  # fmt: skip


def sample_rows(rng: np.random.Generator, columns: int) -> np.ndarray:
    """Rows with the traps of the searches: outliers, zeros, groups far below their block, one sign."""
    rows = [rng.normal(0, 0.05, columns) for _ in range(2)]
    rows.append(rng.normal(0, 1, columns) * 4.0 ** rng.integers(-3, 3, columns))
    rows.append(np.abs(rng.normal(0, 1, columns)) + 0.5)
    small = rng.normal(0, 1, columns)
    small[: columns // 4] *= 1e-6  # their group's scale rounds to zero
    small[columns // 2 : columns // 2 + 32] = 0.0
    rows.append(small)
    rows.append(np.full(columns, -0.75))
    rows.append(np.zeros(columns))
    rows.append(np.round(rng.normal(0, 3, columns)) / 4)  # ties
    return np.array(rows, dtype=np.float32)


def encode(library: ctypes.CDLL, name: str, rows: np.ndarray, importance: np.ndarray | None) -> bytes:
    number, block_bytes, block = TYPES[name]
    count, columns = rows.shape
    codes = ctypes.create_string_buffer(count * columns // block * block_bytes)
    floats = ctypes.POINTER(ctypes.c_float)
    rows = np.ascontiguousarray(rows)
    weights = importance.ctypes.data_as(floats) if importance is not None else None
    written = library.ggml_quantize_chunk(
        ctypes.c_int(number), rows.ctypes.data_as(floats), codes, ctypes.c_int64(0),
        ctypes.c_int64(count), ctypes.c_int64(columns), weights)  # fmt: skip
    assert written == len(codes.raw), (name, written, len(codes.raw))
    return codes.raw


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    OUT.mkdir(parents=True, exist_ok=True)
    for name, (_, _, block) in TYPES.items():
        rng = np.random.default_rng(20260607)
        columns = 512 if block == 256 else 96
        importance = np.exp(rng.normal(0, 1.5, columns)).astype(np.float32)
        importance[5::29] = 0.0  # columns that were always zero
        rows = sample_rows(rng, columns)
        (OUT / f"{name}.bin").write_bytes(
            struct.pack("<II", *rows.shape) + importance.tobytes() + rows.tobytes()
            + encode(library, name, rows, importance) + encode(library, name, rows, None)
        )  # fmt: skip


if __name__ == "__main__":
    main()
