"""Clients that go or do not read, full queues, keys, start and end of a server."""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from server_support import (BINARY, LONG, PATIENCE, SHAKESPEARE, Server, ServerTest, post_bytes,
                            read_all, wait_for, write_long_model)

ENDLESS = {"prompt": "ROMEO:", "max_tokens": 30000, "ignore_eos": True}


class Busy(ServerTest):
    model = "long"
    # Unread bytes enough that a thread of sockets which a busy machine keeps from running for some
    # hundred steps of this small model drops nobody who would read.
    arguments = ("--max-seqs", 2, "--max-queue", 3, "--max-unread", "1MB", "--max-queued-tokens",
                 3000, "--comment-interval", 0.2)

    def setUp(self):
        self.clients = []

    def tearDown(self):
        for client in self.clients:
            client.close()
        wait_for(self.server.idle, "an idle engine: " + json.dumps(self.server.status()))

    def ask(self, small=False, **fields):
        client = socket.socket()
        if small:  # before it connects, or the window is large
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", self.server.port))
        self.clients.append(client)
        client.sendall(post_bytes("/v1/completions", ENDLESS | fields))
        return client

    def wait_running(self, running, waiting=0):
        def there():
            engine = self.server.status()["engine"]
            return (engine["running"], engine["waiting"]) == (running, waiting)
        wait_for(there, f"{running} running, {waiting} waiting")

    def test_a_client_that_goes_frees_its_pages(self):
        for fields in ({}, {"stream": True}, {"n": 2}):
            client = self.ask(**fields)
            self.wait_running(fields.get("n", 1))
            self.assertGreater(self.server.status()["kv"]["pages_used"], 0)
            client.close()
            wait_for(self.server.idle, "freed pages")

    def test_one_client_that_goes_harms_no_other(self):
        alone = self.server.complete("ROMEO:", max_tokens=LONG, seed=5, ignore_eos=True).json
        client = self.ask(stream=True)
        self.wait_running(1)
        other = self.ask(max_tokens=LONG, seed=5)
        self.wait_running(2)
        client.close()
        other.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = read_all(other)
        self.assertIn(json.dumps(alone["choices"][0]["text"])[1:-1].encode(), answer)

    def test_one_that_pipelines_more_than_is_read_ahead_and_goes(self):
        client = self.ask()
        self.wait_running(1)
        client.sendall(b"x" * 100_000)
        client.close()
        wait_for(self.server.idle, "freed pages")

    def test_one_that_does_not_read_is_dropped(self):
        before = self.server.status()["http"]["dropped"]
        self.ask(small=True, stream=True, logprobs=20)
        wait_for(lambda: self.server.status()["http"]["dropped"] > before, "a dropped client")
        wait_for(self.server.idle, "freed pages")

    def test_a_hundred_that_go(self):
        for i in range(100):
            self.ask(stream=i % 2 == 0).close()
        wait_for(self.server.idle, "freed pages")
        self.assertEqual(self.server.complete("a", max_tokens=1).status, 200)

    def test_a_full_queue(self):
        for i in range(5):
            self.ask()
            self.wait_running(min(i + 1, 2), max(i - 1, 0))
        refused = self.server.complete("ROMEO:")
        self.assert_error(refused, 429, None, "queue", code="queue_full")
        self.assertGreaterEqual(int(refused.headers["retry-after"]), 1)
        self.assertLess(self.server.get("/health").status, 300)
        text = self.server.get("/metrics").body.decode()
        self.assertIn('requests_refused_total{model_name="long",reason="queue_full"}', text)

    def test_more_answers_than_ever_wait(self):
        self.assert_error(self.server.complete("ROMEO:", n=4), 400, "n", "--max-queue")
        answer = self.server.complete("ROMEO:", n=1, best_of=4)
        self.assert_error(answer, 400, "best_of", "--max-queue")

    def test_who_goes_is_logged_with_its_tokens(self):
        client = self.ask(prompt="JULIET:" * 10, stream=True, n=2)
        data = b""
        while data.count(b"data: ") < 10:
            data += client.recv(1000)
        client.close()
        line = r"status=499 .*prompt_tokens=70 .*generated_tokens=(\d+) "
        wait_for(lambda: re.search(line, self.server.log), "the line of one that is gone")
        self.assertGreaterEqual(int(re.search(line, self.server.log).group(1)), 10)

    def test_too_many_queued_tokens(self):
        for _ in range(2):
            self.ask()
        self.wait_running(2)
        self.ask(prompt="x" * 2000)
        self.wait_running(2, 1)
        self.assertEqual(self.server.status()["queue"]["prompt_tokens"], 2000)
        refused = self.server.complete("x" * 1500)
        self.assert_error(refused, 429, None, "prompt tokens", code="queue_full")
        self.assertIn("retry-after", refused.headers)

    def test_streams_are_kept_alive(self):
        for _ in range(2):
            self.ask()
        self.wait_running(2)
        waiting = self.ask(stream=True)
        data = b""
        while b"\n\n" not in data.partition(b"\r\n\r\n")[2]:
            data += waiting.recv(1000)
        self.assertIn(b"text/event-stream", data)
        self.assertIn(b": the answer is being computed", data)


