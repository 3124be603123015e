"""The numbers of shakespeare.cc by NumPy alone: shakespeare.py MODEL TEXT WINDOWS prints JSON."""
import json
import pathlib
import sys

import numpy as np

HEADS, LENGTH = 4, 256
folder, text = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text()
data = (folder / "model.safetensors").read_bytes()
size = int.from_bytes(data[:8], "little")
P = {}
for name, entry in json.loads(data[8:8 + size]).items():
    if name != "__metadata__":
        begin, end = entry["data_offsets"]
        P[name.removeprefix("transformer.")] = np.frombuffer(
            data[8 + size + begin:8 + size + end], np.float32).reshape(entry["shape"])
LAYERS = max(int(name.split(".")[1]) for name in P if name.startswith("h.")) + 1
vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
ids = np.array([vocabulary[c] for c in text[len(text) * 9 // 10:]])
windows = ids[:int(sys.argv[3]) * LENGTH].reshape(-1, LENGTH)
LINEARS = {"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc",
           "ffn_down": "mlp.c_proj"}


def rounded(w, bits, axis):
    """Symmetric codes of a stored {in, out} matrix, one scale for all or one an output."""
    scale = np.abs(w).max(axis=axis, keepdims=True) / np.float32(2**(bits - 1) - 1)
    scale = scale.astype(np.float16).astype(np.float32)
    return np.clip(np.round(w / scale), -2**(bits - 1), 2**(bits - 1) - 1) * scale


def codes_of(x):
    """What integer kernels make of activations: 8 bits, a scale for every 32."""
    parts = x.reshape(*x.shape[:-1], -1, 32)
    peak = np.abs(parts).max(axis=-1, keepdims=True)
    return (np.round(parts * (127 / peak)) * (peak / 127)).reshape(x.shape)


def norm(x, name):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    return x * P[name + ".weight"] + P[name + ".bias"]


def loss(weights, seen=lambda x: x):
    def linear(x, name):
        return seen(x) @ weights[name + ".weight"] + P[name + ".bias"]
    x = P["wte.weight"][windows] + P["wpe.weight"][:LENGTH]
    hidden = np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1)
    for layer in (f"h.{i}." for i in range(LAYERS)):
        q, k, v = (part.reshape(*part.shape[:2], HEADS, -1).transpose(0, 2, 1, 3) for part in
                   np.split(linear(norm(x, layer + "ln_1"), layer + "attn.c_attn"), 3, axis=-1))
        s = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1])) + hidden
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        out = (p / p.sum(axis=-1, keepdims=True)) @ v
        x = x + linear(out.transpose(0, 2, 1, 3).reshape(x.shape), layer + "attn.c_proj")
        h = linear(norm(x, layer + "ln_2"), layer + "mlp.c_fc")
        h = h * (1 + np.tanh(np.float32((2 / np.pi)**.5) * (h + np.float32(0.044715) * h**3))) / 2
        x = x + linear(h, layer + "mlp.c_proj")
    logits = (norm(x, "ln_f") @ P["wte.weight"].T)[:, :-1].astype(np.float64)
    top = logits.max(axis=-1)
    right = np.take_along_axis(logits, windows[:, 1:, None], axis=-1)[..., 0]
    return float((top + np.log(np.exp(logits - top[..., None]).sum(axis=-1)) - right).mean())


numbers = {"loss/float": loss(P)}
for how, axis in (("tensor", None), ("channel", 0)):
    for bits, kind in [(b, "simulated") for b in range(2, 9)] + [(8, "integer")]:
        weights = dict(P)
        for gguf, i in ((g, i) for i in range(LAYERS) for g in LINEARS):
            w = P[(name := f"h.{i}.{LINEARS[gguf]}.weight")]
            weights[name] = rounded(w, bits, axis)
            numbers[f"error/{bits}/{how}/{kind}/blk.{i}.{gguf}.weight"] = float(
                np.abs(weights[name].astype(np.float64) - w).sum() / np.abs(w, dtype=float).sum())
        numbers[f"loss/{bits}/{how}/{kind}"] = loss(weights, *[codes_of] * (kind == "integer"))
print(json.dumps(numbers, indent=0))
