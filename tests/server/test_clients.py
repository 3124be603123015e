"""Clients that others wrote: the openai package, Prometheus's parser, and what
lm-evaluation-harness sends and reads."""

import json
import subprocess
import unittest

from server_support import (BINARY, PATIENCE, SHAKESPEARE, TEMPLATE, ServerTest,
                            python_with_packages)

SCRIPT = r'''
import sys, urllib.request
import openai
from prometheus_client.parser import text_string_to_metric_families

url, key = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=200)
assert [m.id for m in client.models.list()] == ["demo"]
assert client.models.retrieve("demo").id == "demo"

messages = [{"role": "user", "content": "Hello"}]
whole = client.chat.completions.create(model="demo", messages=messages, max_tokens=20, seed=4)
text = whole.choices[0].message.content
assert whole.choices[0].finish_reason == "length" and len(text) == 20
assert whole.usage.total_tokens == whole.usage.prompt_tokens + 20

parts, usage = [], None
for chunk in client.chat.completions.create(model="demo", messages=messages, max_tokens=20, seed=4,
                                            stream=True, stream_options={"include_usage": True}):
    if chunk.usage:
        usage = chunk.usage
    for choice in chunk.choices:
        parts.append(choice.delta.content or "")
assert "".join(parts) == text, (parts, text)
assert usage.total_tokens == whole.usage.total_tokens

several = client.chat.completions.create(model="demo", messages=messages, max_tokens=5, n=3,
                                         logprobs=True, top_logprobs=2)
assert len(several.choices) == 3
assert len(several.choices[2].logprobs.content[4].top_logprobs) == 2

done = client.completions.create(model="demo", prompt=["ROMEO:", "JULIET:"], max_tokens=4,
                                 logprobs=1, echo=True)
assert [c.text[:6] for c in done.choices] == ["ROMEO:", "JULIET"]
assert len(done.choices[0].logprobs.token_logprobs) == 10

def refused(kind, param, call):
    try:
        call()
    except kind as error:
        assert error.body["param"] == param, error.body
        return error
    raise AssertionError(f"no {kind}")

create = client.chat.completions.create
refused(openai.BadRequestError, "temperature",
        lambda: create(model="demo", messages=messages, temperature=-1))
refused(openai.NotFoundError, "model", lambda: create(model="gpt-4", messages=messages))
long = refused(openai.BadRequestError, "messages",
               lambda: create(model="demo", messages=[{"role": "user", "content": "x" * 999}]))
assert long.code == "context_length_exceeded"
refused(openai.BadRequestError, "tools", lambda: create(
    model="demo", messages=messages, tools=[{"type": "function", "function": {"name": "no name"}}]))
refused(openai.AuthenticationError, None, lambda: openai.OpenAI(
    base_url=url + "/v1", api_key="wrong", max_retries=0).models.list())

request = urllib.request.Request(url + "/metrics", headers={"Authorization": "Bearer " + key})
families = {f.name: f for f in text_string_to_metric_families(
    urllib.request.urlopen(request).read().decode())}
for name in ("num_requests_running", "kv_cache_usage_perc", "prompt_tokens",
             "time_to_first_token_seconds", "e2e_request_latency_seconds", "request_prompt_tokens"):
    assert "nibble:" + name in families, sorted(families)
buckets = [s.value for s in families["nibble:e2e_request_latency_seconds"].samples
           if s.name.endswith("_bucket")]
assert buckets == sorted(buckets) and buckets[-1] > 0
print("all well")
'''


# What lm-evaluation-harness's local-completions sends for a loglikelihood, and how it reads the
# answer (lm_eval/models/openai_completions.py), beside the logits of the same ids.
HARNESS = r'''
import json, sys, urllib.request
import numpy as np

url, folder, context = sys.argv[1], sys.argv[2], int(sys.argv[3])
ids = json.load(open(folder + "/ids.json"))
logits = np.load(folder + "/logits.npy").astype(np.float64)
body = {"model": "shakespeare", "prompt": [ids], "temperature": 0, "max_tokens": 1, "logprobs": 1,
        "seed": 1234, "echo": True}
request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
choice = json.load(urllib.request.urlopen(request))["choices"][0]["logprobs"]
scores = choice["token_logprobs"][context:-1]
greedy = all(score == max(top.values())
             for score, top in zip(scores, choice["top_logprobs"][context:-1]))
rows = logits[context - 1:len(ids) - 1]
rows = rows - rows.max(axis=1, keepdims=True)
rows = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
expected = rows[np.arange(len(rows)), ids[context:]]
assert len(scores) == len(expected) == len(ids) - context
assert np.abs(np.array(scores) - expected).max() < 1e-4, (scores, expected)
assert greedy == bool((rows.argmax(axis=1) == ids[context:]).all())
print("greedy" if greedy else "not greedy")
'''


class Harness(ServerTest):
    arguments = ("--act", "f32", "--kv", "f32")

    def test_scores_as_lm_eval_reads_them(self):
        python = python_with_packages("numpy")
        said = self.server.complete("ROMEO:", temperature=0, max_tokens=20).json["choices"][0]["text"]
        for text, wanted in (("ROMEO:" + said, "greedy"), ("ROMEO:\nTo be, or not to", "not greedy")):
            ids = self.server.post("/tokenize", {"content": text}).json["tokens"]
            (self.folder / "ids.json").write_text(json.dumps(ids))
            subprocess.run([BINARY, "eval", str(SHAKESPEARE), "--ids-file",
                            str(self.folder / "ids.json"), "--logits",
                            str(self.folder / "logits.npy"), *self.arguments], check=True,
                           capture_output=True, timeout=PATIENCE)
            done = subprocess.run([python, "-c", HARNESS, f"http://127.0.0.1:{self.server.port}",
                                   str(self.folder), "6"], capture_output=True, text=True,
                                  timeout=PATIENCE)
            self.assertEqual(done.stdout.strip(), wanted, done.stderr)


class Clients(ServerTest):
    template = TEMPLATE
    arguments = ("--alias", "demo", "--api-key", "sk-test")

    def test_openai_and_prometheus(self):
        python = python_with_packages()
        done = subprocess.run([python, "-c", SCRIPT, f"http://127.0.0.1:{self.server.port}",
                               "sk-test"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.stdout.strip(), "all well", done.stderr)


if __name__ == "__main__":
    unittest.main()
