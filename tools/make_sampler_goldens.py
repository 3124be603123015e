#!/usr/bin/env python3
"""Writes tests/golden/sampling/cases.json: what every sampler leaves of a row of logits, and what is
drawn then, in NumPy.

    python tools/make_sampler_goldens.py     # needs numpy

The samplers are written down from their papers and llama.cpp's documentation (order and defaults
too), in double precision and independent of src/; random numbers as docs/sampling.md defines them.
"""

import json
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "sampling" / "cases.json"
VOCABULARY = 24
DRAWS = 24
MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
DEFAULTS = dict(
    temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, top_n_sigma=-1.0, xtc_probability=0.0,
    xtc_threshold=0.1, dynatemp_range=0.0, dynatemp_exponent=1.0, mirostat=0, mirostat_tau=5.0,
    mirostat_eta=0.1, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0,
    penalty_last_n=64, dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=-1,
    min_tokens=0)  # fmt: skip


# ---- random numbers --------------------------------------------------------------------------------


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(seed: int, choice: int, position: int, token: int) -> float:
    state = mix((mix((mix((seed + STEP) & MASK) + choice) & MASK) + position) & MASK)
    bits = mix((state + (token + 1) * STEP) & MASK)
    return ((bits >> 12) + 0.5) / 2**52


# ---- samplers over {token: logit} ------------------------------------------------------------------


def softmax(logits: dict, temperature: float = 1.0) -> dict:
    x = np.array(list(logits.values())) / temperature
    p = np.exp(x - x.max())
    return dict(zip(logits, p / p.sum()))


def by_probability(logits: dict) -> list:
    return sorted(logits, key=lambda t: (-logits[t], t))


def keep(logits: dict, tokens) -> dict:
    return {t: logits[t] for t in tokens}


def penalties(logits: dict, case: dict, p: dict) -> dict:
    logits = dict(logits)
    for token, bias in case["logit_bias"]:
        logits[token] += bias
    history = case["prompt"] + case["answer"]
    window = history if p["penalty_last_n"] < 0 else history[max(0, len(history) - p["penalty_last_n"]) :]
    for token in set(window):
        factor = p["repetition_penalty"]
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
        logits[token] -= window.count(token) * p["frequency_penalty"] + p["presence_penalty"]
    return logits


def dry(logits: dict, case: dict, p: dict) -> dict:
    """Each earlier place whose tokens before it equal the last ones, by comparing them all."""
    history = case["prompt"] + case["answer"]
    window = history if p["dry_penalty_last_n"] < 0 else history[max(0, len(history) - p["dry_penalty_last_n"]) :]
    n, allowed = len(window), p["dry_allowed_length"]
    if p["dry_multiplier"] == 0 or n <= allowed:
        return logits
    limit = n
    for back in range(n):
        tails = case["breakers"].get(str(window[n - 1 - back]))
        if tails is None:
            continue
        fitting = [len(t) for t in tails if window[n - back : n - back + len(t)] == t]
        if fitting:
            limit = back - max(fitting)
            break
    longest = {}
    for place in range(1, n):  # window[place] came behind window[:place]
        length = 0
        while length < place and window[place - 1 - length] == window[n - 1 - length]:
            length += 1
        length = min(length, limit)
        if length >= allowed:
            longest[window[place]] = max(longest.get(window[place], 0), length)
    out = dict(logits)
    if limit >= allowed:
        for token, length in longest.items():
            out[token] -= p["dry_multiplier"] * p["dry_base"] ** (length - allowed)
    return out


def forbid(logits: dict, case: dict, p: dict) -> dict:
    answer, gone = case["answer"], set()
    if len(answer) < p["min_tokens"]:
        gone |= set(case["ends"])
    for word in case["bad_words"]:
        before = word[:-1]
        if len(before) <= len(answer) and answer[len(answer) - len(before) :] == before:
            gone.add(word[-1])
    return {t: x for t, x in logits.items() if t not in gone and x > -np.inf}


def top_n_sigma(logits: dict, n: float) -> dict:
    x = np.array(list(logits.values()))
    return logits if n <= 0 else {t: v for t, v in logits.items() if v >= x.max() - n * x.std()}


def top_k(logits: dict, k: int) -> dict:
    return logits if k <= 0 else keep(logits, by_probability(logits)[:k])


