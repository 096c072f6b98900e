#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a detector with a head of YOLOX on the CPU, forward alone and from JPEG to boxes, beside OpenVINO's int8 of the same network.

    detector.py --checkpoint int8.safetensors --onnx yolox_nano.onnx --images photos/ --calibrate photos/ --models peers/

The peer is quantized by NNCF from the float ONNX file, once with its default preset and once with `mixed`, which it names for SiLU; the
faster one counts. It reads uint8 pixels (OpenVINO's preprocessing), decodes JPEGs and resizes by OpenCV, and finds boxes by numpy and
OpenCV's class-wise suppression. Each runtime is a process of its own that waits for its turn; a turn is some passes over the images.
Models that NNCF made are kept in the folder --models. octet's module is found by PYTHONPATH and OCTET_RUNTIME. Needs nncf, openvino,
onnx, opencv-python-headless.
"""
import argparse
import json
import multiprocessing
import pathlib
import statistics
import sys
import time

import numpy as np

GREY, SCORE, OVERLAP, STRIDES = 114, 0.3, 0.45, (8, 16, 32)


def letterboxed(picture, height, width):
    """Pixels as YOLOX's networks read them, BGR with grey to the right and below, and the scale."""
    import cv2
    scale = min(height / picture.shape[0], width / picture.shape[1])
    side = int(picture.shape[1] * scale), int(picture.shape[0] * scale)
    pixels = np.full((1, height, width, 3), GREY, np.uint8)
    pixels[0, :side[1], :side[0]] = cv2.resize(picture, side, interpolation=cv2.INTER_LINEAR)
    return pixels, scale


def grid(height, width):
    """Corner x, y and stride of each cell, [cells, 3]."""
    levels = []
    for stride in STRIDES:
        y, x = np.mgrid[:height // stride, :width // stride]
        levels.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], 1))
    return np.concatenate(levels).astype(np.float32)


def boxes_of(outputs, cells, scale):
    """outputs: [cells, 5 + classes], scores after their sigmoid. Class-wise suppression; how many boxes are left, and what they are."""
    import cv2
    scores = outputs[:, 4:5] * outputs[:, 5:]
    best = scores.max(1)
    kept = best >= SCORE
    outputs, cells, best, classes = outputs[kept], cells[kept], best[kept], scores[kept].argmax(1)
    centre = (outputs[:, :2] + cells[:, :2]) * cells[:, 2:] / scale
    size = np.exp(outputs[:, 2:4]) * cells[:, 2:] / scale
    boxes = np.concatenate([centre - size / 2, size], 1)
    chosen = cv2.dnn.NMSBoxesBatched(boxes, best, classes, SCORE, OVERLAP) if len(boxes) else []
    return [(classes[i], best[i], *boxes[i]) for i in chosen]


def octet_runner(arguments, files):
    import octet
    network = octet.load(arguments.checkpoint, engine="cpu", max_batch=1, threads=arguments.threads)
    ready = [network.read_picture(file)[None] for file in files]
    return {"forward": lambda i: network(ready[i]), "boxes": lambda i: network.boxes(files[i], SCORE)}


def openvino_model(arguments, preset):
    """The file of the int8 model as NNCF makes it, with uint8 pixels [1, H, W, 3] as its input."""
    file = pathlib.Path(arguments.models) / f"{preset}.xml"
    if file.exists():
        return file
    import cv2
    import nncf
    import openvino
    model = openvino.Core().read_model(arguments.onnx)
    _, _, height, width = model.input(0).shape
    photos = sorted(pathlib.Path(arguments.calibrate).rglob("*.jp*g"))[:arguments.calibration_images]
    if not photos:
        sys.exit(f"{arguments.calibrate}: no JPEG to calibrate with")

    def to_input(file):
        return letterboxed(cv2.imread(str(file)), height, width)[0].transpose(0, 3, 1, 2).astype(np.float32)

    chosen = {"preset": nncf.QuantizationPreset.MIXED} if preset == "mixed" else {}
    model = nncf.quantize(model, nncf.Dataset(photos, to_input), subset_size=len(photos), **chosen)
    steps = openvino.preprocess.PrePostProcessor(model)
    steps.input().tensor().set_element_type(openvino.Type.u8).set_layout(openvino.Layout("NHWC"))
    steps.input().model().set_layout(openvino.Layout("NCHW"))
    openvino.save_model(steps.build(), file, compress_to_fp16=False)
    return file


