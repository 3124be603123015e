#!/usr/bin/env python3
"""Decode steps on a calibrated machine: docs/cost-model.md's formula and the kernels' ways of cutting
work, written again for one case in Python alone. Tests compare it with src/cost. Dense models without
windows, one format for all matrices but the output.

    tools/calibrated_reference.py DEVICE.json    # SmolLM2-135M in q8_0 at some batches and contexts
"""

import dataclasses
import json
import math
import sys

PAGE = 32        # positions of a page
PANEL = 16       # rows of a weight matrix that lie side by side
TILE = 8         # rows of activations that are prepared, or multiply weights, together
SPLIT = 16       # pages of a run of attention
WAVE = 4         # runs of a wave, for each thread
FEW_VALUES = 8192
FEW_MULTIPLIES = 1 << 15

# Bits of a weight, and whether there are products with int8 activations.
WEIGHTS = {"f16": (16, False), "bf16": (16, False), "q8_0": (8.5, True), "q4_0": (4.5, True),
           "q4_1": (5, True), "q5_0": (5.5, True), "q6_k": (6.5625, True)}
# Pages that seal together (0: pages have one form), integer products, bytes of keys and of values of
# one KV head's page, side data and page floats included.
CACHES = {
    "f32": (0, False, lambda d: (128 * d, 128 * d)),
    "f16": (0, False, lambda d: (64 * d, 64 * d)),
    "fp8": (1, False, lambda d: (32 * d + 4, 32 * d + 4)),
    "int8": (1, True, lambda d: (32 * d + 64, 32 * d + 64 + 4)),
    "int4": (1, True, lambda d: (16 * d + 64, 16 * d + 64 + 4)),
}


@dataclasses.dataclass
class Model:
    vocabulary: int
    width: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool = False


SMOLLM2 = Model(49152, 576, 1536, 30, 9, 3, 64, True)


def between(points, x, key, values, scale=lambda v: v):
    """The values at x, linear between the points (ascending by key), constant beyond them."""
    if x <= points[0][key]:
        return [points[0][v] for v in values]
    if x >= points[-1][key]:
        return [points[-1][v] for v in values]
    above = next(i for i, point in enumerate(points) if point[key] >= x)
    low, high = points[above - 1], points[above]
    part = (scale(x) - scale(low[key])) / (scale(high[key]) - scale(low[key]))
    return [low[v] + (high[v] - low[v]) * part for v in values]


def busiest(units, threads):
    """What the busiest thread has, in units of the mean."""
    return math.ceil(units / threads) * threads / units if units > 0 else 1


class Machine:
    def __init__(self, device):
        self.device = device
        self.threads = device["threads"]
        self.curve = device["cache_bandwidth"]

    def bandwidth(self, size):
        return between(self.curve, size, "bytes", ("bandwidth",), math.log)[0]

    def work(self, size, bandwidth, cpu, p):
        memory = size / bandwidth
        beyond = max(0.0, memory - size / self.curve[0]["bandwidth"])
        overlapped = (beyond ** p + cpu ** p) ** (1 / p)
        return max(memory, overlapped)

    def kernel(self, weights, integer, rows):
        act = "int8" if integer else "f32"
        points = next(k["rows"] for k in self.device["kernels"]
                      if (k["format"], k["act"], k["isa"]) == (weights, act, self.device["isa"]))
        cpu, p = between(points, rows, "rows", ("cpu_s", "overlap_p"))
        last = points[-1]["rows"]
        return (cpu * rows / last if rows > last else cpu), p

    def attention(self, kv, integer, head_dim, group):
        act = "int8" if integer else "f32"
        keys = ("page_s", "unit_s", "overlap_p")
        by_head = []
        same = [a for a in self.device["attention"] if (a["kv"], a["act"]) == (kv, act)]
        for size in sorted({a["head_dim"] for a in same}):
            points = sorted((a for a in same if a["head_dim"] == size), key=lambda a: a["group"])
            by_head.append({"head_dim": size,
                            **dict(zip(keys, between(points, group, "group", keys)))})
        page, unit, p = between(by_head, head_dim, "head_dim", keys)
        beyond = 1.0
        if not by_head[0]["head_dim"] <= head_dim <= by_head[-1]["head_dim"]:
            nearest = by_head[0] if head_dim < by_head[0]["head_dim"] else by_head[-1]
            beyond = head_dim / nearest["head_dim"]
        return page * beyond, unit * beyond, p


def matrices(model):
    """(weights, panels of all that share its parallel region, whether only rows with logits pass)
    of every matrix of the model."""
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    regions = [[(model.width, query), (model.width, key), (model.width, key)],
               [(query, model.width)],
               [(model.width, model.ffn), (model.width, model.ffn)],
               [(model.ffn, model.width)]]
    out = []
    for layer in range(model.layers):
        for number, region in enumerate(regions):
            panels = sum(math.ceil(rows / PANEL) for _, rows in region)
            late = layer == model.layers - 1 and number > 0
            out += [(cols * rows, panels, late) for cols, rows in region]
    out.append((model.width * model.vocabulary, math.ceil(model.vocabulary / PANEL), True))
    return out


