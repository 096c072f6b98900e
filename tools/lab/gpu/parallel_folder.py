# SPDX-License-Identifier: Apache-2.0
"""Part folder of parallel.py: QAT of ResNet-50 from one folder of JPEG files, on one GPU and on several: images/s, and waiting for images."""
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import time

import parallel_runs
import parallel_speed

SIZE = (500, 375)  # of a typical ImageNet picture
PER_GPU = 20_480   # training pictures of an epoch: 80 batches of 256
LAST = ("qat", 2)  # the epoch that is read: kernels were chosen and the step was recorded in the one before


def jpegs(source):
    """The bytes of the JPEG files in a .tar file or a folder, by name."""
    if source.is_dir():
        return [path.read_bytes() for path in sorted(source.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg")]
    with tarfile.open(source) as tar:
        members = sorted((member for member in tar if member.isfile() and member.name.lower().endswith((".jpg", ".jpeg"))), key=lambda m: m.name)
        return [tar.extractfile(member).read() for member in members]


def write_folder(folder, sources, count, classes=10):
    """train/ and val/ with one folder a class: each source picture once, resized, and hard links to it up to `count` files for training. Returns
    the mean size of a file in bytes."""
    from PIL import Image
    sizes = []
    for split, wanted in (("train", count), ("val", 64)):
        for number in range(wanted):
            place = folder / split / f"class{number % classes}"
            place.mkdir(parents=True, exist_ok=True)
            path, first = place / f"{number:07}.jpg", number % len(sources)
            original = folder / "train" / f"class{first % classes}" / f"{first:07}.jpg"
            if path == original:
                with Image.open(io.BytesIO(sources[first])) as image:
                    image.convert("RGB").resize(SIZE, Image.Resampling.BICUBIC).save(path, quality=90)
                sizes.append(path.stat().st_size)
            else:
                os.link(original, path)
    return round(sum(sizes) / len(sizes))


def epochs_of(run):
    """The lines of metrics.jsonl so far."""
    try:
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except FileNotFoundError:
        return []


def trained(options, pictures, count, limit=240):
    """The line of metrics.jsonl of epoch LAST, with which the run is stopped."""
    run = options.folder / f"folder-{count}"
    batch = 8 if options.dry else 256
    settings = [f"data.path={pictures}", f"data.limit_train={count * (64 if options.dry else PER_GPU)}", "data.validation_fraction=0.002",
                "data.limit_validation=64", "train.epochs=1", f"train.batch_size={batch * count}", f"qat.batch_size={batch * count}",
                "train.warmup_epochs=0", "calibrate.images=64", "qat.epochs=3",
                *(["train.precision=fp32", "qat.precision=fp32", "data.image_size=32", "data.resize=36"] if options.device == "cpu" else
                  ["train.precision=fp16", "qat.precision=fp16"])]
    words = [str(word) for word in parallel_runs.train("resnet50_image_folder_int8", run, count, settings, options)]
    with open(options.out / f"folder-{count}.log", "w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=parallel_runs.of_one(options) if count == 1 else None)
    begin = time.monotonic()
    try:
        while True:
            found = [line for line in epochs_of(run) if (line["phase"], line["epoch"]) == LAST]
            if found:
                process.send_signal(signal.SIGINT)
                return found[0]
            if process.poll() is not None or time.monotonic() > begin + limit:
                raise parallel_runs.Failed(f"{count} GPUs: no epoch {LAST[1]} of {LAST[0]} after {time.monotonic() - begin:.0f} s: see {log.name}")
            time.sleep(0.2)
    finally:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def folder(options):
    """waiting: the largest share of its time that a GPU waited for pictures. Pictures repeat, so the disk is read once and memory after that:
    what is measured is decoding, resizing and everything behind it."""
    if options.pictures is None:
        return {"skipped": "no JPEG files (--pictures TAR|FOLDER)"}
    most = options.count
    pictures = options.folder / "jpegs"
    bytes_ = write_folder(pictures, jpegs(options.pictures), 2 * 64 * most if options.dry else round(1.01 * PER_GPU * most))
    rows = {}
    for count in (1, *parallel_speed.counts(most)):
        line = trained(options, pictures, count)
        waits = [rank["data_wait_share"] for rank in line.get("ranks", [line])]
        rows[str(count)] = {"images_per_second": round(line["images_per_second"]), "waiting": round(max(waits), 4),
                            "factor": round(line["images_per_second"] / rows["1"]["images_per_second"], 3) if rows else 1}
        print(f"  {count} GPUs: {rows[str(count)]}", file=sys.stderr, flush=True)
    return {"size": SIZE, "mean_bytes": bytes_, "cores": os.cpu_count(), "by_gpus": rows}
