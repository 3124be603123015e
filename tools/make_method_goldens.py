#!/usr/bin/env python3
"""Writes tests/golden/methods/*.safetensors: what the published formulas of the quantisation methods
give, in NumPy, on small matrices.

    python tools/make_method_goldens.py     # needs numpy and safetensors

Each function is a short transcription of the method's paper or reference code, independent of src/.
Sums that the papers leave open are in double precision, so that a test's tolerance is the rounding of
the program's own float arithmetic.
"""

import pathlib

import numpy as np
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "methods"
F = np.float32


def save(name: str, tensors: dict) -> None:
    """Every array as float32 (codes are small integers), at least one-dimensional."""
    arrays = {key: np.ascontiguousarray(np.atleast_1d(np.asarray(value)), dtype=F)
              for key, value in tensors.items()}  # fmt: skip
    path = OUT / f"{name}.safetensors"
    save_file(arrays, path)
    path.chmod(0o644)


# ---- grids: scale and zero of the weights that share them, and their codes -----------------------


def stored(scale: np.ndarray, kind: str) -> np.ndarray:
    if kind == "f16":
        return scale.astype(np.float16).astype(F)
    if kind == "bf16":
        bits = scale.astype(F).view(np.uint32)
        return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(F)
    return scale.astype(F)


def fit(x: np.ndarray, convention: str, bits: int, symmetric: bool, kind: str, keep: float = 1.0):
    """Scale and zero (a code of 0 … 2^bits − 1) of each row of x, its range times `keep`."""
    top, middle = F(2**bits - 1), F(2 ** (bits - 1))
    low, high = x.min(1) * F(keep), x.max(1) * F(keep)
    if convention in ("gptq", "compressed-tensors"):
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    bound = np.maximum(np.abs(low), np.abs(high))
    zero = np.full(len(x), middle, F)
    if convention == "gptq":
        empty = (low == 0) & (high == 0)
        low, high, bound = np.where(empty, -1, low), np.where(empty, 1, high), np.where(empty, 1, bound)
        scale = stored((2 * bound if symmetric else high - low).astype(F) / top, kind)
        if not symmetric:
            zero = np.round(-low / scale)
    elif convention == "compressed-tensors":
        scale = stored((bound / (top / F(2)) if symmetric else (high - low) / top).astype(F), kind)
        scale = np.where(scale == 0, {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23}[kind], scale)
        if not symmetric:
            zero = np.round(np.clip(-middle - low / scale, -middle, middle - 1)) + middle
    elif convention == "awq":
        span = np.maximum(bound, F(1e-5)) / (middle - 1) if symmetric else (
            np.maximum(high - low, F(1e-5)) / top)  # fmt: skip
        scale = stored(span.astype(F), kind)
        if not symmetric:
            zero = np.clip(-np.round(low / scale), 0, top)
    elif convention == "smoothquant":
        scale = stored((np.maximum(bound, F(1e-5)) / (middle - 1)).astype(F), kind)
    return scale.astype(F), zero.astype(F)


def codes_of(x, scale, zero, convention: str, bits: int):
    """x: [rows][n], scale and zero: [rows]."""
    top, middle = F(2**bits - 1), F(2 ** (bits - 1))
    s, z = scale[:, None].astype(F), zero[:, None].astype(F)
    if convention == "compressed-tensors":
        return np.round(np.clip(x / s + (z - middle), -middle, middle - 1)) + middle
    return np.clip(np.round(x / s) + z, 0, top)


def fit_searched(x, convention, bits, symmetric, kind):
    """GPTQ's mse option: the range shrunk by i/100, i < 80, with the least Σ |error|^2.4."""
    best = np.full(len(x), np.inf)
    scale, zero = fit(x, convention, bits, symmetric, kind)
    for i in range(80):
        s, z = fit(x, convention, bits, symmetric, kind, F(1) - F(i) / F(100))
        value = s[:, None] * (codes_of(x, s, z, convention, bits) - z[:, None])
        error = (np.abs(value - x).astype(np.float64) ** 2.4).sum(1)
        better = error < best
        best, scale, zero = np.where(better, error, best), np.where(better, s, scale), np.where(better, z, zero)
    return scale, zero


