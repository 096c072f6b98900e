#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What octet makes of torchvision's networks and of detectors, as a table in Markdown (src/net/onnx/README.md has its figures): float outputs beside ONNX
Runtime's, and codes of int8 in which engines and witness differ.

usage: import_table.py FOLDER BUILD [NETWORK ...]
BUILD: octet's, with `ninja octet onnx_logits onnx_int8`. FOLDER gets the ONNX files and results.json; what is there is not made
again, so that a run that was stopped goes on. Needs what torchvision_networks.py needs, onnxruntime, safetensors and Pillow.
Outputs are those of two pictures of normal noise; int8 is calibrated on four random pictures and compared on one more. Exits 1
where a code differs or outputs differ by more than 1e-4, and by more than 1e-4 of the largest.
"""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime
import torchvision_networks as networks
from PIL import Image
from safetensors.numpy import load_file

LIMIT = 1e-4
BATCH = 2
WITNESS = pathlib.Path(__file__).resolve().parents[3] / "tools" / "verify_checkpoint.py"


def run(*words):
    """(exit code, last line of stderr)."""
    answer = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    return answer.returncode, (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]


def expected(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    one_by_one = given.shape[0] == 1  # exported for one picture
    runs = [session.run(None, {given.name: part}) for part in (x[:, None] if one_by_one else [x])]
    return np.concatenate([np.concatenate(outputs).reshape(-1) for outputs in zip(*runs)])


def float_outputs(name, path, build, folder):
    side = networks.ALL[name]
    random = np.random.default_rng(7)
    x = random.standard_normal((BATCH, 3, side, side), np.float32)
    if name in networks.YOLOX:  # trained on pixels
        x = random.integers(0, 256, x.shape).astype(np.float32)
    (folder / "input.f32").write_bytes(x.tobytes())
    code, error = run(build / "bin" / "onnx_logits", path, folder / "input.f32", folder / "output.f32")
    if code in (2, 3):
        return {"refused": error.replace(f"{path}: ", "")}
    if code != 0:
        return {"failed": error}
    ours, theirs = np.fromfile(folder / "output.f32", np.float32), expected(path, x)
    if ours.shape != theirs.shape:
        return {"failed": f"{ours.size} outputs, ONNX Runtime has {theirs.size}"}
    return {"difference": float(np.abs(ours - theirs).max()), "largest": float(np.abs(theirs).max())}


def int8_codes(name, path, build, folder):
    side, checkpoint, picture = networks.ALL[name], folder / "int8.safetensors", folder / "picture.png"
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (side, side, 3), np.uint8)).save(picture)
    code, error = run(build / "bin" / "onnx_int8", path, checkpoint)
    if code != 0:
        return {"int8_failed": error}
    dumps = {engine: folder / f"{engine}.dump" for engine in ("cpu", "reference")}
    for engine, dump in dumps.items():
        code, error = run(build / "octet", "run", checkpoint, picture, "--engine", engine, "--dump", dump, "--quiet")
        if code != 0:
            return {"int8_failed": f"{engine}: {error}"}
    cpu, reference = (load_file(dump) for dump in dumps.values())
    differing = sum(int((cpu[key] != reference[key]).sum()) for key in reference)
    code, error = run(sys.executable, WITNESS, checkpoint, "--against", dumps["cpu"])
    return {"codes": sum(value.size for value in reference.values()), "differing": differing, "witness": code == 0,
            "witness_says": error if code else ""}


def row(name, exporter, folder, build):
    path = folder / f"{name}.{exporter}.onnx"
    if not path.exists():
        try:
            networks.export(name, exporter, path)
        except Exception as error:  # whatever an exporter cannot do is no fault of octet
            path.unlink(missing_ok=True)
            return {"refused": f"not exported: {str(error).splitlines()[0][:90]}"}
    found = float_outputs(name, path, build, folder)
    return found | int8_codes(name, path, build, folder) if "difference" in found else found


def good(found):
    if "refused" in found:
        return True
    return found.get("difference", 1) <= LIMIT * max(1.0, found.get("largest", 0)) and found.get("differing") == 0 and found["witness"]


def text(name, exporter, found):
    if "difference" not in found:
        return f"| {name} | {exporter} | {found.get('refused') or 'FAILED: ' + found['failed']} | | | |"
    int8 = found.get("int8_failed") or (f"{found['differing']} of {found['codes']:,} differ; witness "
                                        + ("0" if found["witness"] else f"DIFFERS: {found['witness_says']}"))
    return (f"| {name} | {exporter} | {found['difference']:.1e} | {found['difference'] / found['largest']:.1e} | {found['largest']:.3g} "
            f"| {int8} |")


def main():
    folder, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    results = folder / "results.json"
    found = json.loads(results.read_text()) if results.exists() else {}
    wanted = sys.argv[3:] or list(networks.NETWORKS) + list(networks.YOLOX if "YOLOX_ONNX" in os.environ else [])
    rows = [(name, exporter) for name in wanted for exporter in (("file",) if name in networks.YOLOX else networks.EXPORTERS)]
    for name, exporter in rows:
        key = f"{name}.{exporter}"
        if key not in found:
            found[key] = row(name, exporter, folder, build)
            results.write_text(json.dumps(found, indent=1))
            print(key, found[key], file=sys.stderr, flush=True)
    print("| network | exporter | largest difference | of the largest output | largest output | int8: codes of cpu and reference |")
    print("|---|---|---|---|---|---|")
    for name, exporter in rows:
        print(text(name, exporter, found[f"{name}.{exporter}"]))
    return 0 if all(good(found[f"{name}.{exporter}"]) for name, exporter in rows) else 1


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main())
