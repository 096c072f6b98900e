# SPDX-License-Identifier: Apache-2.0
"""What an int8 network computes, by docs/FORMAT.md alone, in numpy: the arithmetic of verify_checkpoint.py."""

import numpy as np

WEIGHTED = ("conv2d", "linear")
PASSING = ("max_pool", "flatten", "subsample_pad", "slice", "resize", "channel_shuffle", "depth_to_space")


def largest_code(node):
    """Largest |code - zero point| of a node's output."""
    out = node["out"]
    return max(out["quant_max"] - out["zero_point"], out["zero_point"] - out["quant_min"])


def fma(a, b, c):
    """float32 a * b + c, rounded once. The product is exact in float64; TwoSum gives the sum's error, and setting the
    last bit by it (round to odd) makes the second rounding harmless (Boldo and Melquiond 2008)."""
    product, c = a.astype(np.float64) * np.float64(b), np.asarray(c).astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    even = (np.ascontiguousarray(total).view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, odd, total).astype(np.float32)


def round_codes(t, node):
    """clamp(rint(t) + zero_point), all in float32; int16 holds signed and unsigned codes."""
    assert t.dtype == np.float32
    code = np.rint(t) + np.float32(node["out"]["zero_point"])
    return np.clip(code, np.float32(node["clamp"][0]), np.float32(node["clamp"][1])).astype(np.int16)


def image_codes(images, node, preprocessing):
    """uint8 pixels to codes: 256 values a channel, so a table."""
    pixels = np.arange(256, dtype=np.float32)
    mean = np.array(preprocessing["mean"], np.float32)
    std = np.array(preprocessing["std"], np.float32)
    out, scale = node["out"], np.float32(node["out"]["scale"])
    codes = np.empty(images.shape, np.int16)
    for c in range(images.shape[3]):
        real = (pixels / np.float32(255) - mean[c]) / std[c]
        code = np.rint(real / scale) + np.float32(out["zero_point"])
        table = np.clip(code, np.float32(out["quant_min"]), np.float32(out["quant_max"])).astype(np.int16)
        codes[..., c] = table[images[..., c]]
    return codes


def taps(x, node, fill):
    """For every kernel position (r, s): the input pixels [N, OH, OW, C] it meets."""
    win, (_, oh, ow) = node["window"], node["shape"]
    (top, left, bottom, right), (sh, sw), (dh, dw) = win["pad"], win["stride"], win["dilation"]
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    for r in range(win["kernel"][0]):
        for s in range(win["kernel"][1]):
            yield r, s, padded[:, r * dh : r * dh + (oh - 1) * sh + 1 : sh, s * dw : s * dw + (ow - 1) * sw + 1 : sw]


def dot(x, weight):
    """x [..., C] times weight [K, C], for integers held in floats."""
    return (x.reshape(-1, x.shape[-1]) @ weight.T).reshape(*x.shape[:-1], -1)


def accumulate(x, node, source):
    """int32 sums [N, OH, OW, K]. Floats hold integers exactly while no partial sum can reach 2^24 (float32) or 2^53."""
    weight, bound = node["weight"], largest_code(source)
    sums = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(1).max() * bound
    real = np.float32 if sums < 2**24 else np.float64
    x, weight = (x - source["out"]["zero_point"]).astype(real), weight.astype(real)
    if node["op"] == "linear":
        return dot(x, weight).astype(np.int32)
    groups, total = node["groups"], np.zeros((len(x), *node["shape"][1:], node["shape"][0]), real)
    each_in, each_out = x.shape[3] // groups, len(weight) // groups
    for r, s, pixels in taps(x, node, 0):
        if each_in == 1 and each_out == 1:
            total += pixels * weight[:, r, s, 0]
            continue
        for g in range(groups):
            ins, outs = slice(g * each_in, (g + 1) * each_in), slice(g * each_out, (g + 1) * each_out)
            total[..., outs] += dot(pixels[..., ins], weight[outs, r, s])
    return total.astype(np.int32)


def centred(x, source):
    """Codes without their zero point, as float32."""
    return (x - source["out"]["zero_point"]).astype(np.float32)


