#!/usr/bin/env python3
"""Renders generated templates with transformers' Jinja and with nibble, and prints differences.

Usage: tools/template_differential.py NIBBLE_RENDER [count] [seed]

NIBBLE_RENDER is build/.../bin/jinja_render: it reads one JSON object {"t": template, "c": context}
a line and answers with one line: "O" or "E", a tab, and the text with \\n, \\r and \\ escaped.
"""

import json
import random
import subprocess
import sys

from transformers_jinja import render

CONTEXT = {
    "n": 3, "z": 0, "neg": -7, "f": 2.5, "s": "Hello World", "t": "a,b,,c", "e": "", "u": "Ünï ß\n",
    "yes": True, "no": False, "nil": None, "l": [3, 1, 2], "m": ["b", "A", "c", "a"], "empty": [],
    "d": {"b": 1, "a": 2, "items": 3}, "dd": {"x": {"y": [1, {"z": "w"}]}, "none": None},
    "msgs": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo", "n": 1},
             {"role": "user", "content": None, "n": 2, "extra": [1]}],
}
STRINGS = ["''", "'a'", "'Hello'", "' pad '", "'a-b_c'", "'12'", "'3.5'", "'x\\ny'", "'ß'", "'%s'", "'{}'"]
FILTERS = ["abs", "capitalize", "count", "default('D')", "default('D', true)", "dictsort", "escape", "first",
           "float", "int", "int(7)", "items|list", "join", "join('-')", "last", "length", "list", "lower",
           "map('upper')|list", "map(attribute='role')|list", "map(attribute='n', default=9)|list", "max",
           "min", "reject('none')|list", "rejectattr('content')|list", "replace('l', 'L')",
           "replace('a', 'bb', 1)", "reverse|list", "round", "round(1)", "round(1, 'ceil')", "safe",
           "select|list", "select('odd')|list", "selectattr('n', 'eq', 2)|list",
           "selectattr('role', 'in', ['user'])|list", "sort", "sort(reverse=true)",
           "sort(case_sensitive=true)", "sort(attribute='n')", "string", "sum", "sum(attribute='n')", "title",
           "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "trim", "trim('a')", "truncate(8)",
           "truncate(5, true, '..')", "unique|list", "upper", "urlencode", "wordcount", "batch(2)|list",
           "batch(2, 'x')|list", "slice(2)|list", "slice(2, 'x')|list", "groupby('n')", "groupby('role')|list",
           "indent", "indent(2, true)", "center(9)", "format(1)", "attr('x')", "xmlattr", "filesizeformat",
           "striptags", "forceescape", "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false",
         "mapping", "sequence", "iterable", "callable", "odd", "even", "divisibleby 2", "eq 3", "ne 'a'",
         "gt 1", "lt(2)", "ge 3", "in [1, 3, 'a']", "sameas none", "lower", "upper", "escaped",
         "filter", "test", "equalto 2.5"]
