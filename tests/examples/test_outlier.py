"""examples/outlier against its twin, and the statements that it is there to show."""

import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from twin import assert_same, json_of, twin

PROGRAM = sys.argv[1]
found = json_of(PROGRAM, "--json")
assert_same(found, twin("outlier/outlier.py"), relative=1e-5)


def median(what, bits, how, rows):
    return found[f"{what}/{bits}/{how}/{rows}/median"]


for bits in (8, 4):
    # One scale for all: everything else is lost, most of it to exactly 0.
    assert median("outlier", bits, "tensor", "other rows") > 0.9
    assert found[f"outlier/{bits}/tensor/other rows/zeros"] > 0.9
    for how in ("channel", "group 128", "group 64", "group 32"):
        # A scale per row or group: the other rows are as before.
        assert median("outlier", bits, how, "other rows") == median("normal", bits, how, "other rows")
    # In its own row the damage shrinks with the group, and is none where its column is kept.
    own = [median("outlier", bits, how, "own row")
           for how in ("channel", "group 128", "group 64", "group 32")]
    assert own == sorted(own, reverse=True) and own[0] > 0.9 and own[3] < 0.15, own
    assert median("outlier", bits, "LLM.int8()", "own row") < 1.2 * median(
        "normal", bits, "channel", "own row")
    assert median("normal", bits, "channel", "other rows") < median("normal", bits, "tensor", "other rows")
assert 0.005 < median("normal", 8, "tensor", "other rows") < 0.02

lost = {how: found[f"activations/outlier/{how}"] for how in (
    "W8A8 per tensor", "W8A8 per token", "SmoothQuant per token", "LLM.int8()")}
assert lost["W8A8 per tensor"] > lost["W8A8 per token"] > 3 * lost["LLM.int8()"], lost
assert lost["W8A8 per token"] > 3 * lost["SmoothQuant per token"], lost

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([PROGRAM, folder], check=True, capture_output=True)
    for name in ("weights.svg", "activations.svg"):
        bars = [e for e in xml.etree.ElementTree.parse(pathlib.Path(folder) / name).iter()
                if e.tag.endswith("title")]
        assert len(bars) >= 10, name
assert subprocess.run([PROGRAM, "--what"], capture_output=True).returncode == 2
