#!/usr/bin/env python3
"""grammar_differential.py DRIVER COUNT SEED: random schemas beside `jsonschema`, random expressions
beside Python's re. What is generated must be valid and match; what is accepted, too; a valid value
in the canonical spelling must be accepted."""
import json
import pathlib
import random
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: no jsonschema")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/grammar"))
from canonical import canonical  # noqa: E402


def ask(driver, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    out = subprocess.run([driver], input=text, capture_output=True, text=True, timeout=900, check=True)
    return [json.loads(line) for line in out.stdout.split("\n") if line]


def random_value(rng, depth=0):
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.randrange(-12, 13)
    if kind == 3:
        return rng.randrange(-40, 41) / 4
    if kind in (4, 5):
        # Python's $ also matches before a line break at the end, ECMA's does not.
        return "".join(rng.choice("abxé\n\"1") for _ in range(rng.randrange(5))).rstrip("\n")
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(("a", "b", "ab", "x1")): random_value(rng, depth + 1)
            for _ in range(rng.randrange(4))}


def random_schema(rng, depth=0):
    if rng.random() < 0.06:
        return rng.random() < 0.8
    out = {}
    if rng.random() < 0.7:
        types = ["null", "boolean", "integer", "number", "string", "array", "object"]
        out["type"] = rng.choice(types) if rng.random() < 0.7 else rng.sample(types, rng.randrange(1, 4))
    options = [
        lambda: out.update(minimum=rng.randrange(-20, 20) / rng.choice((1, 4))),
        lambda: out.update(exclusiveMaximum=rng.randrange(-20, 40) / rng.choice((1, 4))),
        lambda: out.update(multipleOf=rng.choice((1, 2, 3, 0.5, 0.25))),
        lambda: out.update(minLength=rng.randrange(4)),
        lambda: out.update(maxLength=rng.randrange(6)),
        lambda: out.update(pattern=rng.choice(("^a", "b$", "[a-x]+", "^(ab|x)*$", "\\d", "^.?$"))),
        lambda: out.update(enum=[random_value(rng, 2) for _ in range(rng.randrange(1, 4))]),
        lambda: out.update(const=random_value(rng, 2)),
        lambda: out.update(maxItems=rng.randrange(4)),
        lambda: out.update(minItems=rng.randrange(3)),
        lambda: out.update(required=rng.sample(["a", "b", "ab"], rng.randrange(3))),
        lambda: out.update(maxProperties=rng.randrange(4)),
        lambda: out.update(minProperties=rng.randrange(2)),
        lambda: out.update(dependencies={"a": ["b"]}),
    ]
    if depth < 3:
        below = lambda: random_schema(rng, depth + 1)  # noqa: E731
        options += [
            lambda: out.update(items=below()),
            lambda: out.update(items=[below(), below()], additionalItems=below()),
            lambda: out.update(contains=below()),
            lambda: out.update(properties={k: below() for k in rng.sample(["a", "b", "ab", "x1"],
                                                                          rng.randrange(1, 4))}),
            lambda: out.update(additionalProperties=below()),
            lambda: out.update(patternProperties={rng.choice(("^a", "b", "1$")): below()}),
            lambda: out.update(propertyNames={"maxLength": rng.randrange(1, 3)}),
            lambda: out.update(anyOf=[below(), below()]),
            lambda: out.update(oneOf=[below(), below()]),
            lambda: out.update(allOf=[below(), below()]),
            lambda: out.update({"not": below()}),
            lambda: out.update({"if": below(), "then": below(), "else": below()}),
        ]
    for option in rng.sample(options, rng.randrange(0, 4)):
        option()
    return out


def check_schemas(driver, count, rng):
    cases, lines = [], []
    for i in range(count):
        schema = random_schema(rng)
        values = [random_value(rng) for _ in range(25)]
        lines.append({"kind": "schema", "text": json.dumps(schema), "draft": 7, "generate": 12,
                      "seed": i, "accept": [canonical(schema, v) for v in values]})
        cases.append((schema, values))
    compiled, valid, seen = 0, 0, 0
    for (schema, values), answer in zip(cases, ask(driver, lines)):
        validator = jsonschema.Draft7Validator(schema)
        if "error" in answer:
            if "nothing matches" in answer["error"]:
                for value in values:
                    assert not validator.is_valid(value), (schema, value, answer)
            continue
        compiled += 1
        for text in answer["generated"]:
            value = json.loads(text)
            assert validator.is_valid(value), (schema, text)
        for value, accepted in zip(values, answer["accepts"]):
            # Keys that have an order of their own below several schemas are not judged.
            expected = validator.is_valid(value)
            seen += expected
            valid += accepted
            assert expected or not accepted, (schema, value)
            if expected and not accepted and not isinstance(value, (dict, list)):
                raise AssertionError((schema, value, "is valid and not accepted"))
    print(f"schemas: {compiled} of {count} compiled, {valid} of {seen} valid values accepted")
    assert compiled > count // 2 and valid > seen * 9 // 10


def random_regex(rng, depth=0):
    kind = rng.randrange(9 if depth < 4 else 4)
    if kind == 0:
        return rng.choice(("a", "b", "é", "\\.", "x", "0"))
    if kind == 1:
        return rng.choice(("[ab]", "[^a]", "[a-f0-3]", "\\d", "\\w", ".", "[^\\n\\d]", "[é-ü]"))
    if kind == 2:
        return "".join(rng.choice("abé") for _ in range(rng.randrange(1, 4)))
    if kind == 3:
        return rng.choice(("\\x61", "\\u00e9", "\\t", "-"))
    if kind in (4, 5):
        return random_regex(rng, depth + 1) + random_regex(rng, depth + 1)
    if kind == 6:
        return f"(?:{random_regex(rng, depth + 1)}|{random_regex(rng, depth + 1)})"
    quantifier = rng.choice(("*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"))
    return f"({random_regex(rng, depth + 1)}){quantifier}"


def check_expressions(driver, count, rng):
    patterns, lines = [], []
    for i in range(count):
        pattern = random_regex(rng)
        texts = ["".join(rng.choice("abéx0.1 \n") for _ in range(rng.randrange(7))) for _ in range(30)]
        lines.append({"kind": "regex", "text": pattern, "generate": 10, "seed": i, "accept": texts})
        patterns.append((pattern, texts))
    for (pattern, texts), answer in zip(patterns, ask(driver, lines)):
        compiled = re.compile(pattern, re.ASCII)
        assert "error" not in answer, (pattern, answer)
        for text, accepted in zip(texts, answer["accepts"]):
            assert accepted == bool(compiled.fullmatch(text)), (pattern, text, accepted)
        for text in answer["generated"]:
            assert compiled.fullmatch(text), (pattern, text)
    print(f"expressions: {count} as Python's re has them")


def main():
    driver, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    check_expressions(driver, count, rng)
    check_schemas(driver, count, rng)


if __name__ == "__main__":
    main()
