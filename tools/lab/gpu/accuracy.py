#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The accuracies of the CIFAR-10 recipes in two stages, over all GPUs of the machine, in slices of minutes.

    accuracy.py choose      variants of the recipes (accuracy_plan.py) compared on validation pictures; nothing reads the test pictures
    accuracy.py final       the recipes as they are, beside further float training; the test pictures are read once, at the end of a run

A run that is finished is not repeated and one that was stopped goes on, so the same command may be given again until all are done.
"""
import argparse
import json
import os
import pathlib
import sys

import accuracy_plan
import choose_table
import final_table
import gpus
import octet_runs
import programs

TRAINING_FILES = [f"data_batch_{number}.bin" for number in range(1, 6)]


def without_test_pictures(data, folder):
    """A folder of links to CIFAR-10's training files, one of them in the test file's place."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in [*((name, name) for name in TRAINING_FILES), ("test_batch.bin", TRAINING_FILES[0])]:
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to((data / target).resolve())
    return folder


def variants_of(text, networks):
    """{network: variant of its float phase} from VARIANT or NETWORK:VARIANT, comma-separated."""
    chosen = dict.fromkeys(networks, accuracy_plan.RECIPE)
    for word in text.split(","):
        network, _, variant = word.rpartition(":")
        for name in [network] if network else networks:
            if variant not in accuracy_plan.float_variants(name):
                raise SystemExit(f"accuracy: --float-from: {name} has no float variant '{variant}' (accuracy_plan.py)")
            chosen[name] = variant
    return chosen


def everywhere(arguments, workers):
    """Settings of every run: CPU threads so that runs beside each other share the cores, one exact engine."""
    engine = "cuda" if arguments.device == "cuda" else "cpu"
    settings = [f"evaluate.engines=[{engine}]", f"threads={max(1, (os.cpu_count() or 1) // workers)}"]
    if arguments.device == "cpu":
        settings += ["train.precision=fp32", "qat.precision=fp32"]
    return settings


def cifar10(arguments):
    """Settings of every run that reads it; ends the program where it is not."""
    if not arguments.data.exists():
        if not arguments.dry:
            sys.exit(f"accuracy: no folder {arguments.data} with CIFAR-10's binary files; name it with --data")
        print(f"accuracy: no {arguments.data}: this dry run takes synthetic images", file=sys.stderr)
        return ["data.format=synthetic", "data.synthetic_size=2048"]
    data = arguments.data.resolve()
    if arguments.stage == "choose":
        data = without_test_pictures(data, arguments.out / "data_to_choose")
    return [f"data.path={data}"]


def plan(arguments, workers):
    """The jobs, and a function that makes (rows, table) of those that are done."""
    name = "{}_dry" if arguments.dry else "{}"
    folder, choose_folder = arguments.out / name.format(arguments.stage), arguments.out / name.format("choose")
    if arguments.stage == "choose":
        only = accuracy_plan.DRY_VARIANTS if arguments.dry and arguments.only is None else arguments.only
        jobs, tables = accuracy_plan.choose_jobs(folder, arguments.networks, arguments.seeds, only), choose_table
    else:
        source = (choose_folder, variants_of(arguments.float_from, arguments.networks)) if arguments.float_from else None
        jobs = accuracy_plan.final_jobs(folder, arguments.networks, arguments.seeds, source, arguments.only, arguments.few_bits)
        tables = final_table
    first = [*everywhere(arguments, workers), *cifar10(arguments), *(accuracy_plan.DRY if arguments.dry else [])]
    for index, job in enumerate(jobs):
        jobs[index] = job._replace(settings=[*first, *accuracy_plan.of_network(arguments.set, job.network), *job.settings])
    return folder, jobs, tables


def common_arguments(parser):
    """What science.py takes too."""
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, default=programs.ROOT / "data" / "binary", metavar="FOLDER",
                        help="CIFAR-10's binary files (default: the package's)")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3], metavar="LIST")
    parser.add_argument("--per-gpu", type=int, default=1, help="runs at a time on each GPU")
    parser.add_argument("--minutes", type=float, help="stop then, with every run saved")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--octet", type=pathlib.Path, default=programs.program("octet"), metavar="PROGRAM")
    parser.add_argument("--set", action="append", default=[], metavar="[NETWORK:]KEY=VALUE")
    parser.add_argument("--list", action="store_true", help="print the runs and what each sets, run nothing")
    parser.add_argument("--dry", action="store_true", help="one epoch of a few images, one seed, few variants")


def parse(parser):
    """(arguments, one GPU for each run at a time)"""
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    if arguments.dry:
        arguments.seeds = arguments.seeds[:1]
    return arguments, ([None] if arguments.device == "cpu" or arguments.list else gpus.visible()) * arguments.per_gpu


def carry_out(arguments, folder, jobs, workers, rows_of, table_of):
    """Lists the jobs, or runs them, prints the table of what is done, writes its rows beside the folder and ends the program."""
    if arguments.list:
        for job in jobs:
            print(job.folder.relative_to(folder), *job.settings)
        return
    if not arguments.octet.exists():
        sys.exit(f"no {arguments.octet}; build it, or name it with --octet")
    runner = octet_runs.Runner(arguments.octet, arguments.device, arguments.minutes)
    gpus.share(jobs, workers, runner.run, runner.late, octet_runs.ready)
    rows = rows_of(folder)
    print(table_of(rows))
    (arguments.out / f"{folder.name}.json").write_text(json.dumps(rows, indent=2))
    unfinished = [job.folder.relative_to(folder) for job in jobs if not octet_runs.finished(job)]
    for problem in runner.problems:
        print(f"FAILED {problem}")
    if unfinished:
        print(f"not finished: {len(unfinished)} of {len(jobs)} ({', '.join(map(str, unfinished[:8]))}, ...); the same command goes on")
    sys.exit(1 if runner.problems or unfinished else 0)


def main():
    def names(text):
        unknown = [name for name in text.split(",") if name not in accuracy_plan.NETWORKS]
        if unknown:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(accuracy_plan.NETWORKS)}")
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("choose", "final"))
    common_arguments(parser)
    parser.add_argument("--networks", type=names, default=list(accuracy_plan.NETWORKS), metavar="LIST")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="LIST", help="these variants beside the recipe (final: of few bits)")
    parser.add_argument("--few-bits", action="store_true", help="final: no QAT of eight bits, and one float control for all that train as long")
    parser.add_argument("--float-from", metavar="VARIANT", help="final: start from stage choose's float weights (recipe, resnet20:cutout-12, ...)")
    arguments, workers = parse(parser)
    folder, jobs, tables = plan(arguments, len(workers))
    carry_out(arguments, folder, jobs, workers, tables.rows, tables.table)


if __name__ == "__main__":
    main()