METHODS = ["upper()", "lower()", "strip()", "strip('a ')", "lstrip()", "rstrip('d')", "split()", "split(',')",
           "split('l', 1)", "rsplit(' ', 1)", "startswith('H')", "endswith(('d', 'o'))", "replace('l', '')",
           "find('o')", "rfind('o')", "index('o')", "count('l')", "title()", "capitalize()", "swapcase()",
           "isdigit()", "isalpha()", "isupper()", "isspace()", "zfill(8)", "center(15, '*')", "ljust(13)~'|'",
           "rjust(13)", "partition(' ')", "rpartition('o')", "splitlines()", "join(['x', 'y'])", "format(1, n)",
           "removeprefix('He')", "removesuffix('ld')", "casefold()", "expandtabs()", "items()", "keys()|list",
           "values()|list", "get('a')", "get('q', 5)", "get('q')", "index(1)", "count(1)", "copy()",
           "append(1)", "update({})", "pop()", "nope()", "isalnum()"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SLICES = ["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[1:10:2]", "['a']", "['role']", "[9]", ".a", ".x", ".role",
          ".items", "[n]", "[s]", "[nil]", "[-2:]", "[:-1]", ".0", "['x'].y", "[1.0]", "[true]"]


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, items):
        return self.rng.choice(items)

    def atom(self):
        kind = self.rng.randrange(5)
        if kind == 0:
            return self.pick(["0", "1", "2", "-3", "10", "2.0", "0.1", "1e3", "true", "false", "none", "1_000"])
        if kind == 1:
            return self.pick(STRINGS)
        if kind == 2 and self.rng.random() < 0.3:
            return "missing"
        return self.pick(list(CONTEXT))

    def expr(self, depth):
        if depth == 0:
            return self.atom()
        sub = lambda: self.expr(depth - 1)
        kind = self.rng.randrange(14)
        if kind == 0:
            return f"({sub()} {self.pick(BINARY)} {sub()})"
        if kind == 1:
            return f"{sub()} {self.pick(BINARY)} {sub()}"
        if kind in (2, 3):
            return f"{sub()}|{self.pick(FILTERS)}"
        if kind == 4:
            return f"{sub()} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind in (5, 6):
            return f"{self.atom()}.{self.pick(METHODS)}"
        if kind in (7, 8):
            return f"{self.atom()}{self.pick(SLICES)}"
        if kind == 9:
            return f"({sub()} if {sub()} else {sub()})" if self.rng.random() < 0.8 else f"({sub()} if {sub()})"
        if kind == 10:
            return self.pick(["[{}, {}]", "({}, {})", "({},{})", "{{'k': {}, 1: {}}}"]).format(sub(), sub())
        if kind == 11:
            return f"{self.pick(['not ', '-', '+'])}{sub()}"
        if kind == 12:
            return f"({sub()})"
        return f"'{self.pick(['%s', '%5s|', '%-5s|', '%d', '%05.1f', '%x', '%r', '%(a)s', '%s-%s', '%g', '%e'])}' % {self.atom()}"

    def statement(self, depth):
        space = lambda: self.pick(["", "", " ", "\n", "  \n  ", "x"])
        tag = lambda body: "{%" + self.pick(["", "", "-", "+"]) + f" {body} " + self.pick(["", "", "-"]) + "%}"
        out = lambda: "{{" + self.pick(["", "", "-"]) + f" {self.expr(2)} " + self.pick(["", "", "-"]) + "}}"
        body = lambda: space() + (self.statement(depth - 1) if depth else out()) + space()
        kind = self.rng.randrange(13)
        if kind == 0:
            return tag(f"if {self.expr(2)}") + body() + tag("else") + body() + tag("endif")
        if kind == 1:
            return tag(f"if {self.expr(1)}") + body() + tag(f"elif {self.expr(1)}") + body() + tag("endif")
        if kind == 2:
            loop = self.pick(["loop.index", "loop.last", "loop.revindex0", "loop.previtem", "loop.nextitem",
                              "loop.length", "loop.cycle('a', 'b')", "loop.changed(i)", "loop.first", "loop.depth"])
            return tag(f"for i in {self.expr(1)}") + "{{ i }}{{ " + loop + " }}" + body() + tag("endfor")
        if kind == 3:
            return (tag(f"for i in {self.expr(1)} if {self.pick(['i', 'i != 1', 'i is string', 'loop'])}") + body()
                    + tag("else") + body() + tag("endfor"))
        if kind == 4:
            return tag(f"set v = {self.expr(2)}") + space() + "{{ v }}"
        if kind == 5:
            return tag(self.pick(["set v", "set v | upper", "set v | trim | length"])) + body() + tag("endset") + "[{{ v }}]"
        if kind == 6:
            return (tag(f"macro m(a, b={self.expr(1)})") + "{{ a }}{{ b }}" + self.pick(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}"])
                    + body() + tag("endmacro") + "{{ m(" + self.pick(["1", "", "1, 2", "a=n", "b=1", "1, 2, 3", "q=1", "*l", "**d", "1, a=2"]) + ") }}")
        if kind == 7:
            return "{# " + self.pick(["c", "\n", "-"]) + self.pick([" #}", " -#}\n", "#}\n"])
        if kind == 8:
            return (tag("set ns = namespace(v=0)") + tag(f"for i in {self.pick(['l', 'm', 'msgs', 'd', 's'])}")
                    + tag(f"set ns.v = {self.pick(['ns.v + 1', 'i', 'loop.index0', self.expr(1)])}")
                    + self.pick(["", tag("if loop.index > 1") + tag(self.pick(["break", "continue"])) + tag("endif")])
                    + "{{ ns.v }}" + tag("endfor"))
        if kind == 9:
            return tag(f"with v = {self.expr(1)}, w = n") + body() + "{{ v }}{{ w }}" + tag("endwith")
        if kind == 10:
            return tag(f"for a, b in {self.pick(['d.items()', 'd|dictsort', 'd|items', '[[1, 2], [3, 4]]', 'l', 'dd.items()'])}") + "{{ a }}={{ b }}" + tag("endfor")
        if kind == 11:
            return tag("generation") + body() + tag("set n = 99") + tag("endgeneration") + "{{ n }}"
        return tag(f"filter {self.pick(['upper', 'trim', 'indent(2)|upper', 'length'])}") + body() + tag("endfilter")

    def scopes(self, depth):
        """Statements that assign, shadow and read a few names: who sees which value when."""
        name = lambda: self.pick(["n", "s", "v", "w"])
        body = lambda: "".join(self.scopes(depth - 1) for _ in range(self.rng.randrange(1, 4))) if depth else ""
        kind = self.rng.randrange(12 if depth else 4)
        if kind < 2:
            return "[{{ " + name() + " }}]"
        if kind < 4:
            return f"{{% set {name()} = {self.pick(['1', '2', name(), name() + ' ~ 1'])} %}}"
        if kind == 4:
            return f"{{% for {name()} in {self.pick(['[7, 8]', 'empty', 'l'])} %}}{body()}{{% else %}}{body()}{{% endfor %}}"
        if kind == 5:
            return f"{{% if {self.pick(['yes', 'no', name()])} %}}{body()}{{% else %}}{body()}{{% endif %}}"
        if kind == 6:
            return f"{{% with {name()} = {name()} %}}{body()}{{% endwith %}}"
        if kind == 7:
            return f"{{% set {name()} %}}{body()}{{% endset %}}"
        if kind == 8:
            return f"{{% macro m({name()}={name()}) %}}{body()}{{% endmacro %}}{body()}{{{{ m() }}}}{{{{ m(5) }}}}"
        if kind == 9:
            return f"{{% macro c() %}}{{{{ caller({name()}) }}}}{{% endmacro %}}{{% call({name()}) c() %}}{body()}{{% endcall %}}"
        if kind == 10:
            return f"{{% filter upper %}}{body()}{{% endfilter %}}"
        return f"{{% generation %}}{body()}{{% endgeneration %}}"

    def template(self):
        if self.rng.random() < 0.3:
            return "".join(self.scopes(3) for _ in range(self.rng.randrange(1, 5)))
        space = lambda: self.pick(["", "\n", " ", "a\n", "  ", "\n\n"])
        parts = [self.statement(self.rng.randrange(3)) if self.rng.random() < 0.5 else "{{ " + self.expr(3) + " }}"
                 for _ in range(self.rng.randrange(1, 4))]
        return space() + space().join(parts) + space()


