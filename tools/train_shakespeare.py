#!/usr/bin/env python3
"""Trains the demonstration GPT of models/shakespeare and writes its files and goldens.

A character-level GPT-2 of 0.83 million parameters on Tiny Shakespeare (public domain). Needs torch,
transformers, tokenizers and safetensors; about 30 minutes on one core. The result is committed, so
this script is only needed to make another one:

    python tools/train_shakespeare.py
    python tools/train_shakespeare.py --goldens-only     # from the committed weights

--width 256 --out FOLDER --goldens FOLDER trains one whose linears k-quants' blocks divide.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers
from transformers import GPT2Config, GPT2LMHeadModel

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = 256  # context length in characters
GOLDEN_CHARACTERS = 200


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in (("--text", "examples/shakespeare/input.txt"),
                          ("--out", "models/shakespeare"),
                          ("--goldens", "tests/golden/shakespeare")):
        parser.add_argument(flag, type=pathlib.Path, default=ROOT / default)
    parser.add_argument("--goldens-only", action="store_true")
    parser.add_argument("--width", type=int, default=128, help="channels; 32 a head")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--peak-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def make_tokenizer(text):
    """One token per character of the text; any other character becomes a space."""
    characters = sorted(set(text))
    vocabulary = {character: index for index, character in enumerate(characters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    known = "".join("\\" + c if c in "\\]^-[&" else c for c in characters)
    tokenizer.normalizer = normalizers.Replace(Regex(f"[^{known}]"), " ")
    tokenizer.decoder = decoders.Fuse()
    assert tokenizer.decode(tokenizer.encode("".join(characters)).ids) == "".join(characters)
    assert tokenizer.decode(tokenizer.encode("A\té7").ids) == "A   "
    return tokenizer


def make_config(vocabulary_size, width):
    return GPT2Config(vocab_size=vocabulary_size, n_positions=BLOCK, n_embd=width, n_layer=4,
                      n_head=width // 32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None,
                      eos_token_id=None, use_cache=False)


@torch.no_grad()
def validation_losses(model, ids):
    """-log p of every character but the first, as [windows, BLOCK]: each non-overlapping window of
    BLOCK characters is read from an empty context and predicts its successors."""
    model.eval()
    windows = (len(ids) - 1) // BLOCK
    inputs = ids[:windows * BLOCK].view(windows, BLOCK)
    targets = ids[1:windows * BLOCK + 1].view(windows, BLOCK)
    losses = [torch.nn.functional.cross_entropy(model(some).logits.double().transpose(1, 2), wanted,
                                                reduction="none")
              for some, wanted in zip(inputs.split(16), targets.split(16))]
    model.train()
    return torch.cat(losses)


def learning_rate(step, arguments):
    warmup = 100
    if step < warmup:
        return arguments.peak_rate * (step + 1) / warmup
    progress = (step - warmup) / (arguments.steps - warmup)
    return arguments.peak_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def train(model, training, validation, arguments):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": plain, "weight_decay": 0.0}],
                                  lr=arguments.peak_rate, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(arguments.seed)
    started = time.monotonic()
    for step in range(arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, arguments)
        starts = torch.randint(len(training) - BLOCK - 1, (arguments.batch,), generator=generator)
        inputs = torch.stack([training[s:s + BLOCK] for s in starts])
        targets = torch.stack([training[s + 1:s + BLOCK + 1] for s in starts])
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 250 == 249 or step == 19:
            value = validation_losses(model, validation).mean().item()
            print(f"step {step + 1}: training {loss.item():.4f}, validation {value:.4f}, "
                  f"{time.monotonic() - started:.0f} s", flush=True)


def write_model(model, tokenizer, out):
    out.mkdir(parents=True, exist_ok=True)
    model.config.use_cache = True
    model.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": BLOCK,
         "clean_up_tokenization_spaces": False}, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(
        {"do_sample": True, "temperature": 0.8, "max_new_tokens": 200}, indent=2) + "\n")


@torch.no_grad()
def write_goldens(arguments, validation, characters):
    """Log-probabilities of a prompt from the validation text, and its loss, both in f64."""
    model = GPT2LMHeadModel.from_pretrained(arguments.out).double().eval()
    prompt = validation[:GOLDEN_CHARACTERS]
    logprobs = torch.log_softmax(model(prompt[None]).logits[0], dim=-1)
    greedy = prompt[:20].tolist()
    for _ in range(100):
        greedy.append(int(model(torch.tensor([greedy])).logits[0, -1].argmax()))
    losses = validation_losses(model, validation)
    arguments.goldens.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        (arguments.goldens / name).write_text(json.dumps(value, separators=(",", ":")) + "\n")

    write("ids.json", prompt.tolist())
    write("logprobs.json", [[round(x, 7) for x in row] for row in logprobs.tolist()])
    write("greedy.json", {"prompt": greedy[:20], "ids": greedy[20:],
                          "text": "".join(characters[i] for i in greedy[20:])})
    # The GPTQ protocol predicts the window's own characters only, so not the last successor.
    write("validation.json", {"loss": losses.mean().item(),
                              "loss_gptq": losses[:, :-1].mean().item(),
                              "window": BLOCK, "windows": len(losses)})
    print(f"validation loss {losses.mean():.6f} over {len(losses)} windows of {BLOCK}")


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    text = arguments.text.read_text(encoding="utf-8")
    tokenizer = make_tokenizer(text)
    characters = sorted(set(text))
    index = {character: i for i, character in enumerate(characters)}
    ids = torch.tensor([index[c] for c in text])
    split = int(0.9 * len(ids))
    if not arguments.goldens_only:
        model = GPT2LMHeadModel(make_config(len(characters), arguments.width))
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters} parameters, {len(characters)} characters", flush=True)
        train(model, ids[:split], ids[split:], arguments)
        write_model(model, tokenizer, arguments.out)
    write_goldens(arguments, ids[split:], characters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
