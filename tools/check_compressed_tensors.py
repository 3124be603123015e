#!/usr/bin/env python3
"""What the compressed-tensors package makes of pack-quantized tensors, against what nibble's goldens
say they stand for, bit by bit.

  python3 tools/check_compressed_tensors.py tests/golden/layouts     # needs torch, compressed-tensors

With a folder that nibble wrote, and the f32 twin of the same weights, the whole model through
transformers' own loading: the largest difference of a logit.

  NIBBLE_KEEP_LAYOUTS=DIR model_files_test --gtest_filter='*EqualsItsTwin*'
  python3 tools/check_compressed_tensors.py DIR/pack_w4g32/quantised DIR/pack_w4g32/floats
"""

import pathlib
import sys

import torch
from safetensors import safe_open


def find_unpack():
    """The function has moved between versions."""
    import importlib
    import pkgutil

    import compressed_tensors

    for module in pkgutil.walk_packages(compressed_tensors.__path__, "compressed_tensors."):
        if "pack" not in module.name and "helpers" not in module.name:
            continue
        loaded = importlib.import_module(module.name)
        if hasattr(loaded, "unpack_from_int32"):
            return loaded.unpack_from_int32
    sys.exit("compressed-tensors has no unpack_from_int32")


def check_goldens(folder):
    unpack_from_int32 = find_unpack()
    checked = 0
    for path in sorted(pathlib.Path(folder).glob("pack_*.safetensors")):
        with safe_open(path, "pt") as file:
            bits = int(file.metadata()["bits"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        shape = torch.Size(tensors["layer.weight_shape"].tolist())
        # Their codes are signed.
        codes = unpack_from_int32(tensors["layer.weight_packed"], bits, shape).to(torch.int16)
        scales = tensors["layer.weight_scale"].to(torch.float32)
        zeros = torch.zeros(scales.shape, dtype=torch.int16)
        if "layer.weight_zero_point" in tensors:
            zeros = unpack_from_int32(tensors["layer.weight_zero_point"], bits, scales.shape, 0).to(torch.int16)
        group = shape[1] // scales.shape[1]
        g_idx = tensors.get("layer.weight_g_idx", torch.arange(shape[1]) // group).long()
        w = (codes - zeros[:, g_idx]).to(torch.float32) * scales[:, g_idx]
        assert torch.equal(w, tensors["w"]), f"{path.name}: differs by {(w - tensors['w']).abs().max()}"
        checked += 1
        print(f"{path.name}: {shape[0]} x {shape[1]} weights equal")
    assert checked > 0


def check_model(folder, twin):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = transformers.AutoModelForCausalLM.from_pretrained(twin, dtype=torch.float32)
    ids = torch.arange(1, 33)[None] % expected.config.vocab_size
    with torch.no_grad():
        found, wanted = model(ids).logits, expected(ids).logits
    difference = (found - wanted).abs().max().item()
    print(f"{folder}: logits differ from the twin's by at most {difference:.3g} of {wanted.abs().max().item():.3g}")
    assert difference < 1e-3 * wanted.abs().max().item()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        check_model(sys.argv[1], sys.argv[2])
    elif len(sys.argv) == 2:
        check_goldens(sys.argv[1])
    else:
        sys.exit(__doc__)
