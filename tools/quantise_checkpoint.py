#!/usr/bin/env python3
"""Quantises the linears of a small Hugging Face checkpoint in NumPy, by round to nearest, into a
layout of tools/hf_layouts.py, and writes beside it the same model in f32 with the weights that the
codes stand for: what nibble must compute from the first equals what it computes from the second.

  python3 tools/quantise_checkpoint.py MODEL OUT LAYOUT

LAYOUT: gptq, gptq-order, gptq-v2, gptq-8, awq, pack, pack-asym, pack-8, int8, fp8, fp8-block, llm-int8.
Writes OUT/quantised and OUT/floats. Needs numpy, safetensors.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

import hf_layouts as hf

LAYOUTS = {
    # bits, group, symmetric, order, quantization_config
    "gptq": (4, 32, True, False, {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}),
    "gptq-order": (4, 32, False, True, {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}),
    "gptq-v2": (4, 32, False, False, {"quant_method": "gptq", "checkpoint_format": "gptq_v2", "bits": 4, "group_size": 32}),
    "gptq-8": (8, 0, True, False, {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False, "sym": True}),
    "awq": (4, 32, False, False, {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}),
    "pack": (4, 32, True, False, None),
    "pack-asym": (4, 32, False, False, None),
    "pack-8": (8, 32, True, False, None),
    "int8": (8, 0, True, False, None),
    "fp8": (8, 0, True, False, None),
    "fp8-block": (8, 0, True, False, {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [48, 32]}),
    "llm-int8": (8, 0, True, False, {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 0.0}),
}  # fmt: skip
FORMATS = {"int8": "int-quantized", "fp8": "float-quantized"}


def e4m3_grid():
    codes = np.arange(127, dtype=np.uint8)
    exponent, mantissa = codes >> 3, codes & 7
    return np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent.astype(float) - 10)), codes


def to_f8(x):
    """Nearest E4M3; a tie goes to the even code."""
    grid, codes = e4m3_grid()
    magnitude = np.minimum(np.abs(x.astype(np.float64)), 448.0)
    at = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    below, above = magnitude - grid[at - 1], grid[at] - magnitude
    up = (above < below) | ((above == below) & (codes[at] % 2 == 0))
    code = np.where(up, codes[at], codes[at - 1])
    return (code | np.where(x < 0, 128, 0)).astype(np.uint8), np.where(x < 0, -1, 1) * grid[code]


def quantise(name, layout, w, rng):
    bits, group, symmetric, order, _ = LAYOUTS[layout]
    if layout == "fp8":
        scale = np.maximum(np.abs(w).max(axis=1, keepdims=True) / 448, 1e-9).astype(np.float32)
        codes, values = to_f8(w / scale)
        return {name + ".weight": ("F8_E4M3", codes), name + ".weight_scale": scale}, values.astype(np.float32) * scale
    if layout == "fp8-block":  # DeepSeek's, whose blocks are 128 x 128
        across, along = LAYOUTS[layout][4]["weight_block_size"]
        grid = -(-w.shape[0] // across), -(-w.shape[1] // along)
        padded = np.zeros((grid[0] * across, grid[1] * along), np.float32)
        padded[: w.shape[0], : w.shape[1]] = np.abs(w)
        scale = np.maximum(padded.reshape(grid[0], across, grid[1], along).max(axis=(1, 3)) / 448, 1e-9).astype(np.float32)
        each = scale.repeat(across, 0).repeat(along, 1)[: w.shape[0], : w.shape[1]]
        codes, values = to_f8(w / each)
        return {name + ".weight": ("F8_E4M3", codes), name + ".weight_scale_inv": scale}, values.astype(np.float32) * each
    if layout == "llm-int8":
        scb = np.abs(w).max(axis=1).astype(np.float32)
        codes = np.round(w / (scb / np.float32(127))[:, None]).astype(np.int8)
        return {name + ".weight": codes, name + ".SCB": scb}, codes.astype(np.float32) * (scb / np.float32(127))[:, None]
    codes, zeros, scales, g_idx = hf.quantise(w, bits, group, symmetric, rng if order else None)
    if layout.startswith("gptq"):
        tensors = hf.pack_gptq(codes, zeros, scales, g_idx, bits, layout != "gptq-v2")
        back = hf.unpack_gptq(tensors, bits, layout != "gptq-v2")
    elif layout == "awq":
        tensors = hf.pack_awq(codes, zeros, scales)
        back = hf.unpack_awq(tensors)
    elif layout == "int8":
        tensors = {"weight": (codes.astype(np.int16) - 128).astype(np.int8), "weight_scale": scales.astype(np.float16)}
        back = tensors["weight"].astype(np.float32) * scales
    else:
        tensors = hf.pack_compressed(codes, zeros, scales, None, bits, symmetric, lambda x: x.astype(np.float16))
        back = hf.unpack_compressed(tensors, bits, lambda x: x.astype(np.float32))
    return {f"{name}.{key}": value for key, value in tensors.items()}, back


def save(tensors, path):
    """save_file knows no FP8 in NumPy: those are written as U8, and the header is mended."""
    f8 = [name for name, value in tensors.items() if isinstance(value, tuple)]
    plain = {name: np.ascontiguousarray(value[1] if name in f8 else value) for name, value in tensors.items()}
    save_file(plain, path, {"format": "pt"})
    if not f8:
        return
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    for name in f8:
        header[name]["dtype"] = "F8_E4M3"
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def main(model, out, layout):
    model, out = pathlib.Path(model), pathlib.Path(out)
    rng = np.random.default_rng(3)
    config = json.loads((model / "config.json").read_text())
    quantised, floats = {}, {}
    for name, w in load_file(model / "model.safetensors").items():
        if ".layers." in name and name.endswith("_proj.weight"):
            tensors, back = quantise(name[: -len(".weight")], layout, w.astype(np.float32), rng)
            quantised |= tensors
            floats[name] = back.astype(np.float32)
        else:
            quantised[name] = floats[name] = w
    bits, group, symmetric, _, own = LAYOUTS[layout]
    weights = {"num_bits": bits, "type": "float" if layout == "fp8" else "int", "symmetric": symmetric,
               "strategy": "group" if group else "channel", "group_size": group or None}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    compressed = {"quant_method": "compressed-tensors", "format": FORMATS.get(layout, "pack-quantized"),
                  "quantization_status": "compressed", "ignore": ["lm_head"], "config_groups": groups}
    for name, tensors, extra in [("quantised", quantised, {"quantization_config": own or compressed}),
                                 ("floats", floats, {})]:
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        save(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config | extra, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in LAYOUTS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