class Nibble:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context):
        line = json.dumps({"t": template, "c": context}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().rstrip("\n")
        kind, _, text = answer.partition("\t")
        text = text.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\0", "\\")
        return kind, text


def is_known_difference(text, message):
    """What nibble does otherwise on purpose, or what prints an address.

    jinja2 folds the slice of a constant that has none, as in {{ 1[2:] }}, to undefined where it can.
    """
    known = ("64 bits", "complex", "object is not subscriptable")
    return " at 0x" in text or any(part in message for part in known)


def main():
    nibble = Nibble(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    differences = outputs = 0
    for i in range(count):
        template = Generator(random.Random(seed * 1_000_003 + i)).template()
        kind, text = render(template, CONTEXT)
        our_kind, our_text = nibble.render(template, CONTEXT)
        outputs += kind == "ok"
        same = our_text == text if kind == "ok" and our_kind == "O" else (kind != "ok") == (our_kind == "E")
        if same or is_known_difference(text, our_text):
            continue
        differences += 1
        print(f"--- {seed}/{i}: {template!r}\n  jinja2 {kind}: {text!r}\n  nibble {our_kind}: {our_text!r}")
    print(f"{count} templates, {outputs} rendered, {differences} differences")
    return differences > 0


if __name__ == "__main__":
    sys.exit(main())
