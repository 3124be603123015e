"""Published suites: JSON-Schema-Test-Suite (draft 7), JSONTestSuite, llama.cpp's grammars. Which
schemas are refused is committed beside this file (refused_schemas.txt; --write writes it)."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from canonical import canonical

HERE = pathlib.Path(__file__).parent
SHARED = pathlib.Path(os.environ.get("NIBBLE_SHARED") or HERE.parents[2] / "shared") / "data/grammar"
DRIVER = os.environ.get("NIBBLE_MATCH_LINES", "match_lines")


def ask(lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    out = subprocess.run([DRIVER], input=text, capture_output=True, text=True, timeout=600, check=True)
    return [json.loads(line) for line in out.stdout.split("\n") if line]


def spellings(schema, value):
    return [canonical(schema, value), canonical(schema, value, ascii_only=False), json.dumps(value)]


def need(path):
    if not path.exists():
        if os.environ.get("NIBBLE_REQUIRE_SHARED"):
            raise AssertionError(f"no shared data: {path}")
        raise unittest.SkipTest(f"no shared data: {path}")
    return path


def groups():
    """(file, group) of the suite, without those that need another document."""
    root = need(SHARED / "json-schema-test-suite/draft7")
    for path in sorted(root.rglob("*.json")):
        name = str(path.relative_to(root))
        if name == "refRemote.json":
            continue
        for group in json.loads(path.read_text()):
            yield name, group


def run_groups():
    all_groups = list(groups())
    # `format` alone is an annotation in draft 7: its own folder says what each means.
    lines = [{"kind": "schema", "text": json.dumps(group["schema"]), "draft": 7,
              "formats": name.startswith("optional/format/"),
              "accept": [s for test in group["tests"]
                         for s in spellings(group["schema"], test["data"])]}
             for name, group in all_groups]
    return list(zip(all_groups, ask(lines)))


class Suites(unittest.TestCase):
    def test_json_schema_test_suite(self):
        refused, required, compiled = [], 0, 0
        missed, wrong = [], []
        for (name, group), answer in run_groups():
            label = f"{name}: {group['description']}"
            required += not name.startswith("optional/")
            if "error" in answer:
                refused.append(f"{label}: {answer['error']}")
                continue
            compiled += not name.startswith("optional/")
            accepts = answer["accepts"]
            for i, test in enumerate(group["tests"]):
                ours = accepts[3 * i:3 * i + 3]
                if not test["valid"]:
                    if any(ours):
                        wrong.append(f"{label}: {test['description']}")
                elif not any(ours[:2]):
                    missed.append(f"{label}: {test['description']}")
        self.assertEqual(wrong, [])
        lists = HERE / "refused_schemas.txt"
        text = "".join(line + "\n" for line in refused)
        text += "\n# valid, and no answer\n" + "".join(line + "\n" for line in missed)
        if "--write" in sys.argv:
            lists.write_text(text)
        self.assertEqual(lists.read_text(), text)
        self.assertGreaterEqual(compiled, 150, f"of {required}")
        every = sum(1 for _ in groups())
        print(f"compiled {compiled} of {required} groups, with the optional ones "
              f"{every - len(refused)} of {every}", file=sys.stderr)

    def test_json_test_suite(self):
        folder = need(SHARED / "JSONTestSuite/test_parsing")
        cases, lines = [], []
        for path in sorted(folder.glob("*.json")):
            raw = path.read_bytes()
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                continue  # a line of JSON cannot hold it; the unit tests do bytes
            cases.append(path.name)
            lines.append(text)
        (answer,) = ask([{"kind": "json", "accept": lines}])
        self.assertGreater(len(cases), 280)
        for name, accepted in zip(cases, answer["accepts"]):
            if name.startswith("y_"):
                self.assertTrue(accepted, name)
            if name.startswith("n_"):
                self.assertFalse(accepted, name)
        (answer,) = ask([{"kind": "json_object", "accept": lines}])
        for name, text, accepted in zip(cases, lines, answer["accepts"]):
            if name.startswith("n_"):
                self.assertFalse(accepted, name)
            if name.startswith("y_object") and text.startswith("{") and text.endswith("}"):
                self.assertTrue(accepted, name)
            if accepted:
                self.assertIsInstance(json.loads(text), dict)

    def test_grammars_of_llama_cpp(self):
        folder = need(SHARED / "gbnf")
        texts = {
            "json.gbnf": (['{"a": [1, 2.5e3, "x\\n"]}'], ["[1]", '{"a": }', '{"a": 1']),
            "json_arr.gbnf": (['[\n1,\n"b"]'], ["{}"]),
            "arithmetic.gbnf": (["(1+2)*3=9\n"], ["1+=2\n"]),
            "list.gbnf": (["- a\n- b\n"], ["a\n"]),
            "chess.gbnf": (["1. e4 e5\n2. Nf3 Nc6\n"], ["1. e4 e5\n", "1. zz\n"]),
            "english.gbnf": (["Hello there."], []),
            "japanese.gbnf": (["こんにちは。"], ["hello"]),
            "c.gbnf": (["int main(){return 0;}"], ["int main({"]),
        }
        lines = [{"kind": "gbnf", "text": (folder / name).read_text(), "accept": good + bad,
                  "generate": 20} for name, (good, bad) in texts.items()]
        for (name, (good, bad)), answer in zip(texts.items(), ask(lines)):
            self.assertNotIn("error", answer, name)
            self.assertEqual(answer["accepts"], [True] * len(good) + [False] * len(bad), name)
            self.assertNotIn("<no end>", "".join(answer["generated"]), name)


if __name__ == "__main__":
    unittest.main(argv=[a for a in sys.argv if a != "--write"])
