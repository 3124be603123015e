#!/usr/bin/env python3
"""Whether transformers makes of a Hugging Face folder what nibble makes of a model: the ids of a
text, and the logits.

  python3 tools/check_hf_folder.py MODEL FOLDER [--nibble build/release/bin/nibble]

MODEL: the GGUF file that FOLDER was made from, or FOLDER itself (a quantised one). Needs torch,
transformers, and compressed-tensors for folders in its layouts. Prints the largest difference of a
logit and fails above --tolerance of the largest logit.

--decompress: the weights come from compressed-tensors' own decompress(), linear by linear. Asymmetric
pack-quantized folders need it: on loading transformers asks the package for the tensors' shapes by its
compress() of an empty ("meta") weight, which forgets that zero points are packed (0.20.1), so that the
package's own files are refused as well. That its compress() of the decompressed weights gives the
folder's bytes again is checked, too.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy
import torch
import transformers

TEXT = ("I'll SAY it'S 1234567 times, 3.14 or 12,345.67!\n\n\n  if (x==0) {\n\t\treturn y->z[10];\n}\r\n"
        "  trailing   spaces   \n naïve café — “quotes”… 你好，世界 こんにちは Привет мир 😀👍🏽 ½ x²\n"
        "The tower is 324 metres tall, about the same height as an 81-storey building.")


def nibble_ids(args):
    done = subprocess.run([args.nibble, "tokenize", args.model, "--json", "-p", TEXT], check=True,
                          capture_output=True, encoding="utf-8")
    return json.loads(done.stdout)["ids"]


def nibble_logits(args, ids):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "ids.json"
        file.write_text(json.dumps(ids))
        out = pathlib.Path(folder) / "logits.npy"
        subprocess.run([args.nibble, "eval", args.model, "--ids-file", file, "--logits", out,
                        "--act", "f32", "--kv", "f32", "--quiet"], check=True)
        return torch.from_numpy(numpy.load(out))


def decompressed(folder):
    """The model in floats; every linear must come out of the package's compress() as it lies there."""
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from safetensors.torch import load_file

    config = transformers.AutoConfig.from_pretrained(folder)
    weights = config.quantization_config["config_groups"]["group_0"]["weights"]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    del config.quantization_config
    stored = load_file(pathlib.Path(folder) / "model.safetensors")
    state = {}
    modules = [name.removesuffix("weight_packed") for name in stored if name.endswith("weight_packed")]
    for name, tensor in stored.items():
        if not any(name.startswith(module) for module in modules):
            state[name] = tensor.float()
    for module in modules:
        own = {name.removeprefix(module): tensor for name, tensor in stored.items() if name.startswith(module)}
        plain = PackedQuantizationCompressor.decompress(own, scheme)
        exact = {**own, "weight_scale": own["weight_scale"].float()}  # not rounded to the scale's type
        state[module + "weight"] = PackedQuantizationCompressor.decompress(exact, scheme)["weight"]
        again = PackedQuantizationCompressor.compress(
            {key: value for key, value in plain.items() if key != "weight_shape"}, scheme)
        for key, value in own.items():
            assert torch.equal(value, again[key]), f"{module}{key}"
    print(f"{len(modules)} linears: compress(decompress(x)) = x")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--nibble", default="build/release/bin/nibble")
    parser.add_argument("--tolerance", default=1e-3, type=float)
    parser.add_argument("--decompress", action="store_true")
    args = parser.parse_args()
    ids = nibble_ids(args)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    found_ids = tokenizer(TEXT)["input_ids"]
    assert found_ids == ids, f"ids differ: {found_ids} {ids}"
    if args.decompress:
        model = decompressed(args.folder)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32)
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0]
    wanted = nibble_logits(args, ids)
    difference = (found - wanted).abs().max().item()
    largest = wanted.abs().max().item()
    same = (found.argmax(-1) == wanted.argmax(-1)).float().mean().item()
    print(f"{args.folder}: {len(ids)} ids equal; logits differ by at most {difference:.3g} of {largest:.3g}; "
          f"{100 * same:.1f}% same most probable token")
    assert difference < args.tolerance * largest


if __name__ == "__main__":
    main()
