#!/usr/bin/env python3
"""Million weights a second that ggml encodes on one thread into each type, without and with an
importance of the columns: what bench/encode_speed.cc prints of nibble.

  python3 tools/encode_speed.py libggml-base.so     # of the llama-cpp-python package; needs numpy
"""

import ctypes
import sys
import time

import numpy as np

# ggml's ids, and bytes and weights of a block.
TYPES = {"q4_0": (2, 18, 32), "q4_1": (3, 20, 32), "q5_0": (6, 22, 32), "q5_1": (7, 24, 32),
         "q8_0": (8, 34, 32), "q2_k": (10, 84, 256), "q3_k": (11, 110, 256), "q4_k": (12, 144, 256),
         "q5_k": (13, 176, 256), "q6_k": (14, 210, 256), "iq4_nl": (20, 18, 32),
         "iq4_xs": (23, 136, 256)}  # fmt: skip
ROWS, COLS = 64, 1536


def pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def speed(library, kind, weights, importance):
    number, block_bytes, block = TYPES[kind]
    out = np.zeros(ROWS * COLS // block * block_bytes, np.uint8)
    best = 0.0
    for _ in range(3):
        started, seconds, times = time.process_time(), 0.0, 0
        while seconds < 0.1:
            library.ggml_quantize_chunk(number, pointer(weights), pointer(out), ctypes.c_int64(0),
                                        ctypes.c_int64(ROWS), ctypes.c_int64(COLS), pointer(importance))
            seconds, times = time.process_time() - started, times + 1
        best = max(best, 1e-6 * ROWS * COLS * times / seconds)
    return best


def main(path):
    library = ctypes.CDLL(path)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    random = np.random.default_rng(1)
    weights = (0.02 * random.standard_normal((ROWS, COLS))).astype(np.float32)
    importance = (0.02 * np.abs(random.standard_normal(COLS)) + 0.0002).astype(np.float32)
    print("| type | million weights/s | with importance |\n|---|---|---|")
    for kind in TYPES:
        print(f"| {kind} | {speed(library, kind, weights, None):.1f} | {speed(library, kind, weights, importance):.1f} |")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
