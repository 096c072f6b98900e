#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times YOLOX-S of octet on a GPU beside its authors' PyTorch: a training step, or the forward pass and the way from JPEG files to boxes.

    detector_gpu.py training --yolox CODE
    detector_gpu.py inference --yolox CODE --weights peer.pth --checkpoint int8.safetensors --images photos/
    detector_gpu.py prepare --yolox CODE --weights peer.pth --images photos/     writes the weights, here with a CPU

CODE: a checkout of github.com/Megvii-BaseDetection/YOLOX, or its folder yolox with models and utils. Each figure is a process of its own;
those of training take turns. --dry: a step of a small size, with --device cpu anywhere. Needs PyTorch and torchvision, and uses OpenCV if it is there.
"""
import argparse
import json
import os
import pathlib
import sys

import turns

TRAINING = {  # label: the words of train_bench, or what the peer is
    "octet QAT fp16": ["--phase", "qat"],
    "octet QAT fp16, learned scales": ["--phase", "qat", "--scales", "lsq"],
    "octet float fp16": ["--phase", "float"],
    "YOLOX AMP fp16": False,
    "YOLOX AMP fp16, channels-last, keeps its cache": True,
}


def in_process(function, *arguments):
    """What yolox_peer's function returns in a process of its own: memory and PyTorch's caches are its alone."""
    return turns.in_child(function, *arguments, module="yolox_peer")


def training_once(what, options):
    if isinstance(what, bool):
        return in_process("measure_training", options, what)
    sizes = {"--batch": options.batch, "--size": options.size, "--seconds": options.seconds, "--rate": options.rate, "--boxes": options.boxes}
    precision = "fp16" if options.device == "cuda" else "fp32"
    words = [str(word) for pair in sizes.items() for word in pair]
    return turns.run_program([options.train_bench, "--model", "yolox_s", "--classes", "80", "--precision", precision, "--ema", "0.9998",
                              "--device", options.device, *what, *words])


def training(options, keep):
    taken = {label: [] for label in TRAINING}
    rows = {}
    for turn in range(options.turns):
        for label, what in TRAINING.items():
            if taken[label] and "refused" in taken[label][-1]:
                continue
            print(f"  {label}, turn {turn + 1} of {options.turns}", file=sys.stderr, flush=True)
            taken[label].append(training_once(what, options))
            rows[label] = turns.summary(taken[label])
            keep(rows)
    base = [row["median_ms"] for label, row in rows.items() if label.startswith("YOLOX") and "median_ms" in row]
    for label, row in rows.items():
        if "refused" in row:
            print(f"{label:<48} refused: {row['refused']}")
            continue
        times = f"{min(base) / row['median_ms']:.2f} times the faster YOLOX" if base else ""
        print(f"{label:<48}{row['median_ms']:>9.2f} ms {1e3 * options.batch / row['median_ms']:>9,.0f} images/s {row.get('peak_gib', 0):>6.1f} GiB  {times}")
    return rows


def inference(options, keep):
    files = photos(options)
    rows = {}

    def add(label, row):
        rows[label] = row
        keep(rows)
        print(f"{label}: {json.dumps(row)}", flush=True)

    for batch in options.batches:
        forward = turns.run_program([options.octet, "bench", options.checkpoint, "--engine", options.engine, "--batch", str(batch), "--seconds",
                                     str(options.seconds), "--json", "--quiet"])
        add(f"octet forward, batch {batch}", forward if "refused" in forward else forward["results"][0])
    most = max(options.batches)
    add("octet JPEG to boxes", turns.run_program([options.boxes_bench, options.checkpoint, *files, "--engine", options.engine, "--batch", str(most),
                                                  "--seconds", str(options.seconds), "--score", str(options.score)]))
    for batch in options.batches:
        add(f"PyTorch, batch {batch}", in_process("measure_inference", options, batch, files))
    for batch in options.batches:
        ours, theirs = rows[f"octet forward, batch {batch}"], rows[f"PyTorch, batch {batch}"]
        if "refused" in ours or "refused" in theirs:
            continue
        best, alone = min(theirs["forward_ms"].values()), ours["device_ms"] or ours["median_ms"]
        print(f"forward, batch {batch}: octet {alone:.3f} ms on the device, {ours['median_ms']:.3f} host to host; PyTorch {best:.3f} ms "
              f"({theirs['fastest']}): {best / alone:.2f} times")
    return rows


def photos(options):
    files = [str(file) for file in sorted(pathlib.Path(options.images).rglob("*.jp*g"))]
    if not files:
        sys.exit(f"{options.images}: no JPEG")
    return files


def main():
    build = pathlib.Path(__file__).resolve().parents[3] / "build"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("training", "inference", "prepare"))
    parser.add_argument("--yolox", required=True, help="the folder that holds YOLOX's package yolox")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--batch", type=int, default=64, help="training")
    parser.add_argument("--boxes", type=int, default=8, help="training: of an image, COCO's mean is 7.3")
    parser.add_argument("--rate", type=float, default=1e-3, help="training: learning rate")
    parser.add_argument("--turns", type=int, default=2, help="training")
    parser.add_argument("--batches", default="1,32", help="inference")
    parser.add_argument("--weights", help="inference, prepare: of the peer")
    parser.add_argument("--checkpoint", help="inference: the same network as int8")
    parser.add_argument("--images", help="inference, prepare: folder of JPEGs")
    parser.add_argument("--score", type=float, default=0.25, help="inference: boxes of a lower score are left out")
    parser.add_argument("--no-compile", action="store_true", help="inference: PyTorch's CUDA graph alone, without torch.compile")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="inference: that read files")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each figure")
    parser.add_argument("--octet", default=str(build / "octet"))
    parser.add_argument("--train-bench", default=str(build / "bin" / "train_bench"))
    parser.add_argument("--boxes-bench", default=str(build / "bin" / "boxes_bench"))
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--dry", action="store_true", help="one short turn of a small size")
    options = parser.parse_args()
    if options.what != "training" and not (options.weights and options.images):
        parser.error(f"{options.what} needs --weights and --images")
    if options.what == "inference" and not options.checkpoint:
        parser.error("inference needs --checkpoint")
    options.engine = options.device
    options.batches = [int(batch) for batch in options.batches.split(",")]
    if options.dry:
        options.turns, options.seconds, options.batch = 1, 0.05, 2
        options.size = 64 if options.what == "training" else options.size

    def keep(rows):
        if options.json:
            options.json.write_text(json.dumps({"what": options.what, "size": options.size, "batch": options.batch, "boxes": options.boxes, "rows": rows}, indent=2) + "\n")

    if options.what == "prepare":
        print(json.dumps(in_process("prepare", options, photos(options)[:16])))
        return
    rows = training(options, keep) if options.what == "training" else inference(options, keep)
    if any("refused" in row for row in rows.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