class Keys(ServerTest):
    arguments = ("--api-key", "alice=secret-a", "--api-key", "secret-b==")

    def test_keys(self):
        self.assertEqual(self.server.get("/health").status, 200)
        self.assertEqual(self.server.get("/").status, 200)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret-a"},
                        {"Authorization": "Bearer alice=secret-a"}, {"Authorization": "Bearer "},
                        {"X-Api-Key": "secret-"}, {"Authorization": "Bearer secret-a "}):
            for path in ("/status", "/metrics", "/v1/models", "/nothing", "/app"):
                answer = self.server.get(path, headers)
                if headers.get("Authorization") == "Bearer secret-a ":
                    continue  # HTTP takes blanks off
                self.assert_error(answer, 401, None, "API key", code="invalid_api_key")
            answer = self.server.post("/v1/completions", {"prompt": "a"}, headers)
            self.assertIn(answer.status, (200, 401))
        for headers in ({"Authorization": "Bearer secret-a"}, {"X-Api-Key": "secret-b=="}):
            self.assertEqual(self.server.get("/v1/models", headers).status, 200)
            answer = self.server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers)
            self.assertEqual(answer.status, 200)
        text = self.server.get("/metrics", {"X-Api-Key": "secret-b=="}).body.decode()
        self.assertIn('key="alice"', text)
        for secret in ("secret-a", "secret-b"):
            self.assertNotIn(secret, text)
            self.assertNotIn(secret, self.server.log)


