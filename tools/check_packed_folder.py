#!/usr/bin/env python3
"""What the NumPy unpackers of tools/hf_layouts.py make of a folder that nibble quantised, against
what nibble makes of it, bit by bit: for GPTQ and AWQ, whose own packages do not install everywhere.

  nibble quantize MODEL OUT --to gptq --method gptq --act-order     # or gptq_v2, awq, w4a16-g64, …
  nibble quantize OUT TWIN --to f32                                 # what nibble decodes
  python3 tools/check_packed_folder.py OUT TWIN                     # needs numpy, safetensors
"""

import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file

import hf_layouts as hf


def load(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors


def unpack(tensors, config):
    method = config["quant_method"]
    if method == "gptq":
        return hf.unpack_gptq(tensors, config["bits"], config.get("checkpoint_format") != "gptq_v2")
    if method == "awq":
        return hf.unpack_awq(tensors)
    if method == "bitsandbytes":
        return tensors["weight"].astype(np.float32) * (tensors["SCB"] / np.float32(127))[:, None]
    weights = config["config_groups"]["group_0"]["weights"]
    scales = tensors["weight_scale"].astype(np.float32)
    if "weight" in tensors:
        return tensors["weight"].astype(np.float32) * scales
    return hf.unpack_compressed(tensors, weights["num_bits"], lambda _: scales)


def main(folder, twin):
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())["quantization_config"]
    packed, floats = load(folder), load(twin)
    marks = (".qweight", ".weight_packed", ".SCB", ".weight_scale")
    modules = sorted({name[: name.rindex(".")] for name in packed if name.endswith(marks)})
    for module in modules:
        parts = {n[len(module) + 1 :]: t for n, t in packed.items() if n.rpartition(".")[0] == module}
        found, wanted = unpack(parts, config), floats[module + ".weight"]
        assert found.dtype == wanted.dtype == np.float32 and found.shape == wanted.shape, module
        assert np.array_equal(found, wanted), f"{module}: differs by {np.abs(found - wanted).max()}"
    assert modules, "no quantised linear"
    count = sum(floats[m + ".weight"].size for m in modules)
    print(f"{folder}: {config['quant_method']}, {len(modules)} linears, {count} weights equal")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