def ggml_grid(x, bits: int, kind: str):
    """Q4_0's and Q8_0's: codes with the scale before it is rounded."""
    signed = x[np.arange(len(x)), np.abs(x).argmax(1)]
    middle = 2 ** (bits - 1)
    step = (np.abs(signed) / F(127) if bits == 8 else signed / F(-middle)).astype(F)
    inverse = np.where(step != 0, F(1) / np.where(step != 0, step, 1), 0).astype(F)
    y = (x * inverse[:, None]).astype(F)
    if bits == 8:  # half away from zero
        codes = np.sign(y) * np.floor(np.abs(y.astype(np.float64)) + 0.5) + middle
    else:
        codes = np.clip(np.trunc(y + F(middle + 0.5)), 0, 2 * middle - 1)
    return codes, stored(step, kind), np.full(len(x), middle, F)


def grid_rows(rng, n: int) -> np.ndarray:
    """Rows with the traps: outliers, one sign, constants, zeros, tiny, ties."""
    rows = [rng.normal(0, 0.05, n) for _ in range(6)]
    rows += [rng.normal(0, 0.05, n) + 0.2, rng.normal(0, 0.05, n) - 0.2]
    outlier = rng.normal(0, 0.05, n)
    outlier[n // 3] = 3.0
    rows += [outlier, -outlier, np.zeros(n), np.full(n, 0.3), np.full(n, -0.3), rng.normal(0, 1e-5, n)]
    rows.append(np.round(rng.normal(0, 3, n)) / 4)
    return np.array(rows).astype(F)


def rtn_golden() -> None:
    rng = np.random.default_rng(1)
    x = grid_rows(rng, 32)
    out = {"x": x}
    for convention in ("gptq", "compressed-tensors", "awq", "smoothquant"):
        for bits in (2, 3, 4, 8):
            for symmetric in (True, False):
                if convention == "smoothquant" and not symmetric:
                    continue
                for kind in ("f32", "f16", "bf16"):
                    scale, zero = fit(x, convention, bits, symmetric, kind)
                    name = f"{convention}.{bits}.{'sym' if symmetric else 'asym'}.{kind}"
                    out |= {f"{name}.scale": scale, f"{name}.zero": zero,
                            f"{name}.codes": codes_of(x, scale, zero, convention, bits)}  # fmt: skip
    for bits in (4, 5, 8):
        codes, scale, zero = ggml_grid(x, bits, "f16")
        name = f"ggml.{bits}.sym.f16"
        out |= {f"{name}.codes": codes, f"{name}.scale": scale, f"{name}.zero": zero}
    for bits, symmetric in ((3, True), (4, False)):
        scale, zero = fit_searched(x, "gptq", bits, symmetric, "f32")
        name = f"searched.{bits}.{'sym' if symmetric else 'asym'}.f32"
        out |= {f"{name}.codes": codes_of(x, scale, zero, "gptq", bits), f"{name}.scale": scale, f"{name}.zero": zero}
    save("rtn", out)


# ---- GPTQ ----------------------------------------------------------------------------------------


def calibration(rng, tokens: int, cols: int, dead=()) -> np.ndarray:
    """Correlated inputs of uneven size, some never used."""
    mix = rng.normal(0, 1, (cols // 4, cols))
    x = rng.normal(0, 1, (tokens, cols // 4)) @ mix * 0.5 + rng.normal(0, 1, (tokens, cols))
    x *= np.exp(rng.normal(0, 0.7, cols))
    x[:, list(dead)] = 0
    return x.astype(F)


def gptq(w, x, bits, group, symmetric, act_order, static_groups, damping=0.01, block=128):
    """Frantar et al. 2023, algorithm 1. group 0: one grid a row. Groups that are not static are fitted
    to the columns as they are compensated by then (the reference code sees them as they were when
    their block of 128 began)."""
    rows, cols = w.shape
    xd = x.astype(np.float64)
    h = 2 / len(x) * xd.T @ xd
    w = w.copy()
    dead = np.diag(h) == 0
    h[dead, dead] = 1
    w[:, dead] = 0
    group = group or cols
    starts = range(0, cols, group)
    grids = [fit(w[:, i : i + group], "gptq", bits, symmetric, "f32") for i in starts]
    order = np.argsort(-np.diag(h), kind="stable") if act_order else np.arange(cols)
    w, h = w[:, order], h[order][:, order]
    h[np.arange(cols), np.arange(cols)] += damping * np.diag(h).mean()
    u = np.linalg.cholesky(np.linalg.inv(h)).T  # upper, H^-1 = UᵀU
    codes, losses = np.zeros((rows, cols)), np.zeros(cols)
    scales, zeros = np.zeros((rows, len(grids))), np.zeros((rows, len(grids)))
    w = w.astype(np.float64)
    for i in range(cols):
        if static_groups:
            g = order[i] // group
            scale, zero = grids[g]
        else:
            g = i // group
            if i % group == 0:
                scale, zero = fit(w[:, i : i + group].astype(F), "gptq", bits, symmetric, "f32")
        scales[:, g], zeros[:, g] = scale, zero
        codes[:, i] = codes_of(w[:, i : i + 1].astype(F), scale, zero, "gptq", bits)[:, 0]
        value = scale.astype(np.float64) * (codes[:, i] - zero)
        error = (w[:, i] - value) / u[i, i]
        w[:, i:] -= np.outer(error, u[i, i:])
        losses[i] = (error**2).sum() / 2
    inverse = np.argsort(order)
    return codes[:, inverse], scales, zeros, losses[inverse], np.arange(cols)[inverse] // group


def gptq_golden() -> None:
    rng = np.random.default_rng(2)
    rows, cols = 24, 160
    w = rng.normal(0, 0.05, (rows, cols)).astype(F)
    x = calibration(rng, 400, cols, dead=(7, 100))
    xd = x.astype(np.float64)
    out = {"w": w, "x": x, "hessian": 2 / len(x) * xd.T @ xd}
    for name, bits, group, symmetric, act_order, static in (
        ("channel", 4, 0, False, False, False), ("channel_order", 3, 0, True, True, False),
        ("group", 4, 32, True, False, False), ("group_order", 4, 32, False, True, False),
        ("group_short", 4, 64, False, False, False), ("static", 4, 32, True, False, True),
        ("static_order", 3, 64, False, True, True),
    ):  # fmt: skip
        codes, scales, zeros, losses, groups = gptq(w, x, bits, group, symmetric, act_order, static)
        out |= {f"{name}.codes": codes, f"{name}.scales": scales, f"{name}.zeros": zeros,
                f"{name}.losses": losses, f"{name}.group_of": groups,
                f"{name}.spec": [bits, group, symmetric, act_order, static]}  # fmt: skip
    save("gptq", out)


def gptq_q8_0(w, x, damping=0.01):
    """The same loop where the grid is Q8_0: a block's scale from its columns as they are compensated
    when it begins, stored as f16; codes -127 … 127 for the stored scale."""
    cols = w.shape[1]
    xd, w = x.astype(np.float64), w.astype(np.float64)
    h = 2 / len(x) * xd.T @ xd
    h[np.arange(cols), np.arange(cols)] += damping * np.diag(h).mean()
    u = np.linalg.cholesky(np.linalg.inv(h)).T
    codes = np.zeros(w.shape)
    scales = np.zeros((len(w), cols // 32))
    for i in range(cols):
        if i % 32 == 0:
            largest = np.abs(w[:, i : i + 32].astype(F)).max(1)
            scales[:, i // 32] = stored((largest / F(127)).astype(F), "f16")
        scale = scales[:, i // 32]
        codes[:, i] = np.clip(np.round((w[:, i].astype(F) / scale.astype(F))), -127, 127)
        error = (w[:, i] - scale * codes[:, i]) / u[i, i]
        w[:, i:] -= np.outer(error, u[i, i:])
    return codes, scales


def gptq_blocks_golden() -> None:
    rng = np.random.default_rng(3)
    w = rng.normal(0, 0.05, (20, 256)).astype(F)
    x = calibration(rng, 600, 256)
    codes, scales = gptq_q8_0(w, x)
    xd = x.astype(np.float64)
    save("gptq_blocks", {"w": w, "hessian": 2 / len(x) * xd.T @ xd, "q8_0.codes": codes, "q8_0.scales": scales})


# ---- AWQ -----------------------------------------------------------------------------------------


def grouped(x: np.ndarray, group: int) -> np.ndarray:
    return x.reshape(-1, group)


def awq_round(w, group: int, bits: int = 4) -> np.ndarray:
    rows = grouped(w, group)
    scale, zero = fit(rows, "awq", bits, False, "f32")
    return ((codes_of(rows, scale, zero, "awq", bits) - zero[:, None]) * scale[:, None]).reshape(w.shape)


def awq_search(weights, x, group: int, duo: bool):
    """Lin et al. 2024 with AutoAWQ's search: 20 ratios, the loss at the linears' own output."""
    joined = np.concatenate(weights)
    largest = np.abs(grouped(joined, group)).max(1, keepdims=True) + F(1e-6)
    w_mean = (np.abs(grouped(joined, group)) / largest).reshape(joined.shape).mean(0, dtype=np.float64)
    x_mean = np.abs(x).mean(0, dtype=np.float64).astype(F)
    losses, scales = [], []
    for k in range(20):
        r = k / 20
        s = (x_mean.astype(np.float64) ** r).astype(F)
        if duo:
            s = s / ((w_mean.astype(F).astype(np.float64) ** (1 - r)).astype(F) + F(1e-4))
        s = np.maximum(s, F(1e-4))
        s = s / np.sqrt(s.max() * s.min())
        error = [(awq_round(w * s, group) / s - w) @ x.T.astype(np.float64) for w in weights]
        losses.append((np.concatenate(error) ** 2).mean())
        scales.append(s)
    best = int(np.argmin(losses))
    return x_mean, losses, best, scales[best]


def awq_clip(w, x, group: int):
    """llm-awq's auto_clip: max · (1 − k/20), k < 10, at most 512 inputs."""
    x = x[:: max(1, len(x) // 512)].astype(np.float64)
    out = np.zeros((len(w), w.shape[1] // group))
    for g in range(out.shape[1]):
        part, own = w[:, g * group : (g + 1) * group], x[:, g * group : (g + 1) * group]
        largest, least = np.abs(part).max(1), np.full(len(w), np.inf)
        for k in range(10):
            bound = (largest * (F(1) - F(k) / F(20))).astype(F)
            clipped = np.clip(part, -bound[:, None], bound[:, None])
            error = (((awq_round(clipped, group) - part) @ own.T) ** 2).mean(1)
            out[:, g] = np.where(error < least, bound, out[:, g])
            least = np.minimum(error, least)
    return out


def awq_golden() -> None:
    rng = np.random.default_rng(4)
    weights = [rng.normal(0, 0.05, (rows, 128)).astype(F) for rows in (24, 13)]
    x = calibration(rng, 1100, 128)
    x[:, 17] *= 30
    out = {"w0": weights[0], "w1": weights[1], "x": x, "clip": awq_clip(weights[0], x, 32)}
    for name, duo in (("duo", True), ("plain", False)):
        x_mean, losses, best, s = awq_search(weights, x, 32, duo)
        out |= {"x_mean": x_mean, f"{name}.losses": losses, f"{name}.best": best, f"{name}.scales": s}
    save("awq", out)


# ---- SmoothQuant, LLM.int8(), HQQ ----------------------------------------------------------------


def smoothquant_golden() -> None:
    rng = np.random.default_rng(5)
    w = [rng.normal(0, 0.05, (rows, 40)).astype(F) for rows in (16, 8)]
    for one in w:
        one[:, 3] = 0
    x = calibration(rng, 50, 40, dead=(9,))
    x[:, 2] = np.abs(x[:, 2])
    w_max = np.abs(np.concatenate(w)).max(0)
    out = {"w0": w[0], "w1": w[1], "x": x}
    for alpha in (0.5, 0.85):
        a = np.maximum(np.abs(x).max(0), 1e-5).astype(np.float64)
        b = np.maximum(w_max, 1e-5).astype(np.float64)
        out[f"paper.{alpha}"] = np.maximum(a**alpha / b ** (1 - alpha), 1e-5)
        a = (x.max(0) - x.min(0)).astype(np.float64)
        b = 2 * w_max.astype(np.float64)
        s = np.maximum(a, 1e-5) ** alpha / np.maximum(b, 1e-5) ** (1 - alpha)
        out[f"llm-compressor.{alpha}"] = np.maximum(np.where(b > 0, s, a), 1e-5)
    save("smoothquant", out)


def llm_int8_golden() -> None:
    """Dettmers et al. 2022: each token's outliers in floats, the rest in integers."""
    rng = np.random.default_rng(6)
    w = rng.normal(0, 0.05, (24, 96)).astype(F)
    w[5] = 0
    x = rng.normal(0, 1, (7, 96)).astype(F)
    x[:4, [10, 50]] *= 20
    x[6] = 0
    bias = rng.normal(0, 1, 24).astype(F)
    absmax = np.abs(w).max(1)
    codes = np.round(w / np.where(absmax > 0, absmax, 1)[:, None] * F(127))
    decoded = codes * absmax[:, None].astype(np.float64) / 127
    out = {"w": w, "x": x, "bias": bias, "codes": codes, "absmax": absmax, "fixed": [10, 33]}
    for name in ("token", "fixed", "none"):
        y = []
        for row in x:
            outlier = np.abs(row) >= 6 if name == "token" else np.isin(np.arange(96), [10, 33])
            outlier = outlier & (name != "none")
            rest = np.where(outlier, 0, row).astype(F)
            scale = np.abs(rest).max()
            q = np.round(rest / (scale if scale > 0 else 1) * F(127))
            y.append((codes @ q) * scale * absmax / 127**2 + decoded @ np.where(outlier, row, 0) + bias)
        out[f"y.{name}"] = np.array(y)
    save("llm_int8", out)


def hqq(w, bits: int, group: int, p=0.7, beta=10.0, kappa=1.01, iterations=20):
    x = grouped(w, group)
    top = F(2**bits - 1)
    span = x.max(1) - x.min(1)
    s = np.where(span <= 1e-4, 1, np.minimum(top / np.where(span > 0, span, 1), 2e4)).astype(F)[:, None]
    z = (-x.min(1)[:, None] * s).astype(F)
    best = 1e4
    for rounds in range(1, iterations + 1):
        q = np.clip(np.round(x * s + z), 0, top)
        r = (q - z) / s
        d = (x - r).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            e = np.sign(d) * np.nan_to_num(np.maximum(np.abs(d) - np.abs(d) ** (p - 1) / beta, 0))
        z = (q - (x - e.astype(F)) * s).mean(1, keepdims=True, dtype=np.float64).astype(F)
        beta *= kappa
        error = np.abs(d).mean()
        if not error < best:
            break
        best = error
    q = np.clip(np.round(x * s + z), 0, top)
    return q.reshape(w.shape), 1 / s, z, rounds


def hqq_golden() -> None:
    rng = np.random.default_rng(7)
    w = (rng.standard_t(3, (20, 128)) * 0.05).astype(F)  # heavy tails
    w[3, :64] = 0.25  # no range
    w[7, 5] = 2.5  # an error that the solver shrinks
    out = {"w": w}
    for bits, group in ((4, 64), (2, 32), (5, 32)):
        codes, scales, zeros, rounds = hqq(w, bits, group)
        out |= {f"{bits}.{group}.codes": codes, f"{bits}.{group}.scales": scales,
                f"{bits}.{group}.zeros": zeros, f"{bits}.{group}.rounds": rounds}  # fmt: skip
    save("hqq", out)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    rtn_golden()
    gptq_golden()
    gptq_blocks_golden()
    awq_golden()
    smoothquant_golden()
    llm_int8_golden()
    hqq_golden()


if __name__ == "__main__":
    main()
