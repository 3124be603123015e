"""nibble calibrate: a device file of this machine, what is planned with it, and wrong use."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

from support import SOURCE, nibble

sys.path.insert(0, str(SOURCE / "tools"))
import calibrated_reference as reference  # noqa: E402

KEYS = ("name", "isa", "threads", "read_bandwidth", "cache_bandwidth", "kernels", "attention",
        "barrier_s", "step_overhead_s", "memory_bytes")
MODEL = ("plan", "--model", "smollm2-135m", "--device", "here", "--weights", "q4_k_m,q8_0",
         "--kv", "f16,int8", "--batch", "1,8", "--context", "100,3000", "-t", 1, "--json")


class Calibrate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.environ.get("NIBBLE_SANITIZED"):
            raise unittest.SkipTest("measuring every kernel takes a sanitizer many minutes")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.environment = {"XDG_CACHE_HOME": folder.name}
        done = nibble("calibrate", "--quick", "-t", 1, "--json", environment=cls.environment,
                      timeout=900)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.device = json.loads(done.stdout)
        files = list(pathlib.Path(folder.name, "nibble/devices").iterdir())
        assert len(files) == 1, files
        cls.file = files[0]
        cls.text = cls.file.read_text()

    def tearDown(self):
        self.file.write_text(self.text)

    def plan(self, *arguments):
        return nibble(*(arguments or MODEL), environment=self.environment)

    def test_the_file(self):
        self.assertEqual(json.loads(self.text), self.device)
        self.assertEqual(self.file.name, f"here-{self.device['isa']}-t1.json")
        for key in KEYS:
            self.assertIn(key, self.device)
        for kernel in self.device["kernels"]:
            for key in ("gemv_bandwidth", "gemm_macs", "unpack_s_per_weight", "row_s_per_weight",
                        "overlap_p", "spread"):
                self.assertIn(key, kernel)
            seconds = [row["cpu_s"] for row in kernel["rows"]]
            self.assertEqual(seconds, sorted(seconds))
        formats = {(one["format"], one["act"]) for one in self.device["kernels"]}
        self.assertLessEqual({("q4_k", "int8"), ("q4_k", "f32"), ("bf16", "f32")}, formats)
        kvs = {one["kv"] for one in self.device["attention"]}
        self.assertEqual(kvs, {"f32", "f16", "fp8", "int8", "int4", "kivi4", "kivi2"})
        bandwidths = [point["bandwidth"] for point in self.device["cache_bandwidth"]]
        self.assertEqual(bandwidths, sorted(bandwidths, reverse=True))

    def test_plans_take_it(self):
        done = self.plan()
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual(out["device"]["origin"], str(self.file))
        for row in out["rows"]:
            self.assertGreaterEqual(row["step_s"], row["memory_s"])
            self.assertGreaterEqual(row["step_s"], row["compute_s"] + row["overhead_s"])
        # The file is a device by its own path as well, with the same steps.
        arguments = list(MODEL)
        arguments[arguments.index("here")] = self.file
        self.assertEqual(json.loads(self.plan(*arguments).stdout)["rows"], out["rows"])

    # On this thread and as if it were one of several.
    def test_steps_equal_the_formula_written_again(self):
        models = {
            "smollm2-135m": reference.SMOLLM2,
            "tinyllama-1.1b": reference.Model(32000, 2048, 5632, 22, 32, 4, 64),
            "llama-3-8b": reference.Model(128256, 4096, 14336, 32, 32, 8, 128),
        }
        compared = 0
        for threads in (1, 6):
            path = self.file.parent / f"threads-{threads}.json"
            self.addCleanup(path.unlink)
            path.write_text(json.dumps(dict(self.device, threads=threads)))
            machine = reference.Machine(json.loads(path.read_text()))
            for name, model in models.items():
                out = json.loads(self.plan(
                    "plan", "--model", name, "--device", path, "--true", "--weights",
                    "f16,q8_0,q4_0", "--kv", "f32,f16,fp8,int8,int4", "--batch", "1,3,8,9,40,300",
                    "--context", "0,31,32,700,8000", "-t", 1, "--json").stdout)
                for row in out["rows"]:
                    # llama.cpp's q4_0 keeps the output in q6_k, or q8_0 where that does not divide.
                    finer = "q6_k" if model.width % 256 == 0 else "q8_0"
                    expected = reference.step(machine, model, row["weights"], row["kv"],
                                              row["batch"], row["context"],
                                              finer if row["weights"] == "q4_0" else None)
                    self.assertAlmostEqual(row["step_s"] / expected, 1, delta=1e-12, msg=row)
                    compared += 1
        self.assertEqual(compared, 2 * 3 * 3 * 5 * 6 * 5)

    def test_other_machines_and_broken_files(self):
        other = dict(self.device, processor="another one")
        for text, message in ((json.dumps(other), "another machine (another one"),
                              (self.text[:1000], "here-"), ("{}", "'name'"),
                              (json.dumps(dict(self.device, nibble_calibration=0)), "version"),
                              (json.dumps(dict(self.device, kernels=[1])), "'kernels' entry 0"),
                              (json.dumps(dict(self.device, barrier_s=-1)), "'barrier_s'")):
            with self.subTest(message=message):
                self.file.write_text(text)
                done = self.plan()
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_wrong_use(self):
        for arguments, message in ((("--validate", "--quick"), "--validate"),
                                   (("--validate", "-t", 64), "run nibble calibrate"),
                                   (("--out", "/nowhere/at/all.json"), "/nowhere/at"),
                                   (("--out", "/dev/null"), "/dev/null")):
            with self.subTest(arguments=arguments):
                done = nibble("calibrate", *arguments, environment=self.environment)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(message, done.stderr)
        self.assertTrue(os.path.exists("/dev/null"))


if __name__ == "__main__":
    unittest.main()
