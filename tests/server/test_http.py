"""What comes over the wire: odd, broken and hostile HTTP is answered or refused, and harms nobody."""

import json
import socket
import unittest

from server_support import Server, ServerTest, post_bytes, read_all, wait_for

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"


class Http(ServerTest):
    arguments = ("--header-timeout", 4, "--body-timeout", 4, "--max-body", "1MB")

    def talk(self, data, end=True):
        """All that comes back when the client then sends no more."""
        with self.server.raw() as connection:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def status_of(self, data):
        return int(data.split(b" ", 2)[1])

    def tearDown(self):
        self.assertEqual(self.server.get("/health").status, 200)
        wait_for(self.server.idle, "an idle engine")

    def test_methods(self):
        whole = self.server.get("/v1/models")
        head = self.server.request("HEAD", "/v1/models")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(head.headers["content-length"], str(len(whole.body)))
        options = self.server.request("OPTIONS", "/v1/completions")
        self.assertEqual((options.status, options.body), (204, b""))
        self.assertIn("POST", options.headers["allow"])
        self.assertNotIn("access-control-allow-origin", options.headers)
        for method, path, status in (("GET", "/nothing", 404), ("POST", "/v1", 404),
                                     ("GET", "/v1/completions", 405), ("PUT", "/health", 405),
                                     ("DELETE", "/v1/models", 405), ("POST", "/metrics", 405),
                                     ("HEAD", "/v1/completions", 405), ("BREW", "/status", 405),
                                     ("OPTIONS", "/nothing", 404)):
            with self.subTest(method=method, path=path):
                answer = self.server.request(method, path)
                self.assertEqual(answer.status, status)
                if status == 405:
                    self.assertIn("GET" if path != "/v1/completions" else "POST",
                                  answer.headers["allow"])
                if method != "HEAD":
                    self.assertEqual(set(answer.json["error"]),
                                     {"message", "type", "param", "code"})

    def test_paths(self):
        for path in ("/health?x=1", "/%68ealth", "http://other/health"):
            self.assertEqual(self.server.get(path).status, 200, path)
        for path in ("/health/", "//health", "/%", "/%zz", "/../health", "/" + "a" * 4000):
            self.assertEqual(self.server.get(path).status, 404, path)

    def test_page(self):
        page = self.server.get("/")
        self.assertEqual((page.status, page.headers["content-type"]),
                         (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", page.headers["content-security-policy"])
        for path in ("/", "/app.js", "/app.css", "/icon.svg"):
            head = self.server.request("HEAD", path)
            known = self.server.get(path, {"If-None-Match": head.headers["etag"]})
            self.assertEqual((head.status, known.status, known.body), (200, 304, b""))
            self.assertNotIn("content-length", known.headers)
            self.assertEqual(self.server.post(path, {}).status, 405)

    def test_keep_alive_and_pipelining(self):
        connection = self.server.connect()
        for _ in range(3):
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
        connection.close()
        body = {"prompt": "ROMEO:", "temperature": 0, "max_tokens": 5}
        expected = self.server.post("/v1/completions", body).json["choices"][0]["text"]
        many = b"".join(post_bytes("/v1/completions", body | {"max_tokens": i}) + GET + b"\r\n"
                        for i in range(1, 6)) + GET + b"Connection: close\r\n\r\n"
        answers = self.talk(many, end=False).split(b"HTTP/1.1 200 OK\r\n")[1:]
        self.assertEqual(len(answers), 11)
        for i in range(5):
            text = json.loads(answers[2 * i].split(b"\r\n\r\n", 1)[1])["choices"][0]["text"]
            self.assertEqual(text, expected[:i + 1])
        flood = (GET + b"\r\n") * 3000 + GET + b"Connection: close\r\n\r\n"
        self.assertEqual(self.talk(flood, end=False).count(b'{"status":"ok"}'), 3001)

    def test_empty_lines_before_a_request(self):
        body = post_bytes("/v1/completions", {"prompt": "a", "max_tokens": 1})
        data = self.talk(b"\r\n" + body + b"\r\n\r\n" + GET + b"Connection: close\r\n\r\n",
                         end=False)
        self.assertEqual(data.count(b"HTTP/1.1 200 OK"), 2, data)

    def test_http_1_0(self):
        answer = self.talk(b"GET /health HTTP/1.0\r\n\r\n", end=False)
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK"))
        self.assertIn(b"Connection: close", answer)
        kept = self.talk(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
                         b"GET /health HTTP/1.0\r\n\r\n", end=False)
        self.assertEqual(kept.count(b"200 OK"), 2)
        stream = self.talk(post_bytes("/v1/completions", {"prompt": "RO", "stream": True,
                                                          "max_tokens": 3}, version="1.0"),
                           end=False)
        self.assertNotIn(b"chunked", stream)
        self.assertTrue(stream.endswith(b"data: [DONE]\n\n"))

    def test_chunked_bodies_and_expectations(self):
        body = json.dumps({"prompt": "ROMEO:", "max_tokens": 2}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                          for i in range(0, len(body), 7)) + b"0\r\n\r\n"
        answer = self.talk(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, end=False)
        self.assertEqual(self.status_of(answer), 200)
        with self.server.raw() as connection:
            connection.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                               % len(body))
            self.assertEqual(connection.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(body)
            self.assertEqual(self.status_of(read_all(connection)), 200)
        # Refused before the body: nobody asks for it.
        refused = self.talk(b"POST /nothing HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                            b"Content-Length: 100\r\n\r\n", end=False)
        self.assertEqual(self.status_of(refused), 404)
        for bad in (b"zz\r\n\r\n", b"-1\r\n\r\n", b"ffffffffffffffffff\r\na", b"5\r\nabc\r\n0\r\n\r\n"):
            answer = self.talk(head + b"Transfer-Encoding: chunked\r\n\r\n" + bad, end=False)
            self.assertEqual(self.status_of(answer), 400, bad)

    def test_wrong_requests(self):
        cases = [(b"hello\r\n\r\n", 400), (b"\x00\x01\x02\x03\r\n\r\n", 400),
                 (b"GET / HTTP/2.0\r\n\r\n", 505), (b"GET /health HTTP/1.1\r\n\r\n", 400),
                 (b"GET /health\r\n\r\n", 400),
                 (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
                 (GET + b"Bad Header\r\n\r\n", 400), (GET + b"A: " + b"x" * 20000, 431),
                 (GET + b"".join(b"H%d: x\r\n" % i for i in range(4000)), 431),
                 (GET + b"Expect: a miracle\r\n\r\n", 417),
                 (GET + b"Content-Length: -1\r\n\r\n", 400),
                 (GET + b"Content-Length: x\r\n\r\n", 400),
                 (GET + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
                 (GET + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
                 (GET + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
                 (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                  501),
                 (b"POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
                 (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 1000001\r\n\r\n", 413)]
        for data, status in cases:
            with self.subTest(data=data[:60]):
                answer = self.talk(data, end=False)
                self.assertEqual(self.status_of(answer), status)
                self.assertIn(b"Connection: close", answer)
                self.assertIn(b'"error"', answer)

    def test_wrong_content_length(self):
        body = json.dumps({"content": "ROMEO:"}).encode()
        head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        # Too short: the body is cut and no JSON; what is left over is no request.
        answer = self.talk(head % (len(body) - 3) + body, end=False)
        self.assertEqual(self.status_of(answer), 400)
        self.assertEqual(answer.count(b"HTTP/1.1 400"), 2)
        # Too long: it never comes.
        answer = self.talk(head % (len(body) + 3) + body, end=False)
        self.assertEqual(self.status_of(answer), 408)

    def test_large_bodies(self):
        for body in (b"[" * 900_000, b'{"prompt":' * 90_000, b"1," * 400_000,
                     b'{"prompt": "' + b"a" * 900_000 + b'"}',
                     b'{"prompt": [' + b"1," * 400_000 + b"1]}"):
            answer = self.server.post("/v1/completions", body)
            self.assertEqual(answer.status, 400, answer.body[:200])
        answer = self.talk(post_bytes("/v1/completions", b"[" * 10_000_000), end=False)
        self.assertEqual(self.status_of(answer), 413)

    def test_slow_heads_and_bodies(self):
        for data in (b"G", GET, b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"):
            answer = self.talk(data, end=False)
            self.assertEqual(self.status_of(answer), 408)
        self.assertGreaterEqual(self.server.status()["http"]["timeouts"], 3)

    def test_half_closed(self):
        self.assertIn(b'{"status":"ok"}', self.talk(GET + b"\r\n"))
        # One that waits for the engine counts as gone.
        self.talk(post_bytes("/v1/completions", {"prompt": "ROMEO:", "max_tokens": 200}))
        self.talk(b"GET /hea")
        self.talk(b"")

    def test_each_byte_alone(self):
        with self.server.raw() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(len(GET)):
                connection.sendall(GET[i:i + 1])
            connection.sendall(b"Connection: close\r\n\r\n")
            self.assertIn(b'{"status":"ok"}', read_all(connection))

    def test_every_cut_of_a_request(self):
        whole = post_bytes("/v1/completions", {"prompt": "ROMEO:", "max_tokens": 1})
        for length in range(0, len(whole), 5):
            self.talk(whole[:length])


class Limits(ServerTest):
    arguments = ("--max-connections", 6, "--idle-timeout", 5, "--cors", "https://a.example",
                 "--metrics-prefix", "vllm")

    def test_connections_and_idle_time(self):
        wait_for(lambda: self.server.get("/health").status == 200, "free connections")
        connections = [self.server.raw() for _ in range(6)]
        with self.server.raw() as late:
            self.assertIn(b"503 Service Unavailable", read_all(late))
        self.assertEqual(self.server.get("/v1/models").status, 503)
        for _ in range(20):  # by the way, spare ones are given back
            self.assertEqual(self.server.get("/health").status, 200)
        more = [self.server.raw() for _ in range(30)]
        answers = [read_all(one) for one in more]
        for one in more:
            one.close()
        self.assertEqual([b" 503 " in one for one in answers], [True] * 30)
        for connection in connections:  # closed by the server, in time
            self.assertEqual(read_all(connection), b"")
            connection.close()
        self.assertEqual(self.server.get("/health").status, 200)

    def test_cors(self):
        answer = self.server.request("OPTIONS", "/v1/chat/completions",
                                     headers={"Origin": "https://a.example"})
        self.assertEqual(answer.status, 204)
        self.assertEqual(answer.headers["access-control-allow-origin"], "https://a.example")
        self.assertIn("Authorization", answer.headers["access-control-allow-headers"])
        self.assertEqual(self.server.get("/health").headers["access-control-allow-origin"],
                         "https://a.example")

    def test_a_preflight_gets_the_headers_it_asks_for(self):
        def allowed(names):
            answer = self.server.request("OPTIONS", "/v1/chat/completions", headers={
                "Origin": "https://a.example", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": names})
            return answer.headers["access-control-allow-headers"]
        names = "authorization,content-type, x-stainless-os, x-stainless-retry-count"
        self.assertEqual(allowed(names), names)
        for wrong in ("a(b)", "a;b", "x" * 3000):
            self.assertNotIn(wrong, allowed(wrong))
            self.assertIn("Authorization", allowed(wrong))

    def test_prefix(self):
        self.assertIn("vllm:num_requests_running{", self.server.get("/metrics").body.decode())


if __name__ == "__main__":
    unittest.main()
