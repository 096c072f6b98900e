#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step on more GPUs than were measured: a model from the step on one GPU and on two.

    step_model.py OUT/parallel.json [--gpus 2,4,8,16,64] [--network 50]

The file is tools/lab/gpu/parallel.py's. For each network it has the step T(g) for one, two and perhaps more GPUs and, for two and more, the
exchange of all gradients alone, E(g). A ring sends each byte 2 (g - 1) / g times, so from n, the fewest GPUs above one, on g GPUs of a host

    E(g) = E(n) * [2 (g - 1) / g] / [2 (n - 1) / n],    W = T(n) - T(1) - E(n),    T(g) = T(1) + E(g) + W

W, what is neither computing nor exchanging (waiting for the slower GPU; negative where both overlap), is assumed to stay as it is on n. Where
T(g) was measured too, the table shows by how much the model is off. Over hosts of eight the same bytes go through the network once more:
E(8) + 2 (h - 1) / h * bytes / 8 / network, h hosts, --network in GB/s a GPU.
"""
import argparse
import json
import pathlib

HOST = 8


def exchange(row, gpus, network):
    """Milliseconds of an exchange among so many GPUs, by the model."""
    count = fewest(row)
    here = min(gpus, HOST)
    milliseconds = row["by_gpus"][str(count)]["exchange_ms"] * ((here - 1) / here) / ((count - 1) / count)
    hosts = gpus // HOST
    if hosts > 1:
        milliseconds += 2 * (hosts - 1) / hosts * row["gradient_bytes"] / HOST / (network * 1e6)
    return milliseconds


def fewest(row):
    """The smallest number of GPUs above one that was measured."""
    return min(int(count) for count in row["by_gpus"] if count != "1")


def step(row, gpus, network):
    """Milliseconds of a step on so many GPUs, by the model; for one GPU and the fewest above one they are those measured."""
    one, together = row["by_gpus"]["1"]["ms"], row["by_gpus"][str(fewest(row))]
    if gpus == 1:
        return one
    waiting = together["ms"] - one - together["exchange_ms"]
    return one + exchange(row, gpus, network) + waiting


def off_by(row, gpus, network):
    """How far the model is from the measured step, as a share of it; None where that step was not measured or the model was made of it."""
    measured = row["by_gpus"].get(str(gpus))
    return None if measured is None or gpus in (1, fewest(row)) else step(row, gpus, network) / measured["ms"] - 1


def table(speed, gpus, network):
    """A line for each network and number of GPUs; `speed` is that part of parallel.json."""
    lines = []
    for model, row in ((name, row) for name, row in speed.items() if isinstance(row, dict)):
        one = row["by_gpus"]["1"]["ms"]
        for number in sorted({*map(int, row["by_gpus"]), *gpus}):
            measured = row["by_gpus"].get(str(number))
            milliseconds = step(row, number, network) if measured is None else measured["ms"]
            off = off_by(row, number, network)
            how = "model" if measured is None else "measured" if off is None else f"measured, model {100 * off:+.1f} %"
            lines.append(f"{model:24} {number:4} GPUs {milliseconds:8.2f} ms {1e3 * row['batch'] * number / milliseconds:12,.0f} images/s "
                         f"{number * one / milliseconds:7.2f}x  {how}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--gpus", default="2,4,8,16,64")
    parser.add_argument("--network", type=float, default=50, help="GB/s a GPU between hosts; 50: 400 Gbit/s")
    options = parser.parse_args()
    gpus = [int(number) for number in options.gpus.split(",")]
    wrong = [number for number in gpus if number < 1 or (number > HOST and number % HOST)]
    if wrong:
        parser.error(f"--gpus {wrong[0]}: hosts have {HOST} GPUs")
    print(table(json.loads(options.file.read_text())["speed"], gpus, options.network))


if __name__ == "__main__":
    main()
