"""GET /plan: the cost model's own example, the model that is served, and wrong arguments."""

import unittest
import urllib.parse

from server_support import ServerTest


class Plan(ServerTest):
    def plan(self, **arguments):
        return self.server.get("/plan?" + urllib.parse.urlencode(arguments))

    def test_without_arguments_it_is_the_example(self):
        answer = self.server.get("/plan")
        self.assertEqual(answer.status, 200)
        plan = answer.json
        self.assertEqual([f"{1e3 * row['step_s']:.1f}" for row in plan["rows"]],
                         ["9.3", "7.7", "6.5", "4.9", "5.1", "3.5"])
        row = plan["rows"][0]
        self.assertEqual((row["model"], row["device"], row["batch"], row["context"]),
                         ("llama-3-8b", "h100", 16, 4096))
        self.assertEqual(f"{row['memory_total_bytes'] / 1e9:.2f}", "24.65")
        self.assertIs(row["fits"], True)
        self.assertEqual(plan["pairs"], plan["rows"])
        self.assertIn("rtx-4090", plan["choices"]["devices"])

    def test_one_pair_beside_what_it_was(self):
        plan = self.plan(model="llama-3-8b", device="h100", weights="int8", kv="fp8", batch=32,
                         context=8192).json
        self.assertEqual(len(plan["rows"]), 1)
        row = plan["rows"][0]
        self.assertEqual(f"{1e3 * row['step_s']:.2f}", "9.71")
        self.assertEqual(f"{1e3 * row['was']['step_s']:.2f}", "18.92")
        self.assertAlmostEqual(row["speedup"], row["was"]["step_s"] / row["step_s"], places=12)
        self.assertEqual(len(plan["pairs"]), 6)

    def test_the_served_model(self):
        name = self.server.get("/v1/models").json["data"][0]["id"]
        plan = self.plan(model=name, device="raspberry-pi-5", batch="1,2", context="100").json
        self.assertEqual(plan["counting"], "true")
        self.assertEqual([row["weights"] for row in plan["rows"]], ["own"] * 4)
        memory = self.server.status()["engine"]["weight_bytes_per_step"]
        # The engine counts padding of panels and what it holds of norms; the model's own bytes are
        # most of it.
        self.assertLess(abs(plan["rows"][0]["weight_bytes"] / memory - 1), 0.1)

    def test_wrong_arguments_are_named(self):
        for query, param in (("model=nothing", "model"), ("device=h1000", "device"),
                             ("devices=0", "devices"), ("weights=int5", "weights"),
                             ("kv=bf15", "kv"), ("batch=x", "batch"), ("batch=", "batch"),
                             ("context=-1", "context"), ("context=1e3", "context"),
                             ("price_per_hour=much", "price_per_hour"), ("counting=no", "counting"),
                             ("nominal=2", "nominal"), ("act=f64", "act"), ("colour=red", "colour"),
                             ("batch=1&batch=2", "batch"), ("model=/etc/passwd", "model"),
                             ("device=%2Fetc%2Fpasswd", "device"),
                             ("weights=own", "weights"), ("batch=%00", "batch"),
                             ("context=%zz", "context"),
                             ("batch=" + ",".join("1" * 64) + "&context=" + ",".join("1" * 64),
                              "batch")):
            with self.subTest(query=query):
                answer = self.server.get("/plan?" + query)
                self.assertEqual(answer.status, 400)
                error = answer.json["error"]
                self.assertEqual(error["param"], param)
                self.assertEqual(error["type"], "invalid_request_error")
                self.assertIn(param, error["message"])

    def test_here_is_this_machine_once_it_is_calibrated(self):
        answer = self.plan(device="here")
        if answer.status == 200:  # whoever runs this has calibrated
            self.assertEqual(answer.json["device"]["name"], "here")
            return
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.json["error"]["param"], "device")
        self.assertIn("run nibble calibrate", answer.json["error"]["message"])

    def test_method(self):
        self.assertEqual(self.server.post("/plan", {}).status, 405)


if __name__ == "__main__":
    unittest.main()
