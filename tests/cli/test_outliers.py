"""inspect --outliers: the figures of a matrix that the test decodes itself, and wrong use."""

import json
import pathlib
import struct
import tempfile
import unittest

from support import SOURCE, CliTest, nibble

MODEL = SOURCE / "models" / "shakespeare"


def stored(name):
    """The values and the shape of a tensor of the demonstration model."""
    data = (MODEL / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8:8 + size])[name]
    begin, end = (8 + size + at for at in entry["data_offsets"])
    return struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]), entry["shape"]


class OutliersOfAModel(CliTest):
    def test_weights(self):
        found = self.run_json("inspect", MODEL, "--outliers")["outliers"]
        self.assertIsNone(found["activations"])
        weights = {tensor["name"]: tensor for tensor in found["weights"]}
        self.assertEqual(len(weights), 18)
        values, (inputs, outputs) = stored("transformer.h.1.mlp.c_fc.weight")  # as {in, out}
        mean = sum(map(abs, values)) / len(values)
        tensor = weights["blk.1.ffn_up.weight"]
        self.assertAlmostEqual(tensor["typical"], mean, delta=1e-6 * mean)
        largest = max(range(len(values)), key=lambda i: abs(values[i]))
        self.assertAlmostEqual(tensor["ratio"], abs(values[largest]) / mean, places=4)
        self.assertEqual(tensor["outputs"]["worst"][0]["channel"], largest % outputs)
        self.assertEqual(tensor["inputs"]["worst"][0]["channel"], largest // outputs)
        scale = abs(values[largest]) / 127
        error = sum(abs(round(v / scale) * scale - v) for v in values) / sum(map(abs, values))
        self.assertAlmostEqual(tensor["errors"]["int8"]["tensor"], error, delta=1e-4 * error)
        for bits in ("int8", "int4"):
            errors = tensor["errors"][bits]
            ordered = [errors[k] for k in ("tensor", "channel", "group 128", "group 64", "group 32")]
            self.assertEqual(ordered, sorted(ordered, reverse=True))

    def test_activations_and_text(self):
        found = self.run_json("inspect", MODEL, "--outliers", "--calib", "built-in",
                              "--calib-sequences", 1)["outliers"]
        self.assertEqual(found["calibration"]["tokens"], 256)
        self.assertEqual(len(found["activations"]), 17)
        for one in found["activations"]:
            self.assertEqual(one["tokens"], 1 if one["linear"] == "head" else 256)
            self.assertGreaterEqual(one["ratio"], one["channels"]["median"])
            self.assertLess(one["errors"]["int8"]["group 32"], one["errors"]["int8"]["tensor"])
        done = nibble("inspect", MODEL, "--outliers", "--calib", "built-in", "--calib-sequences", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("blk.3.ffn_down.weight", "layer 3 down", "256 tokens of built-in"):
            self.assertIn(words, done.stdout)

    def test_wrong_use(self):
        self.assertEqual(nibble("inspect", MODEL, "--calib", "built-in").returncode, 2)
        with tempfile.TemporaryDirectory() as folder:
            short = pathlib.Path(folder) / "short.txt"
            short.write_text("too short")
            self.assert_refused(nibble("inspect", MODEL, "--outliers", "--calib", short), "--calib")


if __name__ == "__main__":
    unittest.main()
