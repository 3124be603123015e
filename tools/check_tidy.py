#!/usr/bin/env python3
"""Runs clang-tidy on the sources that changed, in parallel, within a time budget.

Changed means: since the branch left origin/main; on main itself, in the commits of the last day
before HEAD; and whatever is not committed. A changed header stands for the sources beside it of the
same name. Files that the budget leaves out are named, never silently passed over.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def changed_files():
    head = git("rev-parse", "HEAD").strip()
    fork = git("merge-base", "HEAD", "origin/main").strip()
    names = git("diff", "--name-only", "HEAD").split()
    if fork and fork != head:
        names += git("diff", "--name-only", fork, "HEAD").split()
    else:
        day = int(git("log", "-1", "--format=%ct") or 0) - 24 * 3600
        names += git("log", f"--since={day}", "--format=", "--name-only").split()
    return list(dict.fromkeys(names))  # newest first, each once


def write_database(commands, folder):
    """The compile commands without precompiled headers, which may not be built."""
    folder.mkdir(exist_ok=True)
    for entry in commands:
        entry["command"] = re.sub(r"-Xclang -include-pch -Xclang \S+", "", entry["command"])
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", type=float, default=120, help="seconds; 0 for none")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    commands = json.loads((arguments.build / "compile_commands.json").read_text())
    database = write_database(commands, arguments.build / "tidy")
    compiled = {pathlib.Path(entry["file"]).resolve() for entry in commands}
    # Tests are held by the compiler's warnings; clang-tidy reads the program.
    sources = {path for path in compiled
               if path.is_relative_to(ROOT / "src") and not path.name.endswith("_test.cc")}
    if arguments.all:
        wanted, arguments.budget = sorted(sources), 0
    else:
        wanted = []
        for name in changed_files():
            path = (ROOT / name).with_suffix(".cc")
            if path in sources and path not in wanted:
                wanted.append(path)
    # The analyzer takes as long as all other checks together: only in the full run.
    checks = [] if arguments.all else ["--checks=-clang-analyzer-*"]
    deadline = time.monotonic() + arguments.budget if arguments.budget else float("inf")

    def check(path):
        if time.monotonic() > deadline:
            return path, None
        done = subprocess.run(["clang-tidy-19", "--quiet", *checks, "-p", str(database), str(path)],
                              capture_output=True, text=True)
        return path, (done.returncode, done.stdout)

    failed, left_out = 0, []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for path, result in pool.map(check, wanted):
            if result is None:
                left_out.append(str(path.relative_to(ROOT)))
            elif result[0] != 0:
                failed += 1
                print(result[1])
    if left_out:
        print("not examined for want of time:", *left_out)
    print(f"clang-tidy: {len(wanted) - len(left_out)} of {len(wanted)} files examined, "
          f"{failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
