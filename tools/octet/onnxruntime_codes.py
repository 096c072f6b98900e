# SPDX-License-Identifier: Apache-2.0
"""Runs a model in ONNX Runtime for `octet compare --against onnxruntime`, which starts it and holds both ends of its pipes.

stdin: one line of JSON {"model_bytes", "outputs": names, "shapes": [H, W, C] of each, "image": [H, W, C], "optimize", "threads"} and the
model; then for
each batch its size (int64) and float32 [batch, H, W, C]. stdout: at once a line "python VERSION"; then a line "ready VERSION", "missing WHAT" or
"failed WHY"; then for each batch and output the number of bytes (int64) and the bytes, [batch, H, W, C], or -1 and a line
"failed WHY".
"""
import json
import os
import signal
import struct
import sys

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program that started this one says when it is over
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # whatever a library prints is no answer


def say(line):
    answers.write(line.replace("\n", " ").encode() + b"\n")
    answers.flush()


def nhwc(values, shape):
    """[N, H, W, C] of [N, C, H, W]; or of attention's [N, heads, channels, H * W], perhaps with the last two exchanged or without heads."""
    h, w, c = shape
    if values.ndim < 3:
        return values
    if values.shape[1:] != (c, h, w) and values.shape[-1] != h * w:
        values = values.swapaxes(-1, -2)
    return values.reshape(-1, c, h, w).transpose(0, 2, 3, 1)


def run(session, names, shapes, image, batch):
    import numpy as np

    count = batch * image[0] * image[1] * image[2]
    pixels = sys.stdin.buffer.read(4 * count)
    x = np.ascontiguousarray(np.frombuffer(pixels, np.float32).reshape(batch, *image).transpose(0, 3, 1, 2))
    given = session.get_inputs()[0]
    size = given.shape[0] if isinstance(given.shape[0], int) else batch  # exported for a fixed number of images
    x = np.concatenate([x, np.zeros((-batch % size, *x.shape[1:]), np.float32)])
    if len(given.shape) < 4:  # rows [N, C, W] or vectors [N, C]
        x = x.reshape(len(x), *x.shape[1:2], *x.shape[3:len(given.shape) + 1])
    x = x.astype({"tensor(float16)": np.float16, "tensor(double)": np.float64}.get(given.type, np.float32))
    parts = [session.run(names, {given.name: x[i:i + size]}) for i in range(0, batch, size)]
    whole = [np.concatenate(outputs)[:batch] for outputs in zip(*parts)]
    whole = [values.astype(np.float32) if values.dtype.kind == "f" else values for values in whole]
    return [np.ascontiguousarray(nhwc(values, shape)).tobytes() for values, shape in zip(whole, shapes)]


def main():
    say(f"python {sys.version.split()[0]}")
    asked = json.loads(sys.stdin.buffer.readline())
    model = sys.stdin.buffer.read(asked["model_bytes"])
    try:
        import numpy  # noqa: F401
        import onnxruntime
    except ImportError as error:
        return say(f"missing {error}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = asked["threads"]
    if not asked["optimize"]:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own types differ from version to version
        return say(f"failed {error}")
    say(f"ready {onnxruntime.__version__}")
    while len(size := sys.stdin.buffer.read(8)) == 8:
        try:
            outputs = run(session, asked["outputs"], asked["shapes"], asked["image"], struct.unpack("<q", size)[0])
        except Exception as error:
            answers.write(struct.pack("<q", -1))
            return say(f"failed {error}")
        for output in outputs:
            answers.write(struct.pack("<q", len(output)) + output)
        answers.flush()


main()
