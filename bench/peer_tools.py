"""A llama.cpp build's own tools (llama-bench, llama-batched-bench, llama-perplexity), also
ik_llama.cpp's: one of compare.py's peers."""

import json
import pathlib
import re
import subprocess
import tempfile

import peer


class ToolsPeer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = arguments.peer_bench.resolve()
        if self.folder.is_file():
            self.folder = self.folder.parent
        self.name = arguments.peer_name or f"tools in {self.folder.name}"
        self.flags = "-rtr" if arguments.peer_repack else ""
        self.settings = {}
        self.help = None

    def tool(self, name, *words):
        path = self.folder / name
        model = pathlib.Path(self.arguments.model).resolve()
        command = [str(path), "-m", str(model), *map(str, words)]
        with tempfile.TemporaryDirectory() as folder:  # some builds leave a log where they run
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder,
                                  stdin=subprocess.DEVNULL, errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-600:]}")
        return done.stdout, done.stderr

    def bench(self, settings, *words):
        """llama-bench has no switches, only values; it warms up by itself."""
        repack = ["-rtr", 1] if self.arguments.peer_repack else []
        out, _ = self.tool("llama-bench", "-r", 1, "-o", "json", "-t", settings["threads"], "-fa",
                           int(settings["flash"]), "-ub", settings["ubatch"], *repack, *words)
        rows = json.loads(out[out.index("["):])
        return rows[-1]["avg_ts"]

    def switches(self, settings):
        words = ["-t", settings["threads"], "-ub", settings["ubatch"]]
        if self.arguments.peer_repack:
            words.append("-rtr")
        return words + self.flash_words(settings["flash"])

    def flash_words(self, on):
        """-fa takes on or off in newer builds, and was a switch before."""
        if self.help is None:
            done = subprocess.run([str(self.folder / "llama-batched-bench"), "--help"],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  errors="replace")
            self.help = done.stdout + done.stderr
        if re.search(r"flash-attn.*on\|off", self.help):
            return ["-fa", "on" if on else "off"]
        return ["-fa"] if on else []

    def batched(self, settings, sequences, steps):
        """Generation behind a prompt of `depth` tokens; llama-bench begins at depth 0."""
        depth = self.arguments.depth
        tokens = (depth + steps) * sequences
        out, err = self.tool("llama-batched-bench", "-c", tokens + 64 * sequences, "-b", 2048,
                             "-npp", depth, "-ntg", steps, "-npl", sequences,
                             *self.switches(settings))
        # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |
        for line in (out + err).splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if len(cells) >= 8 and cells[2] == str(sequences):
                return float(cells[7])
        raise RuntimeError(f"llama-batched-bench printed no row: {(out + err)[-600:]}")

    def rate(self, test, settings):
        a = self.arguments
        if test == "prefill":
            return self.bench(settings, "-p", a.prompt, "-n", 0)
        if test == "generation":
            return self.batched(settings, 1, a.generate)
        return self.batched(settings, a.batch, a.batch_steps)

    def choices(self, test):
        return peer.choices(test, self.arguments)

    def use(self, test, settings):
        self.settings[test] = settings

    def run(self, test):
        return self.rate(test, self.settings[test])

    def perplexity(self, windows, size):
        settings = {"threads": peer.cores(), "ubatch": 512, "flash": False}
        text = pathlib.Path(self.arguments.text).resolve()
        out, err = self.tool("llama-perplexity", "-f", text, "-c", size, "-b", 512, "--chunks",
                             windows, *self.switches(settings))
        found = re.search(r"Final estimate: PPL.*=\s*([0-9.]+)\s*\+/-", out + err)
        if not found:
            raise RuntimeError(f"llama-perplexity gave no estimate: {(out + err)[-600:]}")
        return float(found.group(1))
