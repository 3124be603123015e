"""Many clients at a time, and TLS."""

import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_support import (BINARY, PATIENCE, SANITIZED, SHAKESPEARE, SOURCE, Server, ServerTest,
                            post_bytes, read_all, wait_for)


class Many(ServerTest):
    model = "long"
    # Few pages, or the prefix cache takes more of them for as long as there are any.
    arguments = ("--max-seqs", 16, "--ctx", 512, "--kv-memory", "8MB")

    def load(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "result.json"
            done = subprocess.run(
                [sys.executable, str(SOURCE / "bench/serve.py"), "--url",
                 f"http://127.0.0.1:{self.server.port}", "--save-result", str(path),
                 *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(path.read_text())

    def test_all_streams_come_to_their_end(self):
        before = self.server.get("/status").json["http"]["dropped"]
        result = self.load("--num-prompts", 200, "--input-len", 6, "--output-len", 24)
        self.assertEqual((result["completed"], result["refused"], result["failed"]), (200, 0, 0))
        self.assertEqual(result["total_output_tokens"], 200 * 24)
        for metric in ("ttft", "tpot", "itl", "e2el"):
            values = [result[f"{what}_{metric}_ms"] for what in ("p50", "p90", "p99")]
            self.assertEqual(values, sorted(values))
            self.assertEqual(values[0], result[f"median_{metric}_ms"])
        self.assertEqual(self.server.status()["http"]["dropped"], before)
        wait_for(self.server.idle, "an idle server")

    @unittest.skipIf(SANITIZED, "a sanitizer keeps what was freed")
    def test_memory_stays_as_it_is(self):
        def round_of_requests():
            self.load("--num-prompts", 150, "--input-len", 6, "--output-len", 12,
                      "--max-concurrency", 50)
            wait_for(self.server.idle, "an idle server")
            return self.server.status()["memory"]["resident_bytes"]
        round_of_requests()
        second = round_of_requests()
        for _ in range(3):
            last = round_of_requests()
        self.assertLess(last - second, 4 << 20)

    def test_clients_that_come_and_go_beside_one_that_stays(self):
        alone = self.server.complete("ROMEO:", max_tokens=300, seed=5, ignore_eos=True).json
        result = {}

        def stay():
            result["answer"] = self.server.complete("ROMEO:", max_tokens=300, seed=5,
                                                    ignore_eos=True).json
        thread = threading.Thread(target=stay)
        thread.start()
        for i in range(100):
            client = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE)
            client.sendall(post_bytes("/v1/completions", {"prompt": "x" * (1 + i), "stream": True,
                                                          "max_tokens": 300}))
            if i % 3 == 0:  # with a reset, not an end
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            time.sleep(0.005)
        thread.join(PATIENCE)
        self.assertEqual(result["answer"]["choices"], alone["choices"])
        wait_for(self.server.idle, "freed pages")


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("openssl"):
            raise unittest.SkipTest("skipped: openssl is not installed")
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.cert, cls.key = cls.folder / "cert.pem", cls.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-keyout", cls.key, "-out", cls.cert,
                        "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost"], check=True, capture_output=True)

    def start(self):
        server = Server(SHAKESPEARE, "--tls-cert", self.cert, "--tls-key", self.key,
                        "--header-timeout", 4, wait=False)
        self.addCleanup(server.stop)
        wait_for(lambda: "ready after" in server.log, "the model")
        self.assertIn("https://127.0.0.1", server.log)
        return server

    def connect(self, server):
        context = ssl.create_default_context(cafile=self.cert)
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        return context.wrap_socket(plain, server_hostname="localhost")

    def test_answers_streams_and_strangers(self):
        server = self.start()
        with self.connect(server) as client:
            self.assertIn(client.version(), ("TLSv1.2", "TLSv1.3"))
            body = {"prompt": "ROMEO:", "max_tokens": 3}
            client.sendall(post_bytes("/v1/completions", body) +
                           post_bytes("/v1/completions", body | {"stream": True},
                                      "Connection: close"))
            data = read_all(client)
        self.assertEqual(data.count(b"200 OK"), 2)
        self.assertTrue(data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
        # A large body, in many records.
        with self.connect(server) as client:
            client.sendall(post_bytes("/tokenize", {"content": "a" * 500_000}, "Connection: close"))
            data = read_all(client)
        self.assertIn(b'"count":500000', data)
        # Who speaks no TLS, says nothing, or goes in the middle, harms nobody.
        for said in (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01", b""):
            with server.raw() as client:
                client.sendall(said)
                read_all(client)
        self.connect(server).close()
        gone = self.connect(server)
        gone.sendall(post_bytes("/v1/completions", {"prompt": "ROMEO:", "max_tokens": 200,
                                                    "stream": True}))
        gone.recv(10)
        gone.close()
        with self.connect(server) as client:
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            self.assertIn(b'"ok"', read_all(client))

    def test_wrong_files(self):
        other = self.folder / "other.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", other], check=True,
                       capture_output=True)
        for cert, key, words in ((self.folder / "none", self.key, "--tls-cert"),
                                 (self.key, self.key, "--tls-cert"),
                                 (self.cert, self.folder / "none", "--tls-key"),
                                 (self.cert, other, "--tls-key")):
            done = subprocess.run([BINARY, "serve", str(SHAKESPEARE), "--port", "0", "--tls-cert",
                                   cert, "--tls-key", key], capture_output=True, text=True,
                                  timeout=PATIENCE)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
        alone = subprocess.run([BINARY, "serve", str(SHAKESPEARE), "--tls-cert", self.cert],
                               capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("--tls-key", alone.stderr)


if __name__ == "__main__":
    unittest.main()
