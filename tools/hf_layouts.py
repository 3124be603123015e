"""Layouts of quantised Hugging Face checkpoints in NumPy: pack and unpack.

Written from the formats' own definitions, not from nibble's C++, so that each can check the other:
  GPTQ                AutoGPTQ auto_gptq/nn_modules/qlinear/qlinear_cuda_old.py; v2: GPTQModel
  AWQ (GEMM)          AutoAWQ awq/modules/linear/gemm.py, awq/utils/packing_utils.py
  compressed-tensors  vllm-project/compressed-tensors compressors/, quantization/
  LLM.int8()          bitsandbytes nn/modules.py (weight, SCB)

W is [out, in]. codes u8 [out, in], zeros u8 [out, groups], scales f32 [out, groups], g_idx [in]:
w[o, i] = scales[o, g] * (codes[o, i] - zeros[o, g]), g = g_idx[i].
"""

import numpy as np

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def dequantise(codes, zeros, scales, g_idx):
    difference = codes.astype(np.float32) - zeros.astype(np.float32)[:, g_idx]
    return scales.astype(np.float32)[:, g_idx] * difference


def pack_bits(values, bits):
    """[n, ...] codes to [ceil(n * bits / 32), ...] words along axis 0, least significant first."""
    n = values.shape[0]
    words = np.zeros(((n * bits + 31) // 32,) + values.shape[1:], np.uint64)
    for i in range(n):
        word, shift = divmod(i * bits, 32)
        code = values[i].astype(np.uint64) << np.uint64(shift)
        words[word] |= code & np.uint64(0xFFFFFFFF)
        if shift + bits > 32:
            words[word + 1] |= code >> np.uint64(32)
    return words.astype(np.uint32).view(np.int32)


def unpack_bits(words, bits, n):
    words = words.view(np.uint32).astype(np.uint64)
    out = np.zeros((n,) + words.shape[1:], np.uint8)
    for i in range(n):
        word, shift = divmod(i * bits, 32)
        pair = words[word]
        if shift + bits > 32:
            pair = pair | words[word + 1] << np.uint64(32)
        out[i] = (pair >> np.uint64(shift)) & np.uint64((1 << bits) - 1)
    return out


def pack_gptq(codes, zeros, scales, g_idx, bits, v1):
    stored = (zeros.astype(np.int64) - 1) % (1 << bits) if v1 else zeros
    return {
        "qweight": pack_bits(codes.T, bits),
        "qzeros": pack_bits(stored, bits).T.copy(),
        "scales": scales.T.astype(np.float16).copy(),
        "g_idx": g_idx.astype(np.int32),
    }


def unpack_gptq(tensors, bits, v1):
    rows = tensors["qweight"].shape[1]
    g_idx = tensors["g_idx"]
    codes = unpack_bits(tensors["qweight"], bits, len(g_idx)).T
    zeros = unpack_bits(tensors["qzeros"].T.copy(), bits, rows)
    if v1:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    return dequantise(codes, zeros, tensors["scales"].T.astype(np.float32), g_idx)


def pack_awq(codes, zeros, scales):
    def words(matrix):  # [n, out] to [n, out / 8]
        eight = matrix.reshape(matrix.shape[0], -1, 8)[:, :, AWQ_ORDER].astype(np.uint32)
        return np.bitwise_or.reduce(eight << np.arange(0, 32, 4, dtype=np.uint32), axis=2).view(np.int32)

    return {
        "qweight": words(codes.T),
        "qzeros": words(zeros.T),
        "scales": scales.T.astype(np.float16).copy(),
    }


def unpack_awq(tensors):
    def codes(matrix):
        nibbles = (matrix.view(np.uint32)[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
        out = np.empty(nibbles.shape, np.uint8)
        out[:, :, AWQ_ORDER] = nibbles
        return out.reshape(matrix.shape[0], -1)

    q = codes(tensors["qweight"]).T
    group = q.shape[1] // tensors["scales"].shape[0]
    g_idx = np.arange(q.shape[1]) // group
    return dequantise(q, codes(tensors["qzeros"]).T, tensors["scales"].T.astype(np.float32), g_idx)


def pack_compressed(codes, zeros, scales, g_idx, bits, symmetric, half):
    """half: a function from f32 to the stored type (np.float16, or bf16 as its caller has it)."""
    out = {
        "weight_packed": pack_bits(codes.T, bits).T.copy(),
        "weight_scale": half(scales),
        "weight_shape": np.array(codes.shape, np.int64),
    }
    if not symmetric:
        out["weight_zero_point"] = pack_bits(zeros, bits)  # along dimension 0
    if g_idx is not None:
        out["weight_g_idx"] = g_idx.astype(np.int32)
    return out


def unpack_compressed(tensors, bits, float_of):
    rows, cols = tensors["weight_shape"]
    codes = unpack_bits(tensors["weight_packed"].T.copy(), bits, cols).T
    scales = float_of(tensors["weight_scale"])
    groups = scales.shape[1]
    if "weight_zero_point" in tensors:
        zeros = unpack_bits(tensors["weight_zero_point"], bits, rows)
    else:
        zeros = np.full((rows, groups), 1 << (bits - 1), np.uint8)
    g_idx = tensors.get("weight_g_idx", np.arange(cols) // (cols // groups))
    return dequantise(codes, zeros, scales, g_idx)


def quantise(w, bits, group, symmetric, rng=None):
    """Round to nearest, scales in f16; group 0: one scale a row. rng: a random order of inputs."""
    rows, cols = w.shape
    size = group or cols
    order = np.arange(cols) if rng is None else rng.permutation(cols)
    g_idx = np.empty(cols, np.int64)
    g_idx[order] = np.arange(cols) // size
    groups = cols // size
    low = np.zeros((rows, groups), np.float32)
    high = np.zeros((rows, groups), np.float32)
    for g in range(groups):
        low[:, g] = np.minimum(w[:, g_idx == g].min(axis=1), 0)
        high[:, g] = np.maximum(w[:, g_idx == g].max(axis=1), 0)
    top = (1 << bits) - 1
    if symmetric:
        scales = np.maximum(-low, high) * 2 / top
        zeros = np.full((rows, groups), 1 << (bits - 1), np.uint8)
    else:
        scales = (high - low) / top
    scales = np.maximum(scales, 1e-5).astype(np.float16).astype(np.float32)
    if not symmetric:
        zeros = np.clip(np.round(-low / scales), 0, top).astype(np.uint8)
    codes = np.clip(np.round(w / scales[:, g_idx]) + zeros.astype(np.float32)[:, g_idx], 0, top)
    return codes.astype(np.uint8), zeros, scales, g_idx
