#!/usr/bin/env python3
"""A training step on more GPUs than were measured: a model from the measured parts, no claim.

    step_model.py OUT/parallel.json [--gpus 2,4,8]

The file is tools/gpu/parallel.py's. Of each network it has the step alone (T1), the step on n GPUs (Tn) and the exchange of gradients
alone on n (En). A ring sends each byte 2 (g - 1) / g times, whatever g is, so on g GPUs of a host

    E(g) = En * [2 (g - 1) / g] / [2 (n - 1) / n],    W = Tn - T1 - En,    T(g) = T1 + E(g) + W

W, what is neither (waiting for the slower GPU; less than 0 where they overlap), is held to what was measured.
"""
import argparse
import json
import pathlib

def step(row, count, gpus):
    """Milliseconds on so many GPUs; for 1 and `count` those measured."""
    one, together = row["milliseconds"]
    if gpus == 1:
        return one
    waiting = together - one - row["exchange_ms"]
    return one + row["exchange_ms"] * ((gpus - 1) / gpus) / ((count - 1) / count) + waiting


def table(result, gpus):
    count, lines = result["processes"], []
    for model, row in ((name, row) for name, row in result["speed"].items() if isinstance(row, dict)):
        one = step(row, count, 1)
        for number in sorted({1, count, *gpus}):
            milliseconds = step(row, count, number)
            lines.append(f"{model:14} {number:4} GPUs {milliseconds:8.2f} ms {1e3 * row['batch'] * number / milliseconds:12,.0f} images/s "
                         f"{number * one / milliseconds:7.2f}x  {'measured' if number in (1, count) else 'model'}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--gpus", default="2,4,8")
    options = parser.parse_args()
    print(table(json.loads(options.file.read_text()), [int(number) for number in options.gpus.split(",")]))


if __name__ == "__main__":
    main()
