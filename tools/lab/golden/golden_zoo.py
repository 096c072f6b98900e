#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters and logits of torchvision's networks for weights that anybody can make again; octet's zoo is held to them.

  golden_zoo.py tests/train/golden_zoo.json

Writes the file that tests/train/golden_zoo_test.cpp reads; seconds. Needs torch 2.11.0 and torchvision 0.26.0, in an environment of
their own.

Value i of a network's parameters, taken in the order of their names, comes from the mixed number i (Steele et al. 2014, SplitMix64) and is
exact in float32, or a product in double that both sides round once.
"""
import argparse
import json
import math

import numpy as np
import torch
import torchvision

MODELS = ("efficientnet_b0", "mobilenet_v3_large", "shufflenet_v2_x1_0")
CLASSES, SIDE, IMAGES = 10, 64, 2
FIRST_PIXEL = 1 << 40  # the number of the first pixel's value


def uniform(first, count):
    """[-0.5, 0.5), 24 bits each."""
    z = np.arange(first + 1, first + 1 + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5


def values(name, shape, first):
    u = uniform(first, math.prod(shape))
    if len(shape) > 1:
        u = u * math.sqrt(18 / math.prod(shape[1:]))
    elif name.endswith(("running_var", ".weight")):
        u = u + 1.25
    return torch.from_numpy(u.astype(np.float32).reshape(shape))


def golden(name):
    model = getattr(torchvision.models, name)(num_classes=CLASSES).eval()
    state, first = model.state_dict(), 0
    for key in sorted(state):
        if key.endswith("num_batches_tracked"):
            continue
        state[key] = values(key, state[key].shape, first)
        first += state[key].numel()
    model.load_state_dict(state)
    pixels = uniform(FIRST_PIXEL, IMAGES * 3 * SIDE * SIDE).astype(np.float32) * 4
    with torch.no_grad():
        logits = model(torch.from_numpy(pixels.reshape(IMAGES, 3, SIDE, SIDE)))
    shapes = {key: list(value.shape) for key, value in state.items() if not key.endswith("num_batches_tracked")}
    return {"shapes": shapes, "logits": [float(x) for x in logits.flatten()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    file = parser.parse_args().file
    networks = {name: golden(name) for name in MODELS}
    with open(file, "w") as out:
        out.write("{\n" + ",\n".join(f'"{name}": {json.dumps(network)}' for name, network in networks.items()) + "\n}\n")


if __name__ == "__main__":
    main()
