#!/usr/bin/env python3
"""Counts what other runtimes make of an exported network: top-1 and predictions that differ from octet's engine.

usage: exported_accuracy.py OCTET CHECKPOINT TEST_IMAGES FOLDER [COUNT]
TEST_IMAGES: CIFAR-10's test_batch.bin, or Fashion-MNIST's t10k-images-idx3-ubyte.gz with the labels beside it. FOLDER is
for pictures and ONNX files. Needs numpy, Pillow, onnx, onnxruntime, openvino, safetensors. Exits 1 where onnx.checker
refuses a file, top-1 is more than 0.1 points off, or a code of ONNX Runtime is more than 1 off on an edge.
"""
import gzip
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import openvino
from PIL import Image
from safetensors.numpy import load_file

CHUNK = 250
POINTS = 0.1


def read_test_set(path):
    """uint8 [N, H, W, C] and labels."""
    if path.name.endswith(".bin"):
        records = np.fromfile(path, np.uint8).reshape(-1, 3073)
        return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]
    labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    images = np.frombuffer(gzip.open(path).read()[16:], np.uint8).reshape(-1, 28, 28, 1)
    return images, np.frombuffer(gzip.open(labels).read()[8:], np.uint8)


def write_pictures(images, folder):
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for i, pixels in enumerate(images):
        names.append(folder / f"{i:05}.png")
        if not names[-1].exists():
            Image.fromarray(pixels.squeeze()).save(names[-1])
    return names


def octet_logits(octet, checkpoint, names, dump):
    """Logits of octet's engine, and its codes for the first chunk."""
    logits, codes = [], None
    for start in range(0, len(names), CHUNK):
        subprocess.run([octet, "run", checkpoint, *names[start:start + CHUNK], "--engine", "cpu", "--dump", dump, "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        tensors = load_file(dump)
        logits.append(tensors["logits"])
        if codes is None:
            codes = {name[6:]: value for name, value in tensors.items() if name.startswith("codes/")}
    return np.concatenate(logits), codes


def real_images(model, images):
    """(pixel / 255 - mean) / std in float32, [N, C, H, W]."""
    about = {entry.key: entry.value for entry in model.metadata_props}
    mean, std = (np.float32(about[key].split()) for key in ("mean", "std"))
    return np.ascontiguousarray(((images.astype(np.float32) / np.float32(255) - mean) / std).transpose(0, 3, 1, 2))


def onnxruntime_logits(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"images": x[i:i + CHUNK]})[0] for i in range(0, len(x), CHUNK)])


def openvino_logits(path, x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.concatenate([compiled(x[i:i + CHUNK])[0] for i in range(0, len(x), CHUNK)])


def code_distances(model, x, codes):
    """Every edge as ONNX Runtime computes it without fusing: largest distance, differing codes, codes."""
    edges = {node.output[0]: node.output[0][:-len("/QuantizeLinear")] for node in model.graph.node
             if node.op_type == "QuantizeLinear"}
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for edge in edges:
        model.graph.output.add().name = edge
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    largest = differing = count = 0
    for edge, values in zip(edges, session.run(list(edges), {"images": x})):
        ours = codes[edges[edge]].astype(np.int64)
        if values.ndim != 4:
            values = values.reshape(len(values), -1, 1, 1)
        if values.shape[1] != ours.shape[3]:  # behind a flatten, whose order is each one's own
            continue
        difference = np.abs(values.astype(np.int64).transpose(0, 2, 3, 1) - ours)
        largest, differing, count = max(largest, int(difference.max())), differing + int((difference > 0).sum()), count + ours.size
    return largest, differing, count


def main():
    octet, checkpoint = sys.argv[1:3]
    folder = pathlib.Path(sys.argv[4])
    images, labels = read_test_set(pathlib.Path(sys.argv[3]))
    count = int(sys.argv[5]) if len(sys.argv) > 5 else len(images)
    images, labels = images[:count], labels[:count]
    ours, codes = octet_logits(octet, checkpoint, write_pictures(images, folder / "pictures"), folder / "dump.safetensors")
    top1 = lambda logits: 100 * float((logits.argmax(1) == labels).mean())
    print(f"{'octet cpu':38} top-1 {top1(ours):.2f} %  of {count} images")
    good = True
    for profile in ("onnxruntime", "tensorrt", "int32_bias"):
        for opset in ("13", "21"):
            path = folder / f"{profile}-{opset}.onnx"
            written = subprocess.run([octet, "export", checkpoint, "--onnx", path, "--profile", profile, "--opset", opset,
                                      "--quiet"], capture_output=True, text=True, check=False)
            if written.returncode != 0:
                print(f"{profile} opset {opset}: {written.stderr.strip()}")
                good &= written.returncode == 2 and profile == "tensorrt"
                continue
            onnx.checker.check_model(str(path), full_check=True)
            model = onnx.load(path)
            x = real_images(model, images)
            for runtime, run in (("ONNX Runtime", onnxruntime_logits), ("OpenVINO", openvino_logits)):
                logits = run(path, x)
                differing = int((logits.argmax(1) != ours.argmax(1)).sum())
                print(f"{profile:12} opset {opset} {runtime:12}   top-1 {top1(logits):.2f} %  {differing} predictions differ",
                      flush=True)
                good &= abs(top1(logits) - top1(ours)) <= POINTS
            largest, different, all_codes = code_distances(model, x[:CHUNK], codes)
            print(f"{profile:12} opset {opset} codes of {CHUNK} images: {different} of {all_codes} differ, by at most {largest}")
            good &= largest <= 1
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main())
