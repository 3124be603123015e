"""What the page asks for beside the API: real numbers of the model, and cards."""

import json
import math
import pathlib
import struct
import tempfile

from server_support import SOURCE, Server, ServerTest


def read_tensor(path, name):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + size])[name]
    assert entry["dtype"] == "F32"
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    return entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])


class Learn(ServerTest):
    model = "long"
    arguments = ("--model-dir", SOURCE / "models")

    def test_the_weights_are_the_file_s(self):
        answer = self.server.get("/learn/weights").json
        self.assertEqual(answer["tensor"], "model.layers.1.mlp.down_proj.weight")
        (rows, cols), values = read_tensor(self.model_path / "model.safetensors", answer["tensor"])
        self.assertEqual((answer["rows"], answer["cols"]), (rows, cols))

        def ratio(row):
            sizes = sorted(abs(v) for v in values[row * cols:(row + 1) * cols])
            return sizes[-1] / sizes[cols // 2]
        self.assertEqual(answer["row"], max(range(rows), key=ratio))
        self.assertAlmostEqual(answer["ratio"], ratio(answer["row"]), 4)
        begin = answer["row"] * cols + answer["first"]
        own = values[begin:begin + len(answer["values"])]
        for shown, stored in zip(answer["values"], own, strict=True):
            self.assertAlmostEqual(shown, stored, 6)
        row = values[answer["row"] * cols:(answer["row"] + 1) * cols]
        self.assertEqual(max(map(abs, own)), max(map(abs, row)))  # the outlier is among them

    def test_attention_is_softmax(self):
        answer = self.server.get("/learn/attention").json
        scores, values = answer["scores"], answer["values"]
        self.assertEqual((len(answer["tokens"]), len(scores), len(values)), (128, 128, 128))
        self.assertEqual("".join(answer["tokens"])[:9], "A library")
        weights = [math.exp(s - max(scores)) for s in scores]
        expected = math.fsum(w * v for w, v in zip(weights, values)) / math.fsum(weights)
        self.assertGreater(abs(answer["output"]), 0)
        self.assertAlmostEqual(answer["output"] / expected, 1, 4)

    def test_cards(self):
        answer = self.server.get("/cards").json
        self.assertEqual(answer["folder"], str(SOURCE / "models"))
        own = {one["name"]: one for one in answer["models"]}["shakespeare"]
        self.assertIsNone(own["card"])
        self.assertGreater(own["parameters"], 500_000)

    def test_methods(self):
        for path in ("/cards", "/learn/weights", "/learn/attention"):
            self.assertEqual(self.server.post(path, {}).status, 405)
        self.assertEqual(self.server.get("/learn/nothing").status, 404)


class Folders(ServerTest):
    def test_a_broken_model_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "bad.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 100)
            (pathlib.Path(folder) / "notes.txt").write_text("no model")
            server = Server(self.model_path, "--model-dir", folder)
            try:
                models = server.get("/cards").json["models"]
                self.assertEqual([one["name"] for one in models], ["bad"])
                self.assertIn("bad.gguf", models[0]["problem"])
            finally:
                self.assertEqual(server.stop(), 0)