class Life(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments, model=SHAKESPEARE, wait=True):
        server = Server(model, *arguments, wait=wait)
        self.addCleanup(server.stop)
        return server

    def long_model(self):
        return write_long_model(self.folder)

    def refused(self, *arguments):
        done = subprocess.run([BINARY, "serve", str(SHAKESPEARE), *map(str, arguments)],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertNotEqual(done.returncode, 0)
        return done

    def test_drain_lets_answers_end(self):
        server = self.start(model=self.long_model())
        client = server.raw()
        client.sendall(post_bytes("/v1/completions", ENDLESS | {"max_tokens": LONG, "stream": True}))
        wait_for(lambda: server.status()["engine"]["running"] == 1, "a running request")
        kept = server.connect()
        kept.request("GET", "/health")
        kept.getresponse().read()
        server.process.send_signal(signal.SIGTERM)
        data = read_all(client)
        client.close()
        kept.close()
        self.assertIn(b'"finish_reason":"length"', data)
        self.assertTrue(data.rstrip(b"\r\n0").endswith(b"data: [DONE]"))
        self.assertEqual(server.process.wait(PATIENCE), 0)
        wait_for(lambda: "drain" in server.log, "what it says of draining")

    def test_drain_waits_for_no_body(self):
        server = self.start()
        with server.raw() as half, server.raw() as begun:
            half.sendall(post_bytes("/v1/completions", {"prompt": "a"})[:-3])
            begun.sendall(b"GET /heal")
            wait_for(lambda: server.status()["http"]["body_bytes"] > 0, "a part of a body")
            server.process.send_signal(signal.SIGTERM)
            for client in (half, begun):
                data = read_all(client)
                self.assertIn(b"503", data.split(b"\r\n")[0])
                self.assertIn(b"Retry-After", data)
        self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_drain_has_a_deadline(self):
        server = self.start("--drain-timeout", "0.5", model=self.long_model())
        client = server.raw()
        client.sendall(post_bytes("/v1/completions", ENDLESS))
        wait_for(lambda: server.status()["engine"]["running"] == 1, "a running request")
        server.process.send_signal(signal.SIGTERM)
        self.assertIn(b"503", read_all(client).split(b"\r\n")[0])
        client.close()
        self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_a_second_signal_leaves_at_once(self):
        server = self.start(model=self.long_model())
        client = server.raw()
        client.sendall(post_bytes("/v1/completions", ENDLESS))
        wait_for(lambda: server.status()["engine"]["running"] == 1, "a running request")
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "drain" in server.log, "the first signal")
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(PATIENCE), 1)
        client.close()

    def test_a_port_in_use_and_wrong_flags(self):
        server = self.start()
        done = self.refused("--port", server.port)
        self.assertEqual(done.stderr.strip().splitlines()[-1],
                         f"nibble: --port {server.port}: in use on 127.0.0.1; stop that program "
                         "or choose another port")
        for arguments, words in ((("--host", "no.such.host.invalid"), "--host"),
                                 (("--api-key", "a=b", "--api-key", "a=c"), "twice"),
                                 (("--api-key", "with blank"), "blanks"),
                                 (("--api-key", "admin="), "empty"),
                                 (("--api-key", ""), "empty"), (("--host", ""), "--host"),
                                 (("--alias", ""), "--alias"),
                                 (("--api-key-file", self.folder / "none"), "none"),
                                 (("--max-body", "large"), "--max-body"),
                                 (("--max-queue", "0"), "--max-queue")):
            done = self.refused("--port", 0, *arguments)
            self.assertEqual(done.returncode if "none" not in words else 2, 2, done.stderr)
            self.assertIn(words, done.stderr)

    def test_what_is_printed(self):
        server = self.start("-np", 3, "-ctk", "q8_0", "--max-model-len=128", "--host", "0.0.0.0")
        for words in ("-np 3 is --max-seqs 3 here", "-ctk q8_0 is --kv-k int8 here",
                      "--max-model-len 128 is --ctx 128 here", "without --api-key", "curl http://",
                      "of memory taken"):
            wait_for(lambda: words in server.log, words)
        self.assertEqual(server.status()["memory"]["max_context"], 128)
        local = self.start("--log-json", "--log-prompts")
        wait_for(lambda: f"ssh -L {local.port}:127.0.0.1:{local.port}" in local.log, "ssh -L")
        other = self.start("--host", "127.0.0.2", wait=False)
        wait_for(lambda: f"ssh -L {other.port}:127.0.0.2:{other.port}" in other.log, "ssh -L")
        self.assertEqual(local.complete("a secret question", max_tokens=2).status, 200)
        self.assertEqual(local.complete("a secret", n=0).status, 400)
        wait_for(lambda: '"event":"refused"' in local.log, "two log lines")
        lines = [json.loads(line) for line in local.lines if line.startswith("{")]
        self.assertEqual([line["event"] for line in lines], ["request", "refused"])
        self.assertEqual(lines[0]["prompt"], "a secret question")
        self.assertEqual((lines[0]["generated_tokens"], lines[0]["status"]), (2, 200))
        self.assertEqual(lines[1]["param"], "n")
        server.complete("a secret question", max_tokens=2)
        server.complete("a secret question", temperature="secret")
        wait_for(lambda: "refused" in server.log, "two log lines")
        self.assertNotIn("secret", server.log)

    def test_a_key_file(self):
        keys = self.folder / "keys.txt"
        keys.write_text("# ours\nalice=one\n\nbob=two\r\n")
        server = self.start("--api-key-file", keys)
        for key, status in (("one", 200), ("two", 200), ("three", 401)):
            answer = server.get("/v1/models", {"Authorization": f"Bearer {key}"})
            self.assertEqual(answer.status, status)

    def test_a_model_that_is_cut_short_is_named(self):
        server = self.start(model=self.long_model())
        self.assertEqual(server.get("/learn/weights").status, 200)
        os.truncate(self.folder / "model.safetensors", 5000)
        self.assertEqual(server.complete("a", max_tokens=2).status, 200)  # weights were taken over
        with self.assertRaises((OSError, http.client.HTTPException)):
            server.get("/learn/weights")  # reads the file
        self.assertEqual(server.process.wait(PATIENCE), 2)
        wait_for(lambda: "model.safetensors: the file was cut short" in server.log, "its name")

    def test_health_while_loading(self):
        server = self.start(wait=False)
        seen = set()
        while 200 not in seen:
            answer = server.get("/health")
            seen.add(answer.status)
            if answer.status == 503:
                self.assertEqual(answer.json["status"], "loading")
                self.assertLessEqual(0, answer.json["progress"])
                self.assertLess(answer.json["progress"], 1)
        self.assertLessEqual(seen, {200, 503})


if __name__ == "__main__":
    unittest.main()
