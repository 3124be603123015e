#!/usr/bin/env python3
"""Writes src/model/config/golden/hf_configs.json: what transformers makes of config.json files in
the 4.x form (rope_theta, rope_scaling) and the 5.x form (rope_parameters), with many keys absent or
null. Needs transformers and torch.

usage: tools/make_config_golden.py
"""

import json
import pathlib

import transformers
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
         "max_position_embeddings": 4096}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
FACTORS = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
           "long_factor": [1.0, 2.0, 4.0, 8.0, 12.0, 20.0, 40.0, 64.0]}

CASES = [
    {"model_type": "llama"},
    {"model_type": "llama", **SMALL},
    {"model_type": "llama", **SMALL, "num_key_value_heads": None, "rope_scaling": None},
    {"model_type": "llama", **SMALL, "head_dim": 32, "rope_theta": 500000.0},
    {"model_type": "llama", **SMALL, "rope_theta": 500000.0,
     "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"model_type": "llama", **SMALL, "rope_theta": 500000.0,
     "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 512}},
    {"model_type": "llama", **SMALL, "rope_scaling": YARN},
    {"model_type": "llama", **SMALL, "rope_scaling": {**YARN, "attention_factor": 0.7}},
    {"model_type": "llama", **SMALL,
     "rope_scaling": {**YARN, "mscale": 0.8, "mscale_all_dim": 0.5, "beta_fast": 16.0}},
    {"model_type": "llama", **SMALL,
     "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                         "original_max_position_embeddings": 128, "truncate": False}},
    {"model_type": "llama", **SMALL, "partial_rotary_factor": 0.5},
    {"model_type": "mistral"},
    {"model_type": "mistral", **SMALL},
    {"model_type": "mistral", **SMALL, "sliding_window": None, "rope_theta": 1e6},
    {"model_type": "mistral", **SMALL, "sliding_window": 128, "head_dim": 8},
    {"model_type": "qwen2", **SMALL, "rope_theta": 1e6, "sliding_window": 512,
     "use_sliding_window": False, "max_window_layers": 4},
    {"model_type": "qwen2", **SMALL, "rope_theta": 1e6, "sliding_window": 512,
     "use_sliding_window": True, "max_window_layers": 4, "tie_word_embeddings": True},
    {"model_type": "qwen3"},
    {"model_type": "qwen3", **SMALL, "head_dim": 32, "use_sliding_window": True,
     "sliding_window": 64,
     "layer_types": ["full_attention", "sliding_attention"] * 4},
    {"model_type": "gemma2"},
    {"model_type": "gemma2", **SMALL, "head_dim": 32, "attn_logit_softcapping": None,
     "final_logit_softcapping": 20.0, "query_pre_attn_scalar": 144},
    {"model_type": "gemma3_text"},
    {"model_type": "gemma3_text", **SMALL, "head_dim": 32, "rope_theta": 5e5,
     "rope_local_base_freq": 2e4, "sliding_window": 256, "sliding_window_pattern": 3,
     "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    {"model_type": "gemma3_text", **SMALL, "head_dim": 32,
     "layer_types": ["sliding_attention"] * 5 + ["full_attention"] * 3,
     "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0,
                                            "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    {"model_type": "phi3"},
    {"model_type": "phi3", **SMALL, "num_key_value_heads": None, "sliding_window": 2047,
     "partial_rotary_factor": 0.75},
    {"model_type": "phi3", **SMALL, "original_max_position_embeddings": 1024,
     "rope_scaling": {"type": "longrope", **FACTORS}},
    {"model_type": "phi3", **SMALL, "original_max_position_embeddings": 1024,
     "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "attention_factor": 1.25,
                         **FACTORS}},
    {"model_type": "llama", **SMALL, "rope_scaling": {
        "rope_type": "longrope", "factor": 8.0, "original_max_position_embeddings": 256,
        **FACTORS}},
    {"model_type": "smollm3"},
    {"model_type": "smollm3", **SMALL, "no_rope_layer_interval": 3},
    {"model_type": "smollm3", **SMALL, "use_sliding_window": True, "sliding_window": 64,
     "no_rope_layers": [1, 1, 0, 1, 1, 0, 1, 0]},
    {"model_type": "gpt2"},
    {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_inner": 100,
     "n_positions": 128, "vocab_size": 50},
]


def frequencies(config, layer_type, long):
    parameters = config.rope_parameters
    if layer_type is not None:
        parameters = parameters[layer_type]
    if parameters["rope_type"] == "default":
        head_dim = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads)
        dim = head_dim
        if config.model_type == "phi3":  # the others ignore it
            dim = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
        values = [parameters["rope_theta"] ** (-i / dim) for i in range(0, dim, 2)]
        return {"inv_freq": values, "factor": 1.0}
    seq_len = None
    if long:
        seq_len = parameters["original_max_position_embeddings"] + 1
    kwargs = {} if layer_type is None else {"layer_type": layer_type}
    inv_freq, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](
        config, "cpu", seq_len=seq_len, **kwargs)
    return {"inv_freq": [float(v) for v in inv_freq], "factor": float(factor)}


def windows(config):
    layers = config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or 0
    kind = config.model_type
    if kind in ("mistral", "phi3"):
        return [window] * layers
    if kind in ("llama", "gpt2"):
        return [0] * layers
    if kind == "smollm3" and not config.use_sliding_window:
        window = 0
    return [window if t == "sliding_attention" else 0 for t in config.layer_types]


def expect(source):
    config = AutoConfig.for_model(**json.loads(json.dumps(source)))
    kind = config.model_type
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    scalar = getattr(config, "query_pre_attn_scalar", head_dim)
    ffn = (config.n_inner or 4 * config.n_embd) if kind == "gpt2" else config.intermediate_size
    eps = config.layer_norm_epsilon if kind == "gpt2" else config.rms_norm_eps
    result = {
        "vocabulary": config.vocab_size, "width": config.hidden_size, "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", heads), "head_dim": head_dim,
        "ffn_width": ffn, "context": config.max_position_embeddings, "norm_eps": eps,
        "tied": config.tie_word_embeddings, "attention_scale": scalar ** -0.5,
        "attention_cap": getattr(config, "attn_logit_softcapping", None) or 0,
        "final_cap": getattr(config, "final_logit_softcapping", None) or 0,
        "windows": windows(config),
        "rotates": getattr(config, "no_rope_layers", None)
        or [int(kind != "gpt2")] * config.num_hidden_layers,
    }
    if kind == "gemma3_text":
        result["full"] = frequencies(config, "full_attention", False)
        result["sliding"] = frequencies(config, "sliding_attention", False)
    elif kind != "gpt2":
        result["full"] = frequencies(config, None, False)
        if config.rope_parameters["rope_type"] == "longrope":
            result["long"] = frequencies(config, None, True)
    return result


def main():
    cases = [{"config": case, "expect": expect(case)} for case in CASES]
    path = pathlib.Path(__file__).parent.parent / "src/model/config/golden/hf_configs.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"made_with": "transformers {transformers.__version__}", "cases": [\n'
                    f"{lines}\n]}}\n")
    print(f"{path}: {len(cases)} cases")


if __name__ == "__main__":
    main()
