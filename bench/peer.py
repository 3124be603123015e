"""What compare.py's peers have in common."""

import os


def cores():
    return len(os.sched_getaffinity(0))


def choices(test, arguments):
    """What a peer may try, one setting after the other."""
    found = {"threads": sorted({cores(), max(1, cores() // 2)}, reverse=True),
             "flash": [True, False]}
    if test == "prefill":
        found["ubatch"] = arguments.ubatch
    return found
