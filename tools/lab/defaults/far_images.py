#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which images reach how far in which tensors of one of networks.py's networks, what mse makes of it, and how a learned scale would begin.

    far_images.py NETWORK float.safetensors CIFAR [--images 512]

For a user's torch and torchvision; the weights are a run's of `octet train` (or its state's), CIFAR a folder of CIFAR-10's binary files. Magnitudes
of the outputs of all single layers, by BatchNorm's running statistics and by those of each batch of 128. Notebook: ../notebooks/ranges.md.
"""
import argparse
import collections
import json
import pathlib
import struct

import networks
import numpy
import torch

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # what octet's recipes take for CIFAR-10
BATCH, LEVELS = 128, 255


def tensors_of(path):
    """{name: tensor} of a .safetensors file of octet."""
    raw = path.read_bytes()
    end = 8 + struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, row in json.loads(raw[8:end]).items():
        if name != "__metadata__" and not name.startswith(("optimizer.", "average.", "scaler.")):
            first, last = row["data_offsets"]
            values = numpy.frombuffer(raw[end + first:end + last], numpy.float32).reshape(row["shape"]).copy()
            found[name.removeprefix("weights.")] = torch.from_numpy(values)
    return found


def images_of(folder, count):
    rows = numpy.frombuffer((folder / "data_batch_5.bin").read_bytes(), numpy.uint8).reshape(-1, 3073)[:count]
    scaled = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).astype(numpy.float32) / 255)
    x = (scaled - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)
    return x, torch.from_numpy(rows[:, 0].astype(numpy.int64))


def magnitudes(model, x, training):
    """{layer: [images, values]} of all layers that have no parts."""
    found, hooks = {}, []
    for name, layer in model.named_modules():
        if not list(layer.children()) and not isinstance(layer, torch.nn.Dropout):
            hooks.append(layer.register_forward_hook(
                lambda _, __, y, name=name: found.setdefault(name, []).append(y.detach().abs().flatten(1))))
    model.train(training)
    with torch.no_grad():
        for batch in x.split(BATCH):
            model(batch)
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(parts) for name, parts in found.items()}


def quantile(values, share):
    return float(torch.quantile(values.flatten()[::max(1, values.numel() // 1000000)], share))


def rounded(values, top):
    step = top / LEVELS
    return (values / step).round().clamp(0, LEVELS) * step


def scale_gradient(model, name, x, labels, top):
    """(gradient of LSQ's scale, share of itself by which a step at 0.005 changes it) with statistics of the batch; of a layer that gives no
    negative values."""
    kept = {}

    def keep(_, __, y):
        y = y.clone()
        y.retain_grad()
        kept["y"] = y
        return y
    hook = dict(model.named_modules())[name].register_forward_hook(keep)
    model.train()
    torch.nn.functional.cross_entropy(model(x), labels).backward()
    hook.remove()
    values, gradient, step = kept["y"].detach(), kept["y"].grad, top / LEVELS
    by_scale = torch.where(values <= top, (values / step).round() - values / step, torch.tensor(float(LEVELS)))
    found = float((gradient * by_scale).sum() / (values[0].numel() * LEVELS) ** 0.5)
    return found, abs(0.005 * found / step)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=list(networks.NETWORKS))
    parser.add_argument("weights", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(1)
    model = networks.NETWORKS[options.network](10)
    weights = tensors_of(options.weights)
    model.load_state_dict({**model.state_dict(), **weights})
    x, labels = images_of(options.data, options.images)
    far, trained = magnitudes(model, x, False), magnitudes(model, x, True)
    model.load_state_dict({**model.state_dict(), **weights})  # statistics moved
    reach = {name: values.max(1).values for name, values in far.items()}
    owners = collections.Counter(int(of_images.argmax()) for of_images in reach.values())
    print(f"{len(far)} tensors of {len(x)} images; image: tensors in which it reaches furthest: {dict(owners.most_common(4))}")
    order = sorted(far, key=lambda name: -float(reach[name].max() / (reach[name].median() + 1e-9)))
    print("tensor: furthest value, of the median image, of one image in ten, in a hundred; furthest by statistics of each batch")
    for name in order[:12]:
        print(f"  {name}: {reach[name].max():.3g}, " + ", ".join(f"{quantile(reach[name], share):.3g}" for share in (0.5, 0.9, 0.99)) +
              f"; {trained[name].max():.3g}")
    name = order[0]
    print(f"{name} with a range of a share of its furthest value: mean squared error; error over signal in the median image, mean of all images")
    for share in (1, 0.5, 0.25, 0.12, 0.05, 0.02):
        error = (rounded(far[name], share * reach[name].max()) - far[name]) ** 2
        lost = error.sum(1) / (far[name] ** 2).sum(1).clamp(min=1e-12)
        print(f"  {share:.2f}: {error.mean():.3g}; {100 * lost.median():.1f} %, {100 * lost.mean():.1f} %")
    batch = slice(int(owners.most_common(1)[0][0]) // BATCH * BATCH, None)
    for name in [name for name in order if isinstance(dict(model.named_modules())[name], torch.nn.ReLU)][:3]:
        for what, top in (("the furthest value", float(reach[name].max())), ("99.9 % of what training sees", quantile(trained[name], 0.999))):
            gradient, share = scale_gradient(model, name, x[batch][:BATCH], labels[batch][:BATCH], top)
            print(f"{name}, range of {what}, {top:.3g}: gradient of the scale {gradient:.2g}; a step at 0.005 changes it by {share:.2g} of itself")


if __name__ == "__main__":
    main()
