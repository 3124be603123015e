"""Folders that nibble quantised mean to NumPy what they mean to nibble: tools/check_packed_folder.py
for every layout whose numbers NumPy has. numpy_folders.py NIBBLE"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("NIBBLE_SHARED", ROOT.parent / "shared")) / "data"
CALIB = ("--calib-length", "64", "--calib-sequences", "8")
RECIPES = (
    ("gptq", "--group", "32", "--method", "gptq", "--act-order", "--calib"),
    ("gptq", "--group", "64", "--asym", "--method", "smoothquant+gptq", "--calib"),
    ("gptq_v2", "--group", "32", "--asym"),
    ("awq", "--group", "32", "--method", "awq", "--clip", "--calib"),
    ("w4a16-g32",), ("w4a16-asym-g32", "--method", "gptq", "--calib"), ("w8a16-g32",),
    ("w8a8",), ("llm-int8", "--method", "llm-int8"),
)  # fmt: skip


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8")
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def main(nibble):
    source = DATA / "models" / "hf-320" / "qwen2"
    if not source.exists():
        print(f"skipped: {source} is not there")
        return 1 if os.environ.get("NIBBLE_REQUIRE_SHARED") else 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model, text = folder / "model", folder / "text.txt"
        model.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(source / name, model / name)
        shutil.copyfile(DATA / "tokenizers/neural-api/tiny_bpe_split_qwen2_tokenizer.json",
                        model / "tokenizer.json")
        text.write_text("".join(f"the quick brown fox {i}\n" for i in range(3000)))
        for recipe in RECIPES:
            calibrated = (text, *CALIB) if recipe[-1] == "--calib" else ()
            run(nibble, "quantize", model, folder / "out", "--to", *recipe, *calibrated,
                "--no-quality", "--force", "--quiet")
            run(nibble, "quantize", folder / "out", folder / "twin", "--to", "f32",
                "--no-quality", "--force", "--quiet")
            print(run(sys.executable, ROOT / "tools" / "check_packed_folder.py", folder / "out",
                      folder / "twin").strip(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
