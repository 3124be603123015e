"""What guesses gain: the ratio of tokens a second with speculation to those without, task by task.

    speculate.py NIBBLE MODEL [--rounds N] [--tokens N] [--task NAME ...]

Each task runs without and with guesses, in turns, so that what else the machine does meets both;
the ratio is the median of the rounds' ratios. Answers of both must be equal, or this fails.

    quoting  the prompt is a text to be repeated                        --ngram
    code     a function is to be written                                --ngram
    prose    a story is to be told                                      --ngram
    batch    eight stories at once (run --batch)                        --ngram
    json     a form of several members (--json-schema)   what is forced, beside --no-forms
    self     prose with a draft of the model's own low bits    --draft self:q2_k (with --self)
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

TEXT = ("The lighthouse stood on a rock a mile from the shore. Every evening the keeper climbed its "
        "two hundred and twelve steps, lit the lamp, and wrote the weather into a book: wind from the "
        "north west, sea rough, three sails in sight. ")
CODE = "def binary_search(values, wanted):\n    \"\"\"The place of wanted in sorted values, or -1.\"\"\"\n"
PROSE = "It was the last day of the summer, and nobody in the village had seen the sea so calm. "
SCHEMA = {"type": "object", "additionalProperties": False,
          "required": ["customer_name", "delivery_address", "order_status", "number_of_items",
                       "payment_received", "shipping_method"],
          "properties": {
              "customer_name": {"type": "string", "maxLength": 24},
              "delivery_address": {"type": "object", "additionalProperties": False,
                                   "required": ["street_name", "house_number", "postal_code"],
                                   "properties": {
                                       "street_name": {"type": "string", "maxLength": 24},
                                       "house_number": {"type": "integer", "minimum": 1, "maximum": 300},
                                       "postal_code": {"type": "string", "pattern": "^[0-9]{5}$"}}},
              "order_status": {"enum": ["waiting_for_payment", "being_prepared", "on_its_way"]},
              "number_of_items": {"type": "integer", "minimum": 1, "maximum": 20},
              "payment_received": {"type": "boolean"},
              "shipping_method": {"enum": ["standard_delivery", "express_delivery"]}}}


def run(o, *arguments):
    """One answer, and its tokens a second behind the first."""
    done = subprocess.run([o.nibble, "run", o.model, "--json", "--temp", "0", "--seed", "1",
                           *(str(a) for a in arguments)], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return answer["ids"], answer["decode_tok_s"], answer["spec"]


def batch(o, folder, *flags):
    """Eight answers at once: their texts, and tokens a second of the whole run."""
    wanted = folder / "batch.jsonl"
    wanted.write_text("".join(json.dumps({
        "custom_id": str(i), "method": "POST", "url": "/v1/completions",
        "body": {"prompt": PROSE + f"Number {i} of the story: ", "max_tokens": o.tokens,
                 "temperature": 0}}) + "\n" for i in range(8)))
    out = folder / "out.jsonl"
    begin = time.monotonic()
    subprocess.run([o.nibble, "run", o.model, "--batch", wanted, "--output", out, *flags],
                   capture_output=True, check=True)
    seconds = time.monotonic() - begin
    answers = sorted((json.loads(line) for line in out.read_text().splitlines()),
                     key=lambda one: one["custom_id"])
    usage = sum(one["response"]["body"]["usage"]["completion_tokens"] for one in answers)
    texts = [one["response"]["body"]["choices"][0]["text"] for one in answers]
    return texts, usage / seconds, {}


def tasks(o, folder):
    schema = folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    free = ("-n", o.tokens, "--raw", "--ignore-eos")
    plain = {"quoting": (*free, "-p", TEXT * 3), "code": (*free, "-p", CODE), "prose": (*free, "-p", PROSE)}
    for name, arguments in plain.items():
        yield name, lambda a=arguments: run(o, *a), lambda a=arguments: run(o, *a, "--ngram")
    yield "batch", lambda: batch(o, folder), lambda: batch(o, folder, "--ngram")
    form = ("-n", 400, "-p", "Make up an order of a customer, as JSON.", "--json-schema", schema)
    yield "json", lambda: run(o, *form, "--no-forms"), lambda: run(o, *form)
    if o.self:
        prose = plain["prose"]
        yield "self", lambda: run(o, *prose), lambda: run(o, *prose, "--draft", "self:q2_k")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nibble")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--self", action="store_true", help="a low-bit copy as draft, too")
    o = parser.parse_args()
    print("| task | without, tokens/s | with | ratio (least, most) | guesses right |\n"
          "|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        for task, without, guessed in tasks(o, pathlib.Path(name)):
            if o.task and task not in o.task:
                continue
            rows = []
            for i in range(o.rounds):
                pair = [None, None]
                for which in ((0, 1), (1, 0))[i % 2]:
                    pair[which] = (without, guessed)[which]()
                if pair[0][0] != pair[1][0]:
                    raise SystemExit(f"{task}: answers with and without guesses differ")
                rows.append(pair)
            ratios = sorted(b[1] / a[1] for a, b in rows)
            spec = rows[-1][1][2]
            right = f"{spec['accepted']} of {spec['drafted']}" if spec else ""
            print(f"| {task} | {statistics.median(a[1] for a, _ in rows):.1f} "
                  f"| {statistics.median(b[1] for _, b in rows):.1f} "
                  f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f}) | {right} |",
                  flush=True)


if __name__ == "__main__":
    main()
