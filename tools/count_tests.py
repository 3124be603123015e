#!/usr/bin/env python3
"""Counts tests from the reports below a folder: "N passed, N failed, N skipped".

A folder that holds ctest.xml (ctest --output-junit) has one entry per test program; where the
program left a GoogleTest report in gtest/ beside it, its cases are counted instead, and likewise
what Python's unittest says it ran. A program that crashed or ran out of time counts as one failure
more. A stage of ./check (file "stages") counts as one test, unless its own tests speak for it.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def count_googletest(report):
    """Counts of one program's GoogleTest report, or None where it is absent or broken."""
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    counts = collections.Counter()
    for case in root.iter("testcase"):
        if case.find("failure") is not None:
            counts["failed"] += 1
        elif case.get("result") == "skipped" or case.find("skipped") is not None:
            counts["skipped"] += 1
        elif case.get("status") == "run":
            counts["passed"] += 1
    return counts


def count_unittest(output):
    """Counts from the last lines of Python's unittest, or None where the text is not its output."""
    ran = re.search(r"^Ran (\d+) tests? in ", output or "", re.MULTILINE)
    if not ran:
        return None
    ended = output[ran.end():]
    number = {word: int(count) for word, count in re.findall(r"(\w+)=(\d+)", ended)}
    failed = number.get("failures", 0) + number.get("errors", 0)
    skipped = number.get("skipped", 0)
    return collections.Counter(passed=max(0, int(ran.group(1)) - failed - skipped), failed=failed,
                               skipped=skipped)


def count_ctest(report):
    counts = collections.Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = case.get("name")
        bad = case.find("failure") is not None or case.get("status") == "fail"
        inner = count_googletest(report.parent / "gtest" / f"{name}.xml")
        if inner is None:
            inner = count_unittest(case.findtext("system-out"))
        if inner is None:
            skipped = case.find("skipped") is not None
            inner = collections.Counter(["failed" if bad else "skipped" if skipped else "passed"])
        elif bad and not inner["failed"]:
            inner["failed"] += 1
        counts += inner
    return counts


def count_stages(folder):
    counts = collections.Counter()
    try:
        lines = (folder / "stages").read_text().splitlines()
    except OSError:
        return counts
    for line in lines:
        stage, outcome = line.split()
        report = folder / ("release" if stage == "test" else stage) / "ctest.xml"
        own = count_ctest(report) if report.exists() else collections.Counter()
        if not own or (outcome == "failed" and not own["failed"]):
            counts[outcome] += 1
    return counts


def main():
    counts = collections.Counter()
    folder = pathlib.Path(sys.argv[1])
    for report in sorted(folder.rglob("ctest.xml")):
        counts += count_ctest(report)
    counts += count_stages(folder)
    print(f"{counts['passed']} passed, {counts['failed']} failed"
          + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
