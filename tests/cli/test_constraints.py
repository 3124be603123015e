"""`nibble run` with a form that the answer must be of."""
import json
import pathlib
import re
import tempfile
import unittest

from support import SOURCE, nibble, pulled

SHAKESPEARE = SOURCE / "models/shakespeare"


class Constraints(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, text):
        path = pathlib.Path(self.folder.name) / "form"
        path.write_text(text)
        return path

    def answer(self, *arguments, model=SHAKESPEARE):
        done = nibble("run", model, "--json", "--quiet", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_expressions_choices_and_grammars(self):
        out = self.answer("-p", "ROMEO:", "--regex", "[A-Z][a-z]{3,8}!", "--temp", 2, "--seed", 4)
        self.assertTrue(re.fullmatch("[A-Z][a-z]{3,8}!", out["text"]), out)
        self.assertEqual(out["finish_reason"], "stop")
        out = self.answer("-p", "ROMEO:", "--choice", "yes", "--choice", "no", "--seed", 4)
        self.assertIn(out["text"], ("yes", "no"))
        grammar = self.file('root ::= (word " "){2} word "."\nword ::= [a-z]{1,5}\n')
        out = self.answer("-p", "ROMEO:", "--grammar", grammar, "--seed", 4, "--temp", 1)
        self.assertTrue(re.fullmatch("([a-z]{1,5} ){2}[a-z]{1,5}\\.", out["text"]), out)

    def test_wrong_forms_are_refused_with_their_place(self):
        for flag, text, words in (
                ("--grammar", "root ::= a\n", ("rule 'a' (line 1)", "defined")),
                ("--grammar", 'root ::= "a"\nb ::= "b"\n', ("rule 'b' (line 2)", "not reached")),
                ("--grammar", 'root ::= root "a" | "b"\n', ("left recursive",)),
                ("--json-schema", '{"type": "array", "uniqueItems": true}', ("'uniqueItems'",)),
                ("--json-schema", "{", ("line 1",))):
            done = nibble("run", SHAKESPEARE, "-p", "a", flag, self.file(text))
            self.assertEqual(done.returncode, 2, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
        done = nibble("run", SHAKESPEARE, "-p", "a", "--regex", "(")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--regex", done.stderr)
        done = nibble("run", SHAKESPEARE, "-p", "a", "--regex", "a", "--choice", "b")
        self.assertEqual(done.returncode, 2)

    def test_schemas(self):
        model = pulled("SmolLM2-135M-Instruct.Q4_1.gguf")
        schema = self.file(json.dumps({
            "type": "object", "additionalProperties": False, "required": ["name", "born"],
            "properties": {"name": {"type": "string", "maxLength": 30},
                           "born": {"type": "integer", "minimum": 1000, "maximum": 2100}}}))
        for seed in range(3):
            out = self.answer("-p", "Who was Ada Lovelace?", "--json-schema", schema, "-n", 100,
                              "--temp", 2, "--seed", seed, model=model)
            self.assertEqual(out["finish_reason"], "stop")
            value = json.loads(out["text"])
            self.assertEqual(list(value), ["name", "born"])
            self.assertTrue(1000 <= value["born"] <= 2100)


if __name__ == "__main__":
    unittest.main()
