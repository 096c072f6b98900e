#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other runtimes make of an exported network, on the pictures as octet's engine sees them: top-1, predictions that differ, and
McNemar's mid-p value of those that only one of the two has right.

usage: exported_accuracy.py OCTET CHECKPOINT IMAGES WORK [--count N] [--classes FILE] [--profiles NAME,...]
IMAGES: CIFAR-10's test_batch.bin; Fashion-MNIST's t10k-images-idx3-ubyte.gz with the labels beside it; or a folder with a folder of
pictures a class, whose names --classes lists in the order of the labels. WORK is for pictures and ONNX files. Needs numpy, Pillow,
onnx, onnxruntime, openvino, safetensors. Exits 1 where onnx.checker refuses a file or top-1 is more than 0.1 points off. The codes of
edges are counted by `octet compare RUN --against onnxruntime`.
"""
import argparse
import gzip
import math
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import openvino
from PIL import Image
from safetensors.numpy import load_file

POINTS = 0.1


def write_pictures(images, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for i, pixels in enumerate(images):
        path = folder / f"{i:05}.png"
        if not path.exists():
            Image.fromarray(pixels.squeeze()).save(path)
        yield path


def read_test_set(path, work, classes):
    """Files and labels."""
    if path.is_dir():
        if classes is None:
            sys.exit(f"{path}: --classes names the file with a class folder a line")
        names = {name: label for label, name in enumerate(pathlib.Path(classes).read_text().split())}
        files = sorted(file for file in path.glob("*/*") if file.parent.name in names)
        return files, np.array([names[file.parent.name] for file in files])
    if path.name.endswith(".bin"):
        records = np.fromfile(path, np.uint8).reshape(-1, 3073)
        images, labels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]
    else:
        images = np.frombuffer(gzip.open(path).read()[16:], np.uint8).reshape(-1, 28, 28, 1)
        labels = np.frombuffer(gzip.open(path.with_name(path.name.replace("images-idx3", "labels-idx1"))).read()[8:], np.uint8)
    return list(write_pictures(images, work / "pictures")), labels


def octet_logits(options, files):
    """Pictures [N, H, W, C] and logits [N, classes] of octet's engine."""
    dump = options.work / "dump.safetensors"
    subprocess.run([options.octet, "run", options.checkpoint, *files, "--engine", "cpu", "--dump", dump, "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    tensors = load_file(dump)
    logits = [value for name, value in tensors.items() if name.startswith("values/")]
    if len(logits) != 1:
        sys.exit(f"{options.checkpoint}: has {len(logits)} outputs of reals; expected a classifier")
    return tensors["images"], logits[0].reshape(len(files), -1)


def export(options, profile):
    """The file, or None where the profile cannot have this network."""
    path = options.work / f"{profile}.onnx"
    written = subprocess.run([options.octet, "export", options.checkpoint, "--onnx", path, "--profile", profile, "--quiet"],
                             capture_output=True, text=True, check=False)
    if written.returncode != 0:
        print(f"{profile}: {written.stderr.strip()}")
        return None
    onnx.checker.check_model(str(path), full_check=True)
    return path


def onnxruntime_program(path, optimize):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]


def openvino_program(path):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: compiled(x)[0]


def programs_of(path, profile):
    return {f"ONNX Runtime, {profile}": onnxruntime_program(path, True),
            f"ONNX Runtime unfused, {profile}": onnxruntime_program(path, False),
            f"OpenVINO, {profile}": openvino_program(path)}


def real_images(path, images):
    """(pixel / 255 - mean) / std in float32, [N, C, H, W]."""
    about = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    mean, std = (np.float32(about[key].split()) for key in ("mean", "std"))
    return np.ascontiguousarray(((images.astype(np.float32) / np.float32(255) - mean) / std).transpose(0, 3, 1, 2))


def mid_p(only_a, only_b):
    """Of McNemar's exact test."""
    n, k = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    weight = lambda i: math.exp(math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2))
    return min(1.0, 2 * sum(weight(i) for i in range(k)) + weight(k))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("octet", "checkpoint", "images", "work"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--count", type=int, help="only the first so many pictures, of folders every n-th")
    parser.add_argument("--classes")
    parser.add_argument("--profiles", default="onnxruntime")
    options = parser.parse_args()
    options.octet = options.octet.resolve()  # Path drops the "./" that a program here needs
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = arguments()
    files, labels = read_test_set(options.images, options.work, options.classes)
    step = max(1, len(files) // (options.count or len(files))) if options.images.is_dir() else 1
    files, labels = files[::step][:options.count], labels[::step][:options.count]
    paths = {profile: path for profile in options.profiles.split(",") if (path := export(options, profile)) is not None}
    programs = {name: program for profile, path in paths.items() for name, program in programs_of(path, profile).items()}
    right, differing, octet_right = {name: [] for name in programs}, dict.fromkeys(programs, 0), []
    chunk = 250 if Image.open(files[0]).width < 64 else 16
    for start in range(0, len(files), chunk):
        images, ours = octet_logits(options, files[start:start + chunk])
        expected = labels[start:start + chunk]
        octet_right.append(ours.argmax(1) == expected)
        x = real_images(next(iter(paths.values())), images)
        for name, program in programs.items():
            predicted = program(x).argmax(1)
            right[name].append(predicted == expected)
            differing[name] += int((predicted != ours.argmax(1)).sum())
    ours, good = np.concatenate(octet_right), True
    print(f"{options.checkpoint.name}: octet's engine cpu {100 * ours.mean():.2f} % of {len(ours)} pictures", flush=True)
    for name in programs:
        theirs = np.concatenate(right[name])
        only_ours, only_theirs = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
        good &= abs(theirs.mean() - ours.mean()) * 100 <= POINTS
        print(f"  {name:36} {100 * theirs.mean():.2f} %  {differing[name]} predictions differ, {only_ours} right in octet only, "
              f"{only_theirs} there only, p {mid_p(only_ours, only_theirs):.2f}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
