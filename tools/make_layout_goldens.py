#!/usr/bin/env python3
"""Makes tests/golden/layouts/: small matrices in every layout of quantised Hugging Face
checkpoints, as tools/hf_layouts.py packs and unpacks them.

Each file holds the layout's tensors under "layer." and what they stand for: codes U8 [out, in],
zeros U8 and scales F32 [out, groups], w F32 [out, in]; and its scheme as metadata.

  python3 tools/make_layout_goldens.py tests/golden/layouts
"""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import hf_layouts as hf

CASES = {
    # name: (layout, bits, group, symmetric, act_order, rows, cols)
    "gptq_w4g32": ("gptq", 4, 32, True, False, 24, 96),
    "gptq_w4g64_asym": ("gptq", 4, 64, False, False, 16, 128),
    "gptq_w4g32_order": ("gptq", 4, 32, False, True, 16, 128),
    "gptq_w8_row": ("gptq", 8, 0, True, False, 12, 64),
    "gptq_w3g32": ("gptq", 3, 32, False, False, 32, 64),
    "gptq_w2g32": ("gptq", 2, 32, False, False, 16, 64),
    "gptq_v2_w4g32": ("gptq_v2", 4, 32, False, False, 16, 64),
    "awq_w4g32": ("awq", 4, 32, False, False, 40, 96),
    "pack_w4g32": ("pack-quantized", 4, 32, True, False, 20, 96),
    "pack_w4g32_asym": ("pack-quantized", 4, 32, False, False, 24, 96),
    "pack_w4g32_order": ("pack-quantized", 4, 32, False, True, 16, 64),
    "pack_w8_row": ("pack-quantized", 8, 0, True, False, 20, 96),
}


def main(folder):
    for index, (name, case) in enumerate(CASES.items()):
        layout, bits, group, symmetric, act_order, rows, cols = case
        rng = np.random.default_rng(index)
        w = rng.standard_normal((rows, cols)).astype(np.float32)
        codes, zeros, scales, g_idx = hf.quantise(w, bits, group, symmetric, rng if act_order else None)
        if layout.startswith("gptq"):
            v1 = layout == "gptq"
            tensors = hf.pack_gptq(codes, zeros, scales, g_idx, bits, v1)
            back = hf.unpack_gptq(tensors, bits, v1)
        elif layout == "awq":
            tensors = hf.pack_awq(codes, zeros, scales)
            back = hf.unpack_awq(tensors)
        else:
            tensors = hf.pack_compressed(codes, zeros, scales, g_idx if act_order else None, bits, symmetric,
                                         lambda x: x.astype(np.float16))
            back = hf.unpack_compressed(tensors, bits, lambda x: x.astype(np.float32))
        expected = hf.dequantise(codes, zeros, scales, g_idx)
        assert np.array_equal(back, expected), name
        out = {"layer." + key: np.ascontiguousarray(value) for key, value in tensors.items()}
        out |= {"codes": codes, "zeros": zeros, "scales": scales, "w": expected}
        if act_order:
            out["group_of"] = g_idx.astype(np.int32)
        metadata = {"layout": layout, "bits": str(bits), "group": str(group), "symmetric": str(int(symmetric)),
                    "act_order": str(int(act_order))}
        save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, Path(folder) / f"{name}.safetensors", metadata)


if __name__ == "__main__":
    main(sys.argv[1])
