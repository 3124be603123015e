"""What lies in contrib/ fits the program: names of metrics, flags, packages; nginx before two
servers, one of which is killed."""

import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from server_support import (BINARY, LONG, PATIENCE, SANITIZED, SOURCE, Server, ServerTest, post_bytes,
                            read_all, wait_for, write_long_model)

CONTRIB = SOURCE / "contrib"


def need(program):
    found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not found:
        if os.environ.get("NIBBLE_REQUIRE_SHARED"):
            raise AssertionError(f"{program} is not installed")
        raise unittest.SkipTest(f"skipped: {program} is not installed")
    return found


def image_stages():
    """The Dockerfile's stages: their base and their steps."""
    text = re.sub(r"\\\n\s*", "", (CONTRIB / "docker/Dockerfile").read_text())
    stages = []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            stages.append((rest.split()[0], []))
        else:
            stages[-1][1].append((word, rest))
    return stages


class Grafana(ServerTest):
    arguments = ("--read-bandwidth", "10GB")

    def test_every_metric_of_the_dashboard_exists(self):
        text = (CONTRIB / "grafana/nibble.json").read_text()
        dashboard = json.loads(text)
        names = set(re.findall(r"nibble:(\w+)", text))
        live = self.server.get("/metrics").body.decode()
        types = dict(re.findall(r"# TYPE nibble:(\S+) (\S+)", live))
        for name in sorted(names):
            base = re.sub("_bucket$", "", name)
            self.assertIn(base, types, f"the dashboard asks for {name}")
            self.assertEqual(name.endswith("_bucket"), types[base] == "histogram", name)
        self.assertGreater(len(names), 25)
        labels = set(re.findall(r"by \((\w+)\)", text)) - {"le"}
        for label in labels:
            self.assertIn(label, ("kind", "state", "reason", "finished_reason", "status", "key"))
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in dashboard["panels"]:
            self.assertTrue(panel["targets"], panel["title"])


