#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Top-1 of a float network and its int8 forms by octet, NNCF and ONNX Runtime, on the same pixels: table.py calls it.

  accuracy.py NAME.onnx FOLDER --wnids FILE HOLDOUT.tar...      FOLDER holds octet.safetensors, nncf.xml, ort.onnx, ...

octet's library (OCTET_RUNTIME) reads each picture; all networks get what it read. Prints one line of JSON:
for each hold-out and network a string of 0 and 1, one a picture.
"""
import argparse
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tools" / "python"))
import numpy as np  # noqa: E402
import octet  # noqa: E402
import onnxruntime  # noqa: E402
import openvino  # noqa: E402
import pictures  # noqa: E402

BATCH = 25


def onnxruntime_call(file):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda pixels, values: session.run(None, {name: values})[0]


def openvino_call(file):
    compiled = openvino.Core().compile_model(str(file), "CPU")
    return lambda pixels, values: compiled(values)[0]


def calls_of(network, folder):
    """Functions of uint8 pixels and float32 inputs to logits, of all that is there."""
    ours = octet.load(folder / "octet.safetensors", engine="cpu", max_batch=BATCH)
    calls = {"float": onnxruntime_call(network), "octet": lambda pixels, values: ours(pixels)}
    if (folder / "nncf.xml").exists():
        calls["nncf"] = openvino_call(folder / "nncf.xml")
    for tool in ("ort", "ort_channel"):
        if (folder / f"{tool}.onnx").exists():
            calls[tool] = onnxruntime_call(folder / f"{tool}.onnx")
    return ours, calls


def right_answers(ours, calls, settings, files, classes):
    right = {tool: "" for tool in calls}
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(files), BATCH):
            part = files[first:first + BATCH]
            pixels = []
            for name, read in part:
                place = pathlib.Path(folder) / pathlib.Path(name).name
                place.write_bytes(read())
                pixels.append(ours.read_picture(place))
                place.unlink()
            pixels = np.stack(pixels)
            values = np.stack([pictures.to_input(image, settings) for image in pixels])
            labels = np.array([classes[pathlib.Path(name).parent.name] for name, _ in part])
            for tool, call in calls.items():
                right[tool] += "".join("01"[int(same)] for same in call(pixels, values).argmax(1) == labels)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("holdout", type=pathlib.Path, nargs="+")
    parser.add_argument("--wnids", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=int, default=1000000)
    options = parser.parse_args()
    classes = {name: index for index, name in enumerate(options.wnids.read_text().split())}
    settings = json.loads(options.network.with_suffix(".json").read_text())
    ours, calls = calls_of(options.network, options.folder)
    answers = {}
    for holdout in options.holdout:
        files = pictures.evenly_spaced(pictures.files_of(holdout), options.limit)
        answers[holdout.stem] = right_answers(ours, calls, settings, files, classes)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
