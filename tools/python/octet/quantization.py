# SPDX-License-Identifier: Apache-2.0
"""octet.quantize: int8 of a float network from Python. It starts the program `octet` (docs/QUANTIZE.md), which has LibTorch."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import types

import numpy as np

from octet import Error

_FILES = (".npz", ".npy", ".safetensors")  # of tensors; other paths are images


def _program():
    """OCTET_PROGRAM's program, the one of this module's installation, or the one in PATH."""
    named = os.environ.get("OCTET_PROGRAM")
    installed = pathlib.Path(__file__).resolve().parents[4] / "bin" / "octet"
    found = named or (str(installed) if installed.exists() else shutil.which("octet"))
    if not found or not os.access(found, os.X_OK):
        raise Error(2, f"octet.quantize starts the program octet, and there is none {f'at {named}' if named else 'in PATH'}: install a "
                       "build with training, or set OCTET_PROGRAM to its build/octet")
    return found


def _array(data):
    """[N, C, H, W] of one array, or of a list of such arrays or of single [C, H, W]. Reals become float32."""
    if isinstance(data, list):
        if len({(part.ndim, part.shape[-3:]) for part in data}) > 1:
            shapes = ", ".join(sorted({str(list(part.shape)) for part in data})[:4])
            raise ValueError(f"quantize: arrays of different shapes: {shapes}; the network reads one, [N, C, H, W] or [C, H, W]")
        data = np.concatenate(data) if data[0].ndim == 4 else np.stack(data)
    return data.astype(np.float32) if data.dtype.kind == "f" else data


def _words(options):
    """Keywords as options of the program: image_size=64 is --image-size 64, mean=[0.5, 0.4, 0.3] is --mean 0.5,0.4,0.3."""
    for name, value in options.items():
        if value is None or value is False:
            continue
        yield "--" + name.replace("_", "-")
        if value is not True:
            yield ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _run(words, inputs=None):
    """The program's JSON. Its lines on stderr are shown as they come, until the one that an Error says; there the file `inputs` is
    called so, and options are called as keywords."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        failure = ""
        try:
            for line in process.stderr:
                if failure or line.startswith("octet: "):
                    failure += line
                else:
                    print(line, end="", file=sys.stderr, flush=True)
            answer = process.stdout.read()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            raise
    if process.returncode != 0:
        message = failure.removeprefix("octet: ").strip() or f"the program octet ended with {process.returncode}"
        message = message.replace(inputs, "inputs") if inputs else message
        raise Error(process.returncode, re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), message))
    return types.SimpleNamespace(**json.loads(answer))


def quantize(network, data, **options):
    """Makes int8 of a float network, an ONNX file or with weights=FILE a network of the zoo, without labels or training.

        made = octet.quantize("net.onnx", "photos/", preset="imagenet")     # images: a path, or a list of paths
        made = octet.quantize("net.onnx", batch, repair="fast")             # or the network's inputs
        logits = octet.load(made.checkpoint)(...)

    Inputs are an array [N, C, H, W] as the float network reads it, float32 (normalized) or uint8 (0 to 255); a list of such arrays
    or of single [C, H, W]; or a .npz, .npy or .safetensors file. Keywords are the options of `octet quantize` (docs/QUANTIZE.md):
    preset, out, repair, onnx, profile, limit, method, activation, outputs, html, force and the others. Progress goes to sys.stderr
    unless quiet=True.

    Returns what `octet quantize --json` prints: checkpoint (the file), outputs (sqnr_db, lost and same_class of each), layers,
    codes and the others, as attributes. Raises Error with the program's message and exit code.
    """
    words = [_program(), "quantize", os.fspath(network), "--json", *_words(options)]
    if isinstance(data, (str, os.PathLike)):
        return _run([*words, "--tensors" if os.fspath(data).endswith(_FILES) else "--images", os.fspath(data)])
    data = np.asarray(data) if hasattr(data, "__array__") else list(data)
    if len(data) == 0:
        raise ValueError("quantize: no images and no inputs; 100 to 300 are usual")
    if all(isinstance(part, (str, os.PathLike)) for part in data):
        return _run([*words, "--images", *map(os.fspath, data)])
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "inputs.npy")
        np.save(file, _array(data if isinstance(data, np.ndarray) else [np.asarray(part) for part in data]), allow_pickle=False)
        return _run([*words, "--tensors", file], file)