class Files(unittest.TestCase):
    def test_flags_exist(self):
        help_text = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True,
                                   timeout=PATIENCE).stdout
        for path in ("systemd/nibble.service", "docker/Dockerfile"):
            text = (CONTRIB / path).read_text()
            text = "\n".join(re.findall(r"nibble serve .*(?:\\\n.*)*", text))
            for flag in re.findall(r"--[a-z-]+", text):
                self.assertIn(flag, help_text, path)

    def test_the_image_has_the_packages(self):
        steps = (SOURCE / "tools/steps.sh").read_text()
        packages = re.search(r"build_packages=\(([^)]*)\)", steps).group(1).split()
        image = (CONTRIB / "docker/Dockerfile").read_text()
        for package in packages:
            self.assertRegex(image, rf"(?<!\S){re.escape(package)}(?!\S)")

    @unittest.skipIf(SANITIZED, "a sanitizer has libraries of its own")
    def test_the_image_has_what_the_program_is_linked_to(self):
        dpkg, readelf = need("dpkg-query"), need("readelf")
        image = (CONTRIB / "docker/Dockerfile").read_text().split("FROM ")[-1]
        dynamic = subprocess.run([readelf, "-d", BINARY], capture_output=True, text=True,
                                 timeout=PATIENCE, check=True).stdout
        libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        self.assertIn("libcurl.so.4", libraries)
        for library in libraries:
            if library.split(".")[0] in ("libc", "libm", "libstdc++", "libgcc_s", "libpthread") or \
                    library.startswith("ld-linux"):
                continue  # every Debian has them
            owner = subprocess.run([dpkg, "-S", f"*-linux-gnu/{library}"], capture_output=True,
                                   text=True, timeout=PATIENCE).stdout.split(":")[0]
            self.assertRegex(image, rf"(?<!\S){re.escape(owner or library)}(?!\S)")

    @unittest.skipIf(SANITIZED, "the program and the steps are the same")
    def test_the_image_is_built_by_commands_that_exist(self):
        # No image is built here. The first stage's command is read, and told to a copy of the source
        # tree as Docker would make it, where it is configured and says what it would compile.
        stages = image_stages()
        self.assertEqual([name for name, _ in stages], ["debian:bookworm", "debian:bookworm-slim"])
        build, final = (dict(steps) for _, steps in stages)
        self.assertEqual(build["COPY"], ". /source")
        self.assertEqual(build["WORKDIR"], "/source")
        configure, compile_, install = [c.strip() for c in stages[0][1][-1][1].split("&&")]
        compile_ = re.fullmatch(r"cmake --build (\S+) --target (\S+)", compile_)
        self.assertTrue(compile_)
        build_folder, target = compile_.groups()
        self.assertEqual(install, f"install -D {build_folder}/bin/nibble /out/nibble")
        self.assertEqual(final["COPY"], "--from=build /out/nibble /usr/bin/nibble")
        self.assertEqual(json.loads(final["ENTRYPOINT"]), ["/usr/bin/nibble"])
        ignored = (CONTRIB / "docker/Dockerfile.dockerignore").read_text().splitlines()
        ignored = [line for line in ignored if line and not line.startswith("#")]
        for name in ("build", ".git", "web/node_modules"):
            self.assertIn(name, ignored)
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder) / "source"
            shutil.copytree(SOURCE, tree, symlinks=True,
                            ignore=shutil.ignore_patterns(*(pathlib.Path(i).name for i in ignored)))
            # All that would be compiled, down to the program.
            for command in (configure, f"{need('ninja')} -C {build_folder} -t commands {target}"):
                done = subprocess.run(command, shell=True, cwd=tree, capture_output=True, text=True,
                                      timeout=PATIENCE)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout.splitlines()[-1], r" -o bin/nibble ")

    def test_the_health_check_of_the_image(self):
        [command] = [v for k, v in image_stages()[-1][1] if k == "HEALTHCHECK"]
        [shell, flag, text] = json.loads(command.split("CMD", 1)[1])
        self.assertEqual((shell, flag, text.count("8080")), ("bash", "-c", 1))
        server = Server()
        check = [need("bash"), "-c", text.replace("8080", str(server.port))]
        try:
            done = subprocess.run(check, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            server.stop()
        done = subprocess.run(check, capture_output=True, text=True, timeout=PATIENCE)
        self.assertNotEqual(done.returncode, 0, done.stdout)

    def test_the_unit_is_one(self):
        analyze = need("systemd-analyze")
        unit = (CONTRIB / "systemd/nibble.service").read_text()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "nibble.service"
            # The manual page and the program may not be installed here.
            unit = unit.replace("/usr/bin/nibble", BINARY).replace("Documentation=", "#")
            path.write_text(unit)
            done = subprocess.run([analyze, "verify", str(path)], capture_output=True, text=True,
                                  timeout=PATIENCE)
        about = [line for line in done.stderr.splitlines() if "nibble.service" in line]
        self.assertEqual(about, [])


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Nginx(unittest.TestCase):
    def setUp(self):
        program = need("nginx")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "m").mkdir()
        model = write_long_model(self.folder / "m")
        self.servers = [Server(model, "--max-seqs", 4) for _ in range(2)]
        for server in self.servers:
            self.addCleanup(server.stop)
        self.start_nginx(program)

    def start_nginx(self, program):
        conf = (CONTRIB / "nginx/nibble.conf").read_text()
        [self.port] = free_ports(1)
        for old, new in (("listen 8080", f"listen 127.0.0.1:{self.port}"),
                         ("127.0.0.1:8081", f"127.0.0.1:{self.servers[0].port}"),
                         ("127.0.0.1:8082", f"127.0.0.1:{self.servers[1].port}")):
            self.assertEqual(conf.count(old), 1, old)
            conf = conf.replace(old, new)
        (self.folder / "nibble.conf").write_text(conf)
        temporary = "".join(f"{name}_temp_path {self.folder}/{name};\n" for name in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(
            f"daemon off;\nmaster_process off;\npid {self.folder}/pid;\nerror_log stderr warn;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{temporary}include nibble.conf;\n}}\n")
        nginx = subprocess.Popen([program, "-p", str(self.folder), "-c",
                                  str(self.folder / "nginx.conf")], stderr=subprocess.DEVNULL)
        self.addCleanup(nginx.wait, PATIENCE)
        self.addCleanup(nginx.terminate)
        wait_for(self.answers, "nginx")

    def answers(self):
        try:
            return self.get("/health").status == 200
        except OSError:
            return False

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()

    def test_one_of_two_servers_is_killed(self):
        results = {}

        def stream(name):
            client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
            client.sendall(post_bytes("/v1/completions", {
                "prompt": "ROMEO:", "max_tokens": LONG, "ignore_eos": True, "stream": True},
                "Connection: close"))
            results[name] = read_all(client)
            client.close()

        threads = [threading.Thread(target=stream, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        victim, other = self.servers

        def both_run():
            return all(s.status()["engine"]["running"] > 0 for s in self.servers)
        wait_for(both_run, "streams on both servers")
        victim.process.kill()
        for thread in threads:
            thread.join(PATIENCE)
        ends = sorted(data.rstrip(b"0\r\n").endswith(b"data: [DONE]") for data in results.values())
        self.assertEqual(len(results), 4)
        self.assertIn(True, ends)   # the other server's streams came to their ends
        self.assertIn(False, ends)  # the victim's broke off
        for data in results.values():
            self.assertIn(b"200 OK", data.split(b"\r\n", 1)[0])
        # Whoever comes now is served.
        for _ in range(6):
            client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
            client.sendall(post_bytes("/v1/completions", {"prompt": "ROMEO:", "max_tokens": 5},
                                      "Connection: close"))
            self.assertIn(b"200 OK", read_all(client).split(b"\r\n", 1)[0])
            client.close()
        wait_for(other.idle, "an idle server")
        victim.process.wait(PATIENCE)


if __name__ == "__main__":
    unittest.main()
