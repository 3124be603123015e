"""The numbers of outlier.cc by NumPy alone: python3 outlier.py prints them as JSON."""
import json

import numpy as np

SIZE, TOKENS, TIMES = 256, 128, np.float32(100)


def uniform(seed, index):  # SplitMix64, in (0, 1)
    x = np.uint64(seed) + (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (((x ^ (x >> np.uint64(31))) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normal(rows, cols, sigma, seed):
    u, v = (uniform(seed, 2 * np.arange(rows * cols) + part) for part in (0, 1))
    x = sigma * np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    return x.astype(np.float32).reshape(rows, cols)


def quantise(w, bits, axis, group=None):
    """Codes and scales: scale = largest magnitude / (2^(bits-1) - 1), over all, rows or groups."""
    parts = w.reshape(w.shape[0], -1, group) if group else w
    peak = np.abs(parts).max(axis=axis, keepdims=True)
    scale = np.maximum(peak, np.float32(1e-5)) / np.float32(2**(bits - 1) - 1)
    return np.round(parts / scale), scale


def rounded(w, bits, axis, group=None):
    return np.multiply(*quantise(w, bits, axis, group)).reshape(w.shape)


def decomposed(w, bits):
    kept = (np.abs(w) > 6 * np.sqrt((w.astype(np.float64)**2).mean())).any(axis=0)
    return np.where(kept, w, rounded(np.where(kept, np.float32(0), w), bits, 1))


def product(x, w, axis):  # integer sums, then the scales of the token and of the output
    (a, s), (b, t) = quantise(x, 8, axis), quantise(w, 8, 1)
    return (a.astype(np.int64) @ b.astype(np.int64).T) * (s * t.T)


def smooth(x, w, axis):
    s = np.sqrt(np.abs(x).max(axis=0) / np.abs(w).max(axis=0))
    return product(x / s, w * s, axis)


def mixed(x, w):
    out = np.abs(x).max(axis=0) >= 6
    return x[:, out] @ rounded(w, 8, 1)[:, out].T + product(np.where(out, np.float32(0), x), w, 1)


numbers = {}
w = normal(SIZE, SIZE, 0.02, 0)
for what in ("normal", "outlier"):
    if what == "outlier":
        w[0, 0] = TIMES * np.abs(w).max()
    for bits in (8, 4):
        ways = {"tensor": rounded(w, bits, None), "channel": rounded(w, bits, 1),
                **{f"group {g}": rounded(w, bits, 2, g) for g in (128, 64, 32)},
                "LLM.int8()": decomposed(w, bits)}
        for how, back in ways.items():
            error = np.abs(back.astype(np.float64) - w) / np.abs(w)
            for rows, pick in (("own row", np.s_[0, 1:]), ("other rows", np.s_[1:])):
                numbers[f"{what}/{bits}/{how}/{rows}/median"] = float(np.median(error[pick]))
                numbers[f"{what}/{bits}/{how}/{rows}/zeros"] = float((back[pick] == 0).mean())
w = normal(SIZE, SIZE, 0.02, 1)
for what in ("normal", "outlier"):
    x = normal(TOKENS, SIZE, 1, 2)
    x[:, 0] *= TIMES if what == "outlier" else np.float32(1)
    exact, rest = (x[:, c:].astype(np.float64) @ w[:, c:].T.astype(np.float64) for c in (0, 1))
    ways = {"W8A8 per tensor": product(x, w, None), "W8A8 per token": product(x, w, 1),
            "SmoothQuant per tensor": smooth(x, w, None), "SmoothQuant per token": smooth(x, w, 1),
            "LLM.int8()": mixed(x, w)}
    for how, y in ways.items():
        numbers[f"activations/{what}/{how}"] = float(
            np.sqrt(((y - exact)**2).sum() / (rest**2).sum()))
print(json.dumps(numbers, indent=0))
