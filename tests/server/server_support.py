"""Starts servers and talks to them. Standard library only."""

import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = pathlib.Path(os.environ["NIBBLE_SOURCE"])
BINARY = os.environ["NIBBLE_BIN"]
SHAKESPEARE = SOURCE / "models/shakespeare"
TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
SANITIZED = bool(os.environ.get("NIBBLE_SANITIZED"))
# Tokens of an answer that is seen at work between two looks, however fast the machine is.
LONG = 1500 if SANITIZED else 15000
PATIENCE = 240  # seconds after which something hangs; nothing waits so long when it works


def wait_for(condition, what):
    """Until it is true. How long that takes proves nothing; that it never comes does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited for {what}")
        time.sleep(0.02)


def write_long_model(folder):
    """A random llama of 100 thousand parameters with the letters of the Shakespeare model and room
    for 32,768 tokens: what it says never ends by itself."""
    folder = pathlib.Path(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHAKESPEARE / name, folder / name)
    vocabulary = json.loads((SHAKESPEARE / "config.json").read_text())["vocab_size"]
    width, inner, layers = 64, 128, 2
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width,
              "intermediate_size": inner, "num_attention_heads": 4, "num_key_value_heads": 2,
              "num_hidden_layers": layers, "vocab_size": vocabulary,
              "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,),
              "lm_head.weight": (vocabulary, width)}
    for i in range(layers):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": (width,),
                   layer + "post_attention_layernorm.weight": (width,),
                   layer + "self_attn.q_proj.weight": (width, width),
                   layer + "self_attn.k_proj.weight": (width // 2, width),
                   layer + "self_attn.v_proj.weight": (width // 2, width),
                   layer + "self_attn.o_proj.weight": (width, width),
                   layer + "mlp.gate_proj.weight": (inner, width),
                   layer + "mlp.up_proj.weight": (inner, width),
                   layer + "mlp.down_proj.weight": (width, inner)}
    rng = random.Random(7)
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [rng.gauss(0, 0.2) for _ in range(count)]
        begin = len(data)
        data += struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Server:
    """A running `nibble serve` on a free port."""

    def __init__(self, model=SHAKESPEARE, *arguments, wait=True):
        env = {k: v for k, v in os.environ.items()
               if not (k.startswith("NIBBLE_") and k not in ("NIBBLE_MODELS", "NIBBLE_ISA"))}
        self.process = subprocess.Popen(
            [BINARY, "serve", str(model), "--port", "0", "-t", "2", *map(str, arguments)], env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", errors="replace")
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        wait_for(lambda: self._find_port() or self.process.poll() is not None, "a port")
        self.port = self._find_port()
        if self.port is None:
            raise AssertionError("no server:\n" + "".join(self.lines))
        if wait:
            wait_for(lambda: self.get("/health").status == 200, "the model")

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def _find_port(self):
        for line in list(self.lines):
            found = re.search(r"listening on https?://\S+:(\d+)", line)
            if found:
                return int(found.group(1))
        return None

    @property
    def log(self):
        return "".join(self.lines)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def request(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def complete(self, prompt, **fields):
        return self.post("/v1/completions", {"prompt": prompt} | fields)

    def chat(self, text, **fields):
        return self.post("/v1/chat/completions",
                         {"messages": [{"role": "user", "content": text}]} | fields)

    def status(self):
        return self.get("/status").json

    def raw(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        return connection

    def idle(self):
        status = self.status()
        return (status["engine"]["running"], status["engine"]["waiting"],
                status["kv"]["pages_used"], status["queue"]["requests"],
                status["queue"]["prompt_tokens"]) == (0, 0, 0, 0, 0)


def post_bytes(path, body, *headers, version="1.1"):
    """A request as it goes over the wire."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_all(connection):
    data = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def events(answer):
    """The chunks of a stream; the last is [DONE]."""
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
    out = []
    for block in answer.body.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        assert block.startswith("data: "), block
        out.append(block[6:])
    assert out[-1] == "[DONE]", out
    return [json.loads(one) for one in out[:-1]]


class ServerTest(unittest.TestCase):
    """One server for the tests of a class: `arguments` are its flags."""

    model = SHAKESPEARE
    arguments = ()
    template = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        arguments = list(cls.arguments)
        if cls.template:
            (cls.folder / "t.jinja").write_text(cls.template)
            arguments += ["--chat-template", cls.folder / "t.jinja"]
        model = cls.model
        if model == "long":
            model = cls.folder / "long"
            model.mkdir()
            write_long_model(model)
        cls.model_path = model
        cls.server = Server(model, *arguments)
        cls.addClassCleanup(cls.check_stop)

    @classmethod
    def check_stop(cls):
        code = cls.server.stop()
        assert code == 0, f"exit code {code}:\n{cls.server.log}"

    def assert_error(self, answer, status, param=None, *words, code=None):
        self.assertEqual(answer.status, status, answer.body)
        error = answer.json["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["param"], param, error)
        for word in words:
            self.assertIn(word, error["message"])
        if code:
            self.assertEqual(error["code"], code)

    def run_here(self, *arguments):
        """`nibble run` on the same model: its JSON."""
        done = subprocess.run([BINARY, "run", str(self.model_path), "--json", "--quiet",
                               *map(str, arguments)], capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)


def python_with_packages(*packages):
    """The interpreter that has them, or the test is skipped (and fails in CI)."""
    path = os.environ.get("NIBBLE_PYTHON", sys.executable)
    packages = packages or ("openai", "prometheus_client")
    done = subprocess.run([path, "-c", "import " + ", ".join(packages)], capture_output=True)
    if done.returncode == 0:
        return path
    if os.environ.get("NIBBLE_REQUIRE_SHARED"):
        raise AssertionError(f"NIBBLE_PYTHON has not all of {packages}")
    raise unittest.SkipTest(f"skipped: NIBBLE_PYTHON names no Python with {packages}")
