#!/usr/bin/env python3
"""Holds src/ against the table of folders in docs/architecture.md.

The table's rows are in order. A file of a folder may include headers of its own folder, of base and
platform, and of folders above its own, except those that the row's last column names in backticks.
What its CMakeLists.txt names in DEPS is held to the same rule; the linker sees
that DEPS is complete.
Folders of src/ that the table does not have are an error.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EVERYWHERE = {"base", "platform"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/[^"]+"', re.MULTILINE)
LIBRARY = re.compile(r"(?:nibble_library|nibble_test)\s*\(([^()]*)\)")
KEYWORDS = {"DIR", "DEPS", "LIBS", "PRIVATE_LIBS", "EXCLUDE", "TEST_LIBS", "SOURCES",
            "ALONE"}


def read_table(page):
    """[(folder, forbidden folders)] in the order of the page's table."""
    rows = []
    for line in page.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\|\s*`([a-z_]+)/`\s*\|.*\|([^|]*)\|\s*$", line)
        if match:
            rows.append((match.group(1), set(re.findall(r"`([a-z_]+)/`", match.group(2)))))
    return rows


def allowed_folders(rows):
    allowed = {}
    above = set()
    for folder, forbidden in rows:
        allowed[folder] = (above | EVERYWHERE | {folder}) - forbidden
        above.add(folder)
    allowed["base"] = {"base"}
    allowed["platform"] = {"base", "platform"}
    return allowed


def read_dependencies(cmake_file):
    """{library or test: what it names in DEPS}."""
    dependencies = {}
    text = re.sub(r"#.*", "", cmake_file.read_text(encoding="utf-8"))
    for call in LIBRARY.findall(text):
        words = call.split()
        section, named = "", set()
        for word in words[1:]:
            if word in KEYWORDS:
                section = word
            elif section == "DEPS":
                named.add(word)
        dependencies.setdefault(words[0], set()).update(named)
    return dependencies


def folder_of(library, folders):
    """kv_storage -> kv: a library of its own inside a folder is named after the folder."""
    if library in folders:
        return library
    prefix = library.split("_")[0]
    return prefix if prefix in folders else None


def check(root):
    problems = []
    rows = read_table(root / "docs/architecture.md")
    if len(rows) < 10:
        return [f"docs/architecture.md: found {len(rows)} rows of the table of folders"]
    allowed = allowed_folders(rows)
    present = sorted(p.name for p in (root / "src").iterdir() if p.is_dir())
    for folder in present:
        if folder not in allowed:
            problems.append(f"src/{folder}: not in the table of docs/architecture.md")
            continue
        for cmake_file in sorted((root / "src" / folder).rglob("CMakeLists.txt")):
            for library, named in read_dependencies(cmake_file).items():
                for dependency in named:
                    target = folder_of(dependency, allowed)
                    where = cmake_file.relative_to(root)
                    if target is None:
                        problems.append(f"{where}: {library} names unknown '{dependency}' in DEPS")
                    elif target not in allowed[folder]:
                        problems.append(f"{where}: {library} may not depend on {dependency}")
        for source in sorted((root / "src" / folder).rglob("*")):
            if source.suffix not in {".h", ".cc"}:
                continue
            is_test = source.stem.endswith("_test")
            for included in INCLUDE.findall(source.read_text(encoding="utf-8")):
                where = source.relative_to(root)
                if included == "tests" and is_test:
                    continue
                if included not in allowed:
                    problems.append(f"{where}: includes unknown folder '{included}'")
                elif included not in allowed[folder]:
                    problems.append(f"{where}: {folder} may not include {included}")
    return list(dict.fromkeys(problems))


def main():
    problems = check(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for problem in problems:
        print(problem)
    print(f"borders: {len(problems)} problems" if problems else "borders: they hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