def openvino_runner(arguments, files, preset):
    import cv2
    import openvino
    cv2.setNumThreads(arguments.threads)
    compiled = openvino.Core().compile_model(openvino_model(arguments, preset), "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": arguments.threads})
    _, height, width, _ = compiled.input(0).shape
    request, cells = compiled.create_infer_request(), grid(height, width)
    ready = [letterboxed(cv2.imread(file), height, width)[0] for file in files]

    def boxes(i):
        pixels, scale = letterboxed(cv2.imread(files[i]), height, width)
        return boxes_of(request.infer({0: pixels})[0][0], cells, scale)

    return {"forward": lambda i: request.infer({0: ready[i]}), "boxes": boxes}


def serve(connection, make, *make_arguments):
    """Answers each (what, images) by the milliseconds of each call, and the number of boxes of the first image."""
    calls = make(*make_arguments)
    connection.send("ready")
    while (asked := connection.recv()) is not None:
        what, count = asked
        times, found = [], calls[what](0)
        for i in range(count):
            start = time.perf_counter()
            found = calls[what](i)
            times.append((time.perf_counter() - start) * 1e3)
        connection.send((times, len(found)))


def measured(runners, arguments, images):
    times = {name: {"forward": [], "boxes": []} for name in runners}
    boxes = {}
    for _ in range(arguments.turns):
        for what in ("forward", "boxes"):
            for name, connection in runners.items():
                connection.send((what, images))
                turn, count = connection.recv()
                times[name][what].append(statistics.median(turn))
                boxes[name] = count
    return {name: {what: {"median_ms": statistics.median(turns), "fastest_turn_ms": min(turns)} for what, turns in of.items()}
            for name, of in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--onnx", required=True, help="the float network, whose only output is [1, cells, 5 + classes]")
    parser.add_argument("--images", required=True, help="folder of JPEGs that are timed")
    parser.add_argument("--calibrate", required=True, help="folder of JPEGs for NNCF")
    parser.add_argument("--calibration-images", type=int, default=200)
    parser.add_argument("--limit", type=int, default=50, help="images that are timed")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", required=True, help="folder where NNCF's models are kept")
    arguments = parser.parse_args()
    files = [str(file) for file in sorted(pathlib.Path(arguments.images).rglob("*.jp*g"))[:arguments.limit]]
    if not files:
        sys.exit(f"{arguments.images}: no JPEG")
    spawn = multiprocessing.get_context("spawn")
    makers = {"octet": (octet_runner, arguments, files), "OpenVINO (NNCF)": (openvino_runner, arguments, files, "default"),
              "OpenVINO (NNCF, mixed)": (openvino_runner, arguments, files, "mixed")}
    runners, children = {}, []
    for name, maker in makers.items():
        runners[name], other = spawn.Pipe()
        children.append(spawn.Process(target=serve, args=(other, *maker), daemon=True))
        children[-1].start()
        other.close()
        runners[name].recv()
    rows = measured(runners, arguments, len(files))
    for connection in runners.values():
        connection.send(None)
    for name, row in rows.items():
        print(f"{name:<24}" + "".join(f"{what}: {of['median_ms']:.2f} ms ({of['fastest_turn_ms']:.2f})   " for what, of in row.items()))
    for what in ("forward", "boxes"):
        peer = min(row[what]["median_ms"] for name, row in rows.items() if name != "octet")
        print(f"octet / OpenVINO, {what}: {rows['octet'][what]['median_ms'] / peer:.2f}")
    print(json.dumps({"images": len(files), "turns": arguments.turns, "threads": arguments.threads, **rows}))


if __name__ == "__main__":
    main()