def step(machine, model, weights, kv, batch, context, output=None):
    """Seconds of a step in which `batch` sequences get their next token behind `context` others.
    output: format of the output matrix, where it is another."""
    output = output or weights
    unit_pages, integer_pages, block = CACHES[kv]
    threads = machine.threads

    open_kv = "f32" if kv == "f32" else "f16"

    def page_bytes(form):
        keys, values = CACHES[form][2](model.head_dim)
        piece = model.kv_heads * (keys + values)
        return math.ceil(piece * model.layers / 64) * 64

    sealed_positions = 0
    if unit_pages:
        unit = unit_pages * PAGE
        sealed_positions = max(0, context + 1 - (context % unit + 1))
    read = page_bytes(open_kv) / PAGE * (context + 1 - sealed_positions)
    read += page_bytes(kv) / PAGE * sealed_positions
    layer_bytes = read / model.layers * batch

    everything = [(*one, weights) for one in matrices(model)]
    everything[-1] = (*everything[-1][:3], output)
    size = lambda pieces: sum(one[0] * WEIGHTS[one[-1]][0] / 8 for one in pieces)
    table = output if model.tied else weights
    weight_bytes = size(everything) + batch * model.width * WEIGHTS[table][0] / 8
    bandwidth = machine.bandwidth(weight_bytes + layer_bytes * model.layers)

    # Matrices of one format that the same rows pass are one piece of work.
    products = 0.0
    for late, name in sorted({one[2:] for one in everything}):
        here = [one for one in everything if one[2:] == (late, name)]
        cpu_s, p = machine.kernel(name, WEIGHTS[name][1], batch)
        units = lambda panels: panels if batch <= TILE else math.ceil(panels / 2)
        cpu = cpu_s * sum(count * busiest(units(panels), threads) for count, panels, *_ in here)
        products += machine.work(size(here), bandwidth, cpu, p)

    pages = context // PAGE + 1
    sealed = (pages - 1) // unit_pages * unit_pages if unit_pages else 0
    opened = pages - sealed
    splits = (pages - 1) // SPLIT + 1
    group = model.heads // model.kv_heads
    cpu = overlap = units = multiplies = 0.0
    for rows, blocks in ((TILE, group // TILE), (group % TILE, 1)):
        if rows == 0 or blocks == 0:
            continue
        of_sealed = machine.attention(kv, integer_pages, model.head_dim, rows)
        of_open = machine.attention(open_kv, False, model.head_dim, rows)
        in_sealed, in_open = sealed * of_sealed[0], opened * of_open[0]
        here = model.kv_heads * batch * blocks
        one = here * (of_open[1] * splits + in_sealed + in_open)
        cpu += one
        overlap += one * (of_sealed[2] if in_sealed > in_open else of_open[2])
        units += here
        multiplies += 2 * pages * PAGE * rows * here * model.head_dim
    mean_overlap = overlap / cpu
    waiting = 0.0
    waves = units < 4 * threads and splits > 1
    if threads > 1 and multiplies > FEW_MULTIPLIES:
        tasks = units * splits
        cpu *= busiest(tasks if waves else units, threads) / threads
        if waves:
            waiting = math.ceil(tasks / (WAVE * threads)) * machine.device["barrier_s"]
    attention = (machine.work(layer_bytes, bandwidth, cpu, mean_overlap) + waiting) * model.layers

    d = machine.device
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    tiled = min(batch, math.ceil(math.ceil(batch / TILE) / threads) * TILE)
    placed_values = query + 2 * key
    placed = batch if batch * placed_values <= FEW_VALUES else math.ceil(batch / threads)
    normed = tiled * (model.layers * (model.width + query + model.width) + model.width)
    rows = d["row_value_s"] * normed + d["place_value_s"] * placed * model.layers * placed_values
    rows += d["gate_value_s"] * model.ffn * tiled * model.layers
    rows += d["logit_value_s"] * batch * model.vocabulary
    overhead = d["step_overhead_s"] + d["layer_overhead_s"] * model.layers
    return products + attention + rows + overhead


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        machine = Machine(json.load(file))
    for kv in ("f16", "int8"):
        for batch in (1, 8, 32):
            for context in (0, 2000):
                seconds = step(machine, SMOLLM2, "q8_0", kv, batch, context)
                print(f"q8_0 {kv:5} batch {batch:3} context {context:5}: {1e3 * seconds:.4f} ms")


if __name__ == "__main__":
    main()
