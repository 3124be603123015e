"""Runs an example and its NumPy twin."""

import json
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def json_of(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_same(found, expected, relative, absolute=0.0):
    """Two maps of numbers by name."""
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    assert len(found) > 10, found
    for name, value in expected.items():
        bound = relative * abs(value) + absolute
        assert abs(found[name] - value) <= bound, (name, found[name], value)


def twin(name, *arguments):
    return json_of(sys.executable, EXAMPLES / name, *arguments)