def typical(logits: dict, p: float) -> dict:
    if p >= 1:
        return logits
    q = softmax(logits)
    entropy = -sum(x * np.log(x) for x in q.values())
    total, kept = 0.0, []
    for t in sorted(q, key=lambda t: abs(-np.log(q[t]) - entropy)):
        kept.append(t)
        total += q[t]
        if total > p:
            break
    return keep(logits, kept)


def top_p(logits: dict, p: float) -> dict:
    if p >= 1:
        return logits
    q = softmax(logits)
    total, kept = 0.0, []
    for t in by_probability(logits):
        kept.append(t)
        total += q[t]
        if total >= p:
            break
    return keep(logits, kept)


def min_p(logits: dict, p: float) -> dict:
    q = softmax(logits)
    return {t: x for t, x in logits.items() if q[t] >= p * max(q.values())}


def xtc(logits: dict, threshold: float) -> dict:
    q = softmax(logits)
    choices = [t for t in by_probability(logits) if q[t] >= threshold]
    return {t: x for t, x in logits.items() if t not in choices[:-1]}


def dynamic_temperature(logits: dict, p: dict) -> float:
    if p["dynatemp_range"] <= 0 or len(logits) < 2:
        return p["temperature"]
    low, high = max(0, p["temperature"] - p["dynatemp_range"]), p["temperature"] + p["dynatemp_range"]
    q = np.array(list(softmax(logits).values()))
    share = -(q * np.log(q)).sum() / np.log(len(q))
    return low + (high - low) * share ** p["dynatemp_exponent"]


def mirostat_cut(logits: dict, temperature: float, mu: float) -> dict:
    q = softmax(logits, temperature)
    order = by_probability(logits)
    kept = [t for t in order if -np.log2(q[t]) <= mu]
    return keep(logits, kept or order[:1])


# ---- cases -----------------------------------------------------------------------------------------


def survivors(case: dict, p: dict, excluded: bool):
    """(what is left, temperature): excluded: XTC's coin fell so."""
    logits = {t: float(x) for t, x in enumerate(case["logits"])}
    logits = forbid(dry(penalties(logits, case, p), case, p), case, p)
    if p["mirostat"] == 2:
        mu = case["mirostat_state"] if case["answer"] else 2 * p["mirostat_tau"]
        return mirostat_cut(logits, p["temperature"], mu), p["temperature"]
    logits = top_k(top_n_sigma(logits, p["top_n_sigma"]), p["top_k"])
    logits = min_p(top_p(typical(logits, p["typical_p"]), p["top_p"]), p["min_p"])
    if excluded:
        logits = xtc(logits, p["xtc_threshold"])
    return logits, dynamic_temperature(logits, p)


def distribution(case: dict, p: dict) -> np.ndarray:
    total = np.zeros(VOCABULARY)
    for excluded, weight in ((True, p["xtc_probability"]), (False, 1 - p["xtc_probability"])):
        if weight > 0:
            left, temperature = survivors(case, p, excluded)
            for t, q in softmax(left, temperature).items():
                total[t] += weight * q
    return total


def draw(case: dict, p: dict, seed: int):
    position = len(case["prompt"]) + len(case["answer"])
    coin = p["xtc_probability"] > 0 and uniform(seed, case["choice"], position, -1) <= p["xtc_probability"]
    left, temperature = survivors(case, p, coin)
    token = max(left, key=lambda t: left[t] / temperature - np.log(-np.log(uniform(seed, case["choice"], position, t))))
    target = None
    if p["mirostat"] == 2:
        mu = case["mirostat_state"] if case["answer"] else 2 * p["mirostat_tau"]
        target = mu - p["mirostat_eta"] * (-np.log2(softmax(left, temperature)[token]) - p["mirostat_tau"])
    return token, target


