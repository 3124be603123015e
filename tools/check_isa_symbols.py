#!/usr/bin/env python3
"""Fails where an object compiled for an instruction set has weak symbols outside its namespace.

The linker keeps one copy of every weak symbol (inline functions, template instances). If an object
compiled for AVX-512 brought one that another object has too, a machine without AVX-512 could end up
running the AVX-512 copy. So each such object may define weak symbols only inside the namespace that
NIBBLE_ISA_NS names on its command line (cmake/NibbleTargets.cmake, nibble_isa_objects).
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

WEAK = set("WwVvu")
NAMESPACE = re.compile(r"-DNIBBLE_ISA_NS=(\w+)")


def isa_objects(build):
    """[(object file, namespace)] from the build's compile commands."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    for entry in commands:
        command = entry.get("command") or shlex.join(entry["arguments"])
        match = NAMESPACE.search(command)
        if match:
            words = shlex.split(command)
            output = pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]
            if output.exists():
                yield output, match.group(1)


def weak_symbols(object_file):
    listing = subprocess.run(["nm", "--defined-only", str(object_file)], capture_output=True,
                             text=True, check=True).stdout
    for line in listing.splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[1] in WEAK:
            yield parts[2]


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
    problems, objects = 0, 0
    for object_file, namespace in isa_objects(build):
        objects += 1
        mangled = f"{len(namespace)}{namespace}"
        for symbol in weak_symbols(object_file):
            # A pointer to the exception personality, the same in every object.
            if symbol.startswith("DW.ref."):
                continue
            if mangled not in symbol:
                print(f"{object_file.name} ({namespace}): weak symbol {symbol}")
                problems += 1
    print(f"instruction sets: {objects} objects, {problems} problems")
    if objects == 0:
        print("no object has an instruction set of its own: is this a release build?")
        return 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
