#!/usr/bin/env python3
"""A training step on more GPUs than were measured: a model from the measured parts, no claim.

    step_model.py OUT/parallel.json [--gpus 2,4,8,16,64] [--network 50]

The file is tools/gpu/parallel.py's. Of each network it has the step alone (T1), the step on n GPUs (Tn) and the exchange of gradients
alone on n (En). A ring sends each byte 2 (g - 1) / g times, whatever g is, so on g GPUs of a host

    E(g) = En * [2 (g - 1) / g] / [2 (n - 1) / n],    W = Tn - T1 - En,    T(g) = T1 + E(g) + W

W, what is neither (waiting for the slower GPU; less than 0 where they overlap), is held to what was measured. Over hosts of eight the
same bytes go through the network once more: E(8) + 2 (h - 1) / h * bytes / 8 / network, h hosts, --network in GB/s a GPU.
"""
import argparse
import json
import pathlib

HOST = 8


def exchange(row, count, gpus, network):
    """Milliseconds."""
    here = min(gpus, HOST)
    milliseconds = row["exchange_ms"] * ((here - 1) / here) / ((count - 1) / count)
    hosts = gpus // HOST
    if hosts > 1:
        milliseconds += 2 * (hosts - 1) / hosts * row["gradient_bytes"] / HOST / (network * 1e6)
    return milliseconds


def step(row, count, gpus, network):
    """Milliseconds on so many GPUs; for 1 and `count` those measured."""
    one, together = row["milliseconds"]
    if gpus == 1:
        return one
    waiting = together - one - row["exchange_ms"]
    return one + exchange(row, count, gpus, network) + waiting


def table(result, gpus, network):
    count, lines = result["processes"], []
    for model, row in ((name, row) for name, row in result["speed"].items() if isinstance(row, dict)):
        one = step(row, count, 1, network)
        for number in sorted({1, count, *gpus}):
            milliseconds = step(row, count, number, network)
            lines.append(f"{model:14} {number:4} GPUs {milliseconds:8.2f} ms {1e3 * row['batch'] * number / milliseconds:12,.0f} images/s "
                         f"{number * one / milliseconds:7.2f}x  {'measured' if number in (1, count) else 'model'}")
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
    print(table(json.loads(options.file.read_text()), gpus, options.network))


if __name__ == "__main__":
    main()
