"""/openapi.json says what is served: compared with the server, and driven by schemathesis."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from server_support import PATIENCE, SOURCE, TEMPLATE, ServerTest, python_with_packages


class OpenApi(ServerTest):
    template = TEMPLATE
    arguments = ("--max-tokens", 8)  # an answer is no part of what is looked at

    def test_it_is_served_as_it_is_written(self):
        written = json.loads((SOURCE / "src/server/openapi.json").read_text())
        answer = self.server.get("/openapi.json")
        self.assertEqual(answer.json, written)
        self.assertEqual(answer.headers["content-type"], "application/json")

    def test_every_path_and_method_exists_and_every_reference_too(self):
        spec = self.server.get("/openapi.json").json
        for path, methods in spec["paths"].items():
            for method in methods:
                real = path.replace("{id}", "shakespeare")
                answer = self.server.request(method.upper(), real, "{}" if method == "post" else None)
                self.assertNotIn(answer.status, (404, 405), path)
                self.assertIn(str(answer.status), methods[method]["responses"])
        schemas = spec["components"]["schemas"]
        for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(spec)):
            self.assertIn(name, schemas)

    def test_every_route_is_described(self):
        source = (SOURCE / "src/server/service.cc").read_text()
        routes = re.findall(r'Route\{"([^"]+)", (true|false)\}', source)
        self.assertGreater(len(routes), 10)
        paths = self.server.get("/openapi.json").json["paths"]
        for path, post in routes:
            self.assertIn("post" if post == "true" else "get", paths[path], path)

    def test_every_member_is_known(self):
        # One that the description names and the server does not know would get a warning.
        spec = self.server.get("/openapi.json").json["components"]["schemas"]
        for name, path, body in (("ChatRequest", "/v1/chat/completions",
                                  {"messages": [{"role": "user", "content": "a"}]}),
                                 ("CompletionRequest", "/v1/completions", {"prompt": "a"})):
            for member in spec[name]["properties"]:
                answer = self.server.post(path, {member: None} | body)
                self.assertEqual(answer.status, 200, (member, answer.body))
                answer = self.server.post(path, body | {member: {"a": [1]}})
                self.assertNotIn("x-nibble-warning", answer.headers, member)

    def test_schemathesis(self):
        python = python_with_packages("schemathesis")
        checks = ",".join(("not_a_server_error", "status_code_conformance",
                           "content_type_conformance", "response_headers_conformance",
                           "response_schema_conformance", "unsupported_method",
                           "allow_header_conformance"))
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [str(pathlib.Path(python).parent / "schemathesis"), "run",
                 f"http://127.0.0.1:{self.server.port}/openapi.json", "--checks", checks,
                 "--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--seed", "1",
                 "--no-shrink", "--continue-on-failure", "--warnings", "off", "--no-color"],
                capture_output=True, text=True, timeout=2 * PATIENCE, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
        self.assertEqual(self.server.get("/health").status, 200)


if __name__ == "__main__":
    unittest.main()
