#!/usr/bin/env python3
"""Imported classifiers as int8: calibrated on random pictures, then the codes of engines and witness are counted against the QAT graph's.

usage: imported_int8.py PROGRAM FILE.onnx ...    PROGRAM: build/octet; files of torchvision_networks.py. Needs numpy.
Exits 1 where a code differs.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RECIPE = """data: {{format: synthetic, image_size: {side}, synthetic_size: {size}, validation_fraction: 0.01, limit_test: 2,
  synthetic_classes: {classes}, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], workers: 0}}
model: {{name: onnx, onnx: "{file}"}}
train: {{epochs: 0, batch_size: 2}}
calibrate: {{images: 4, batch_size: 2}}
qat: {{epochs: 0, batch_size: 2}}
evaluate: {{engines: [cpu, reference], batch_size: 2}}
"""
WITNESS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "verify_checkpoint.py"


def run(words):
    answer = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout, answer.stderr


def check(program, file, folder):
    """(what there is to say, whether it is as it should be)."""
    code, out, err = run([program, "inspect", file])
    found = re.search(r"input \[3, (\d+), \1\], output \[(\d+), 1, 1\]", out)
    if code != 0 or not found:
        return "no classifier of square pictures: " + (err.strip().splitlines() or [out.splitlines()[0]])[-1][:150], True
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(side=found[1], classes=found[2], size=max(100, int(found[2])), file=file.resolve()))
    code, out, err = run([program, "train", recipe, "--out", folder / "run", "--quiet", "--device", "cpu"])
    if code not in (0, 1) or not (folder / "run" / "report.json").exists():
        return "failed: " + err.strip().splitlines()[-1], False
    comparison = json.loads((folder / "run" / "report.json").read_text())["comparison"]
    exact = [i for i, promised in enumerate(comparison["exact"]) if promised]
    differing = sum(layer["differing"][i] for layer in comparison["layers"] for i in exact)
    codes = sum(layer["codes"] for layer in comparison["layers"])
    checkpoint, picture, dump = folder / "run" / "int8.safetensors", folder / "picture.png", folder / "dump"
    run([sys.executable, "-c", PICTURE, picture, found[1]])
    code, out, err = run([program, "run", checkpoint, picture, "--engine", "cpu", "--dump", dump, "--quiet"])
    if code == 0:
        code, out, err = run([sys.executable, WITNESS, checkpoint, "--against", dump])
    witness = "0 differing codes" if code == 0 else "DIFFERS: " + (out + err).strip().splitlines()[-1]
    return f"{differing} of {codes} codes differ on cpu and reference; witness: {witness}", differing == 0 and code == 0


PICTURE = """
import struct, sys, zlib
import numpy as np
side = int(sys.argv[2])
rows = np.random.default_rng(1).integers(0, 256, (side, 3 * side), np.uint8)
part = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
open(sys.argv[1], "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
                              + part(b"IDAT", zlib.compress(b"".join(b"\\0" + row.tobytes() for row in rows))) + part(b"IEND", b""))
"""


def main():
    failed = 0
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            text, good = check(sys.argv[1], pathlib.Path(name), pathlib.Path(folder))
        failed += not good
        print(f"{pathlib.Path(name).name:36} {text}{'' if good else '   <-- WRONG'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main())
