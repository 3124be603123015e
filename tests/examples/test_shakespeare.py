"""examples/shakespeare against its twin, and the statements that it is there to show."""

import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from twin import EXAMPLES, assert_same, json_of, twin

PROGRAM, WINDOWS = sys.argv[1], 8
GIVEN = [EXAMPLES.parent / "models" / "shakespeare", EXAMPLES / "shakespeare" / "input.txt"]
with tempfile.TemporaryDirectory() as folder:
    found = json_of(PROGRAM, *GIVEN, "--windows", WINDOWS, "--json", folder)
    for name in ("loss.svg", "errors.svg"):
        bars = [e for e in xml.etree.ElementTree.parse(pathlib.Path(folder) / name).iter()
                if e.tag.endswith("title")]
        assert len(bars) >= 10, name
# Rounded weights are the same bits; losses are of another order of float sums. Where activations are
# rounded too a sum's last bit tips a code here and there, and every layer behind it rounds otherwise:
# the bound is the one on what 8 bits change at all.
expected = twin("shakespeare/shakespeare.py", *GIVEN, WINDOWS)
assert_same({k: v for k, v in found.items() if "integer" not in k},
            {k: v for k, v in expected.items() if "integer" not in k}, relative=1e-5)
assert_same({k: v for k, v in found.items() if "integer" in k},
            {k: v for k, v in expected.items() if "integer" in k}, relative=1e-5,
            absolute=1e-3)

for kind in ("simulated", "integer"):
    for how in ("tensor", "channel"):
        assert abs(found[f"loss/8/{how}/{kind}"] - found["loss/float"]) < 1e-3, (how, kind)
    tensors = [k.rsplit("/", 1)[1] for k in found if k.startswith(f"error/8/tensor/{kind}/")]
    assert len(tensors) == 16
    for tensor in tensors:
        assert found[f"error/8/channel/{kind}/{tensor}"] < found[f"error/8/tensor/{kind}/{tensor}"]
for how in ("tensor", "channel"):
    for bits in (2, 3, 4):
        assert found[f"loss/{bits}/{how}/simulated"] > found[f"loss/{bits + 1}/{how}/simulated"]
for bits in (2, 3, 4, 5, 6):
    assert found[f"loss/{bits}/channel/simulated"] < found[f"loss/{bits}/tensor/simulated"]
for wrong in ([], [*GIVEN, "--windows", "0"], [*GIVEN, "--what"], [GIVEN[0], "/no/text"]):
    assert subprocess.run([PROGRAM, *map(str, wrong)], capture_output=True).returncode == 2, wrong
