"""Runs the program and finds test data. Standard library only."""

import json
import os
import pathlib
import struct
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["NIBBLE_SOURCE"])
BINARY = os.environ["NIBBLE_BIN"]
SHARED = pathlib.Path(os.environ.get("NIBBLE_SHARED", SOURCE.parent / "shared")) / "data"


def nibble(*arguments, stdin="", environment=None, timeout=240):
    """The finished process; standard output and error as text."""
    env = {k: v for k, v in os.environ.items()
           if not (k.startswith("NIBBLE_") and k not in ("NIBBLE_MODELS", "NIBBLE_ISA"))}
    env.update(environment or {})
    return subprocess.run([BINARY, *map(str, arguments)], input=stdin, env=env, timeout=timeout,
                          capture_output=True, encoding="utf-8", errors="replace")


def shared(relative):
    """A file of the shared data, or the test is skipped (and fails in CI)."""
    path = SHARED / relative
    if not path.exists():
        if os.environ.get("NIBBLE_REQUIRE_SHARED"):
            raise AssertionError(f"no shared data: {relative}")
        raise unittest.SkipTest(f"skipped: no shared data ({relative})")
    return path


def pulled(file_name):
    """A model file that `nibble pull` has fetched, or the test is skipped."""
    roots = [os.environ.get("NIBBLE_MODELS")]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    roots.append(os.path.join(cache, "nibble", "models"))
    for root in filter(None, roots):
        path = pathlib.Path(root) / file_name
        if path.exists():
            return path
    if os.environ.get("NIBBLE_REQUIRE_SHARED"):
        raise AssertionError(f"model not pulled: {file_name}")
    raise unittest.SkipTest(f"skipped: model not pulled ({file_name})")


def read_npy(path):
    """(shape, rows) of a float32 matrix."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (size,) = struct.unpack("<H", data[8:10])
    header = eval(data[10:10 + size], {"__builtins__": {}})  # a Python literal, by the format
    assert header["descr"] == "<f4" and not header["fortran_order"]
    rows, cols = header["shape"]
    values = struct.unpack(f"<{rows * cols}f", data[10 + size:])
    return header["shape"], [values[r * cols:(r + 1) * cols] for r in range(rows)]


class CliTest(unittest.TestCase):
    def run_json(self, *arguments, **options):
        done = nibble(*arguments, "--json", "--quiet", **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assert_refused(self, done, *words):
        """Exit code 2 and a message that names each of the words."""
        self.assertEqual(done.returncode, 2, done.stderr + done.stdout)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")
