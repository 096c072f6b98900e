#!/usr/bin/env python3
"""Trains recipes with several seeds, each GPU taking the next from the list, and prints the table of accuracies.

A run that is finished is not repeated and one that was stopped goes on, so the same command may be given again until all are done.
"""
import argparse
import json
import pathlib
import signal
import subprocess
import sys
import time
import typing

import accuracy_table
import gpus
import programs

RECIPES = "resnet20_cifar10_int8,resnet18_cifar10_int8,vgg16_bn_cifar10_int8,mobilenet_v2_cifar10_int8"
DRY = ["train.epochs=1", "train.warmup_epochs=0", "qat.epochs=1", "qat.warmup_epochs=0", "calibrate.images=256", "data.limit_train=1024",
       "data.limit_validation=512", "evaluate.reference_images=16"]


class Job(typing.NamedTuple):
    recipe: str
    seed: int
    folder: pathlib.Path


class Runner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.deadline = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
        self.settings = [f"data.path={arguments.data}", *(DRY if arguments.dry else []), *arguments.set]
        self.problems = []

    def run(self, job, gpu):
        """Trains and calibrates; whatever is there already is kept."""
        report, calibrators = job.folder / "report.json", job.folder / "calibrators.json"
        if not report.exists():
            self.call(job, gpu, self.training(job))
        if report.exists() and not calibrators.exists() and not self.late():
            out = self.call(job, gpu, ["calibrate", str(job.folder), "--all", "--json"])
            if out is not None:
                calibrators.write_text(out)
        print(f"  {job.folder.name}: {'done' if report.exists() else 'not finished'}", file=sys.stderr, flush=True)

    def training(self, job):
        if (job.folder / "recipe.yaml").exists():
            return ["train", str(job.folder), "--resume"]
        recipe = str(programs.ROOT / "recipes" / f"{job.recipe}.yaml")
        return ["train", recipe, "--out", str(job.folder), *(word for key in [*self.settings, f"seed={job.seed}"] for word in ("--set", key))]

    def call(self, job, gpu, words):
        """stdout of octet, or None if it failed or the time was over; stderr is added to a log beside the run."""
        command = [str(programs.program("octet")), *words, "--device", self.arguments.device]
        with open(f"{job.folder}.log", "a") as log:
            print("$", " ".join(command), file=log, flush=True)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=gpus.environment(gpu))
            try:
                out, _ = process.communicate(timeout=None if self.deadline is None else max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # octet saves its state and says so
                process.communicate()
                return None
        if process.returncode != 0:
            last = pathlib.Path(f"{job.folder}.log").read_text(errors="replace").strip().splitlines()[-1]
            self.problems.append(f"{job.folder.name}: {words[0]}: exit {process.returncode}: {last}")
            return None
        return out

    def late(self):
        return self.deadline is not None and time.monotonic() >= self.deadline


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3], metavar="LIST")
    parser.add_argument("--per-gpu", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every recipe")
    parser.add_argument("--dry", action="store_true", help="one epoch of a few images, one seed")
    arguments = parser.parse_args()
    names = arguments.recipes.split(",")
    for name in names:
        if not (programs.ROOT / "recipes" / f"{name}.yaml").exists():
            parser.error(f"no recipe {programs.ROOT / 'recipes' / name}.yaml")
    seeds = arguments.seeds[: 1 if arguments.dry else None]
    if arguments.dry and not arguments.data.exists():
        print(f"accuracy: no {arguments.data}: this dry run takes synthetic images", file=sys.stderr)
        arguments.set.append("data.format=synthetic")
    devices = [None] if arguments.device == "cpu" else gpus.visible()

    folder = arguments.out / ("accuracy_dry" if arguments.dry else "accuracy")
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [Job(name, seed, folder / f"{name}-seed{seed}") for seed in seeds for name in names]
    runner = Runner(arguments)
    gpus.share(jobs, devices * arguments.per_gpu, runner.run, runner.late)

    rows = accuracy_table.rows(folder)
    print(accuracy_table.table(rows))
    (arguments.out / f"{folder.name}.json").write_text(json.dumps(rows, indent=2))
    unfinished = [job.folder.name for job in jobs if not (job.folder / "calibrators.json").exists()]
    for problem in runner.problems:
        print(f"FAILED {problem}")
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}; the same command goes on")
    sys.exit(1 if runner.problems or unfinished else 0)


if __name__ == "__main__":
    main()
