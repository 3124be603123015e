#!/usr/bin/env python3
"""Fails on source files over 800 lines, and on tracked files over 4 MB."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".h", ".cc", ".py", ".ts", ".tsx", ".sh"}
MAX_LINES = 800
MAX_BYTES = 4_000_000


def source_files():
    """What git tracks, or, outside a repository, everything but the build folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode == 0:
        return listed.stdout.decode().split("\0")
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    return [str(path) for path in paths if path.parts[0] != "build"]


def main():
    problems = 0
    for name in source_files():
        path = ROOT / name
        if not name or not path.is_file():
            continue
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            print(f"{name}: {len(data)} bytes, the limit is {MAX_BYTES}")
            problems += 1
        lines = data.count(b"\n")
        if path.suffix in CODE and lines > MAX_LINES:
            print(f"{name}: {lines} lines, the limit is {MAX_LINES}")
            problems += 1
    print(f"sizes: {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
