#!/usr/bin/env python3
"""The cost model of docs/plan.md in nominal bytes, written again from the formulas, without looking
at src/cost: tests compare the two. Dense models without windows; numbers of models and devices are
arguments.

    tools/plan_reference.py            # prints the source document's example
"""

import dataclasses


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

    @property
    def matmul(self):
        """Weights that a step multiplies: all but the input table and the norms."""
        attention = 2 * self.width * self.heads * self.head_dim
        attention += 2 * self.width * self.kv_heads * self.head_dim
        feed_forward = 3 * self.width * self.ffn
        return self.layers * (attention + feed_forward) + self.vocabulary * self.width

    @property
    def parameters(self):
        norms = (2 * self.layers + 1) * self.width
        table = 0 if self.tied else self.vocabulary * self.width
        return self.matmul + norms + table


@dataclasses.dataclass
class Device:
    memory: float
    bandwidth: float  # with its efficiency
    flops: float
    overhead: float
    link: float = 0.0
    latency: float = 0.0


def plan(model, device, bits, kv_bits, batch, context, devices=1, price=0.0):
    w = bits / 8
    kappa = 2 * model.layers * model.kv_heads * model.head_dim * kv_bits / 8
    copies = max(1.0, devices / model.kv_heads)
    total = batch * context
    weight_bytes = model.matmul * w + batch * model.width * w
    kv_bytes = (total + batch) * kappa * copies
    scores = 4 * model.layers * model.heads * model.head_dim * (context + 1)
    flops = batch * (2 * model.matmul + scores)
    memory_s = (weight_bytes + kv_bytes) / (devices * device.bandwidth)
    compute_s = flops / (devices * device.flops)
    exchange = 0.0
    if devices > 1:
        sent = 2 * (devices - 1) / devices * batch * model.width * 2
        exchange = 2 * model.layers * (sent / device.link + device.latency)
    step = max(memory_s, compute_s) + exchange + device.overhead
    stored = model.parameters * w
    held = batch * (context + 1) * kappa * copies
    return {"weight_bytes": weight_bytes, "kv_bytes": kv_bytes, "bytes": weight_bytes + kv_bytes,
            "flops": flops, "step_s": step, "tok_s": batch / step,
            "bound": "compute" if compute_s > memory_s else "memory",
            "memory_weights_bytes": stored, "memory_kv_bytes": held,
            "memory_total_bytes": stored + held, "device_memory_bytes": devices * device.memory,
            "fits": stored + held <= devices * device.memory,
            "crossover_tokens": model.matmul * w / (kappa * copies),
            "cost_per_million_tokens": price * devices / 3600 / (batch / step) * 1e6}


LLAMA_3_8B = Model(128256, 4096, 14336, 32, 32, 8, 128)
H100 = Device(80e9, 0.8 * 3.35e12, 989.4e12, 0.5e-3, 450e9, 10e-6)

if __name__ == "__main__":
    for weights in (16, 8, 4):
        for kv in (16, 8):
            row = plan(LLAMA_3_8B, H100, weights, kv, 16, 4096)
            print(f"weights {weights:2} bits, cache {kv:2} bits: {1e3 * row['step_s']:.2f} ms, "
                  f"{row['tok_s']:.0f} tok/s, {row['bound']}-bound")