def scaled_value(node, inputs, sources):
    """t of the format's page: float32, in units of the output scale."""
    op, multiplier = node["op"], node["multiplier"]
    if op in WEIGHTED:
        t = fma(accumulate(inputs[0], node, sources[0]).astype(np.float32), multiplier, node["bias"])
        if len(inputs) == 2:
            t = fma(centred(inputs[1], sources[1]), np.float32(node["residual_multiplier"]), t)
        return t
    if op == "add":
        return fma(centred(inputs[1], sources[1]), multiplier[1], centred(inputs[0], sources[0]) * multiplier[0])
    if op == "mul":  # a second input of one pixel is numpy's broadcast; products of codes are exact in float32
        return centred(inputs[0], sources[0]) * centred(inputs[1], sources[1]) * multiplier[0]
    if op == "concat":
        return np.concatenate([centred(x, s) * m for x, s, m in zip(inputs, sources, multiplier)], axis=3)
    if op == "requantize":
        return centred(inputs[0], sources[0]) * multiplier[0]
    if op == "prelu":
        x = centred(inputs[0], sources[0])
        return x * np.where(x < 0, multiplier[1:].repeat(x.shape[3] // node["groups"]), multiplier[0])
    if op == "softmax":
        codes = heads(inputs[0].astype(np.int64), node["groups"])
        part = node["exponentials"].astype(np.int64)[codes.max(4, keepdims=True) - codes]
        share = part.astype(np.float32) / part.sum(4, keepdims=True).astype(np.float32)
        return share.reshape(inputs[0].shape) * multiplier[0]
    codes = inputs[0].astype(np.int64) - sources[0]["out"]["zero_point"]
    if op == "global_avg_pool":
        total = codes.sum((1, 2), keepdims=True)
    elif op == "resize_bilinear":
        rows, columns = (hats(size, factor) for size, factor in zip(codes.shape[1:3], node["factor"]))
        total = np.einsum("yh,nhwc,xw->nyxc", rows, codes, columns, optimize=True)
    elif op == "matmul":
        a, b = (heads(x.astype(np.float64), node["groups"]) for x in (codes, inputs[1] - float(sources[1]["out"]["zero_point"])))
        b = b.reshape(len(b), -1, *b.shape[3:]).transpose(0, 2, 1, 3)  # [N, groups, pixels, channels of a group]
        if node["transposed"]:
            b = b.swapaxes(2, 3)
        total = np.einsum("nhwgk,ngkm->nhwgm", a, b, optimize=True).reshape(*codes.shape[:3], -1).astype(np.int64)
    else:
        total = sum(pixels for _, _, pixels in taps(codes, node, 0))
    return total.astype(np.float32) * multiplier[0]


def heads(x, groups):
    """[N, H, W, C] as [N, H, W, groups, C / groups]."""
    return x.reshape(*x.shape[:3], groups, -1)


def hats(size, factor):
    """[size * factor, size]: how much of each input pixel an output pixel is, in 1 / (2 factor). A pixel's weight falls
    from its centre to 0 at the neighbours' centres; those of the image's edge go on outside."""
    outer, inner = np.arange(size * factor)[:, None], np.arange(-1, size + 1)[None, :]
    weight = np.maximum(2 * factor - np.abs(2 * outer + 1 - factor * (2 * inner + 1)), 0)
    weight[:, 1] += weight[:, 0]
    weight[:, -2] += weight[:, -1]
    return weight[:, 1:-1]


def passed_codes(node, x):
    """Codes without arithmetic."""
    if node["op"] == "flatten":
        return x.reshape(len(x), 1, 1, -1)  # memory order is H, W, C
    if node["op"] == "max_pool":
        lowest = np.iinfo(np.int16).min
        largest = np.maximum.reduce([pixels for _, _, pixels in taps(x, node, lowest)])
        return np.clip(largest, *node["clamp"]).astype(np.int16)
    if node["op"] == "slice":
        return x[..., node["first_channel"] : node["first_channel"] + node["shape"][0]]
    if node["op"] == "resize":
        return x.repeat(node["factor"][0], axis=1).repeat(node["factor"][1], axis=2)
    n, h, w, c = x.shape
    if node["op"] == "channel_shuffle":
        return x.reshape(n, h, w, node["groups"], -1).swapaxes(3, 4).reshape(n, h, w, c)
    if node["op"] == "depth_to_space":
        fh, fw = node["factor"]
        return x.reshape(n, h, w, fh, fw, -1).swapaxes(2, 3).reshape(n, h * fh, w * fw, -1)
    channels, (sh, sw) = node["shape"][0], node["window"]["stride"]
    before = (channels - x.shape[3]) // 2
    after = channels - x.shape[3] - before
    zero = node["out"]["zero_point"]
    return np.pad(x[:, ::sh, ::sw], ((0, 0), (0, 0), (0, 0), (before, after)), constant_values=zero)


def run(graph, images):
    """Yields (node, [N, H, W, C]) in order: codes, or float32 where the node gives floats."""
    nodes, codes = graph["nodes"], []
    last_use = {i: n for n, node in enumerate(nodes) for i in node["inputs"]}
    for n, node in enumerate(nodes):
        inputs, sources = [codes[i] for i in node["inputs"]], [nodes[i] for i in node["inputs"]]
        if node["op"] == "input":
            y = image_codes(images, node, graph["preprocessing"])
        elif node["op"] in PASSING:
            y = passed_codes(node, inputs[0])
        elif node["op"] == "lookup":
            tables = node["table"].reshape(-1, 256)  # one, or one a channel
            y = tables[np.arange(inputs[0].shape[3]) % len(tables), inputs[0] & 255].astype(np.int16)  # the low byte of a code is how it is stored
        else:
            t = scaled_value(node, inputs, sources)
            y = t if node["float_output"] else round_codes(t, node)
        codes.append(y)
        for i in set(node["inputs"]):
            if last_use[i] == n:
                codes[i] = None
        yield node, y
