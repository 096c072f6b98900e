#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What quantization-aware training brings at few bits: every row of science_plan.py's tables, over all GPUs, in slices of minutes.

    science.py --data CIFAR --out DIR                       all rows of CIFAR-10, one seed
    science.py --tiny FILE --out DIR --rows 5               Tiny-ImageNet-200 alone
    science.py --data CIFAR --out DIR --rows 4,10 --only 'w4a4*' --set mobilenet_v2:train.epochs=30 --minutes 9

A run that is finished is not repeated and one that was stopped goes on, so the same command may be given again until all are done. Test
pictures are read once, at the end of a run: nothing may be chosen by these tables.
"""
import argparse
import pathlib
import sys

import accuracy
import final_table
import science_plan
import science_table


def rows_of(text):
    numbers = text.split(",")
    unknown = [number for number in numbers if number not in science_plan.ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no row '{unknown[0]}'; there are {', '.join(science_plan.ROWS)} (science_plan.py)")
    return numbers


def tiny_imagenet(arguments):
    """As accuracy.cifar10()."""
    if arguments.tiny is None or not arguments.tiny.exists():
        sys.exit("science: row 5 needs --tiny FILE: Tiny-ImageNet-200 as tools/tiny_imagenet.py writes it")
    return [f"data.path={arguments.tiny.resolve()}"]


DATA = {"cifar10": accuracy.cifar10, "tiny": tiny_imagenet}


def settings_by_data(arguments, workers):
    """{data set: settings of its runs}, of the rows that are wanted: no other data set need be there."""
    every, dry = accuracy.everywhere(arguments, workers), science_plan.DRY if arguments.dry else []
    return {data: [*every, *DATA[data](arguments), *dry] for data in {science_plan.ROWS[number].data for number in arguments.rows}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    accuracy.common_arguments(parser)
    parser.set_defaults(seeds=[1], stage="science")
    parser.add_argument("--rows", type=rows_of, default=["4", "10", "1", "2", "3", "9"], metavar="LIST", help="in this order")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="LIST", help="these variants (w4a4-lsq, 'w2a2*', ...)")
    parser.add_argument("--tiny", type=pathlib.Path, metavar="FILE", help="row 5: Tiny-ImageNet-200 as a .tar or folder of train/ and test/")
    arguments, workers = accuracy.parse(parser)
    folder = science_plan.folder_of(arguments.out, arguments.dry)
    jobs = science_plan.jobs(folder, arguments.rows, arguments.seeds, arguments.only, settings_by_data(arguments, len(workers)), arguments.set)
    if not jobs:
        parser.error("--only leaves no variant of these rows")
    accuracy.carry_out(arguments, folder, jobs, workers, final_table.rows, lambda rows: science_table.table(arguments.rows, rows))


if __name__ == "__main__":
    main()