def make(name: str, params: dict, random: np.random.Generator, **extra) -> dict:
    p = {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in (DEFAULTS | params).items()}
    case = dict(name=name, params=p, choice=int(random.integers(3)), prompt=[5, 1, 2, 3, 1, 2, 3, 4, 1, 2],
                answer=[3, 1, 2], breakers={}, bad_words=[], ends=[], logit_bias=[], mirostat_state=3.0)  # fmt: skip
    case["logits"] = [float(x) for x in random.normal(0, 1.7, VOCABULARY).astype(np.float32)]
    case |= extra
    drawn = [draw(case, p, seed) for seed in range(DRAWS)]
    case["breakers_list"] = [[int(t), *tail] for t, tails in case["breakers"].items() for tail in tails]
    case["probabilities"] = [float(x) for x in distribution(case, p)]
    case["drawn"] = [int(token) for token, _ in drawn]
    if p["mirostat"] == 2:
        case["targets"] = [float(target) for _, target in drawn]
    return case


def main() -> None:
    random = np.random.default_rng(7)
    all_on = dict(temperature=0.9, top_k=15, top_p=0.95, min_p=0.02, typical_p=0.97, top_n_sigma=2.0,
                  xtc_probability=0.5, xtc_threshold=0.12, dynatemp_range=0.4, dynatemp_exponent=1.3,
                  repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, dry_multiplier=0.8)  # fmt: skip
    words = dict(bad_words=[[7], [1, 2, 9], [2, 10], [4, 2, 11]], ends=[0, 6])
    cases = [
        make("plain", {}, random),
        make("temperature", dict(temperature=0.6), random),
        make("top-n-sigma 1", dict(top_n_sigma=1.0), random),
        make("top-n-sigma 0.4, top-k", dict(top_n_sigma=0.4, top_k=3), random),
        make("top-n-sigma, typical", dict(top_n_sigma=1.5, typical_p=0.8), random),
        make("xtc", dict(xtc_probability=0.5), random),
        make("xtc always", dict(xtc_probability=1.0, xtc_threshold=0.05), random),
        make("xtc above a half", dict(xtc_probability=1.0, xtc_threshold=0.6), random),
        make("xtc behind min-p", dict(xtc_probability=0.3, xtc_threshold=0.08, min_p=0.1), random),
        make("dynamic temperature", dict(dynatemp_range=0.5), random),
        make("dynamic temperature, exponent", dict(temperature=1.2, dynatemp_range=0.9, dynatemp_exponent=2.0), random),
        make("dynamic temperature from 0", dict(temperature=0.5, dynatemp_range=0.7, top_k=6), random),
        make("mirostat, first token", dict(mirostat=2, mirostat_tau=1.5), random, answer=[]),
        make("mirostat", dict(mirostat=2, mirostat_tau=3.0), random, mirostat_state=2.5),
        make("mirostat, temperature", dict(mirostat=2, temperature=0.7, mirostat_eta=0.4), random, mirostat_state=1.9),
        make("mirostat, one left", dict(mirostat=2), random, mirostat_state=-4.0),
        make("dry", dict(dry_multiplier=0.8), random),
        make("dry, allowed 1", dict(dry_multiplier=1.3, dry_base=1.2, dry_allowed_length=1), random),
        make("dry, window", dict(dry_multiplier=2.0, dry_penalty_last_n=7), random),
        make("dry, breaker", dict(dry_multiplier=2.0, dry_allowed_length=1), random, breakers={"4": [[]], "5": [[]]}),
        make("dry, breaker of tokens", dict(dry_multiplier=2.0, dry_allowed_length=1), random,
             breakers={"4": [[1, 2], [1]], "1": [[7]]}),
        make("dry, long repetition", dict(dry_multiplier=0.1, dry_base=2.0), random, prompt=[1, 2, 3, 4, 5, 6, 7] * 2,
             answer=[1, 2, 3]),
        make("penalties", dict(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=-0.2), random),
        make("penalties, window", dict(repetition_penalty=0.8, frequency_penalty=0.5, penalty_last_n=4), random),
        make("bias", {}, random, logit_bias=[[3, 2.5], [4, -1.0], [3, 0.5]]),
        make("min tokens", dict(min_tokens=4), random, ends=[0, 6]),
        make("min tokens reached", dict(min_tokens=3), random, ends=[0, 6]),
        make("bad words", {}, random, **words),
        make("everything", all_on | dict(min_tokens=5), random, **words, logit_bias=[[8, 1.5]]),
        make("everything but typical", all_on | dict(typical_p=1.0, dynatemp_range=0.0), random, **words),
    ]  # fmt: skip
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    OUT.chmod(0o644)


if __name__ == "__main__":
    main()
