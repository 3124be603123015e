#!/usr/bin/env python3
"""Writes tests/model/golden/variants.json: log-probabilities of ../shared/data/models/hf-320 models
under other configurations (windows, RoPE scalings, activations, ...), from a float64 forward of
transformers. The weights stay where they are; the file holds the changes to config.json and the
log-probabilities. Needs transformers, torch and safetensors.

usage: tools/make_variant_golden.py [DATA]     DATA: default ../shared/data
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM

LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 1.0,
        "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6],
        "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 9.5]}

# name, base, changes to config.json (None removes a key), max_context
VARIANTS = [
    ("mistral_window", "llama",
     {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 40,
      "attention_bias": None, "mlp_bias": None}, 0),
    ("llama_4x_llama3", "llama",
     {"rope_parameters": None, "rope_theta": 50000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 128}}, 0),
    ("llama_yarn_mscale", "llama",
     {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "mscale": 1.2,
                          "mscale_all_dim": 0.6, "original_max_position_embeddings": 64,
                          "truncate": False}}, 0),
    ("llama_yarn_attention_factor", "llama",
     {"rope_parameters": None, "rope_theta": 10000.0,
      "rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 0.9, "beta_fast": 20.0,
                       "beta_slow": 2.0, "original_max_position_embeddings": 128}}, 0),
    ("llama_gelu", "llama", {"hidden_act": "gelu", "rms_norm_eps": 1e-3}, 0),
    ("llama_longrope", "llama",
     {"rope_parameters": {**LONG, "factor": 4.0, "original_max_position_embeddings": 128}}, 0),
    ("phi3_longrope_long", "phi3",
     {"original_max_position_embeddings": 128, "sliding_window": None, "rope_parameters": LONG},
     0),
    ("phi3_longrope_short", "phi3",
     {"original_max_position_embeddings": 320, "max_position_embeddings": 2048,
      "rope_parameters": LONG}, 320),
    ("phi3_partial", "phi3",
     {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                          "partial_rotary_factor": 0.5}}, 0),
    ("qwen2_upper_window", "qwen2",
     {"use_sliding_window": True, "sliding_window": 50, "max_window_layers": 2,
      "layer_types": None}, 0),
    ("qwen3_layer_types", "qwen3",
     {"use_sliding_window": True, "sliding_window": 33,
      "layer_types": ["sliding_attention", "full_attention", "full_attention",
                      "sliding_attention"]}, 0),
    ("gemma2_no_caps", "gemma2",
     {"attn_logit_softcapping": None, "final_logit_softcapping": None, "sliding_window": 31,
      "query_pre_attn_scalar": 100}, 0),
    ("gemma3_4x", "gemma3",
     {"rope_parameters": None, "layer_types": None, "_sliding_window_pattern": None,
      "sliding_window_pattern": 2, "rope_theta": 200000.0, "rope_local_base_freq": 5000.0,
      "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 0),
    ("smollm3_window", "smollm3",
     {"use_sliding_window": True, "sliding_window": 48, "layer_types": None,
      "no_rope_layers": None, "no_rope_layer_interval": 2}, 0),
    ("gpt2_by_layer", "gpt2",
     {"scale_attn_by_inverse_layer_idx": True, "activation_function": "gelu"}, 0),
    ("gpt2_unscaled", "gpt2", {"scale_attn_weights": False}, 0),
]
# Keys whose null means something to transformers stay as null, the others go.
NULLS = {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"}


def changed(config, changes):
    for key, value in changes.items():
        if value is None and key not in NULLS:
            config.pop(key, None)
        else:
            config[key] = value
    return config


def log_probabilities(folder, config, ids):
    with tempfile.TemporaryDirectory() as temp:
        temp = pathlib.Path(temp)
        (temp / "config.json").write_text(json.dumps(config))
        (temp / "model.safetensors").symlink_to((folder / "model.safetensors").resolve())
        model = AutoModelForCausalLM.from_pretrained(temp, dtype=torch.float64,
                                                     attn_implementation="eager")
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    rows = torch.log_softmax(logits, -1)
    return [round(float(rows[i, ids[i + 1]]), 7) for i in range(len(ids) - 1)]


def main():
    root = pathlib.Path(__file__).parent.parent
    data = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "../shared/data"
    lines = []
    for name, base, changes, max_context in VARIANTS:
        folder = data / "models/hf-320" / base
        config = changed(json.loads((folder / "config.json").read_text()), changes)
        ids = json.loads((folder / "golden.json").read_text())["ids"]
        plain = json.loads((folder / "golden.json").read_text())["next_logprob"]
        values = log_probabilities(folder, config, ids)
        moved = max(abs(a - b) for a, b in zip(values, plain))
        print(f"{name}: differs from {base} by up to {moved:.4f}")
        assert moved > 1e-3, name
        lines.append(json.dumps({"name": name, "base": base, "config": config,
                                 "max_context": max_context, "next_logprob": values}))
    path = root / "tests/model/golden/variants.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{"made_with": "transformers {transformers.__version__}, torch '
                    f'{torch.__version__}, float64", "variants": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
