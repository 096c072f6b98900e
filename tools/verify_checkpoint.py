#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The independent witness: computes an int8 checkpoint's codes and logits from docs/FORMAT.md alone, with numpy.

  verify_checkpoint.py int8.safetensors                           check the file
  verify_checkpoint.py int8.safetensors --images test.npy         a classifier's logits of uint8 [N, H, W, C] images (or PNG files)
  verify_checkpoint.py int8.safetensors --against DUMP...            hold engines' dumps (octet run --dump) to it

Exit codes: 0 good, 1 a layer differs, 2 usage, 3 a file is missing, damaged or not of this format.
Shares no code with octet. Needs numpy; Pillow only for PNG files.
"""

import argparse
import json
import math
import struct
import sys

import numpy as np

from witness_codes import PASSING, WEIGHTED, largest_code, run

FORMAT_VERSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
NEW_IN = {"lookup": 2, "mul": 2, "slice": 3, "resize": 3, "channel_shuffle": 4, "depth_to_space": 4, "resize_bilinear": 5}
NEW_IN |= {"matmul": 8, "softmax": 8, "prelu": 10}
PACKED_SINCE = 6
SPARSE_SINCE = 7
ORIENTED_SINCE = 9
FITTED_SINCE = 11
CHANNEL_TABLES_SINCE = 12
BOXES_SINCE = 13
DTYPES = {"F32": "<f4", "I32": "<i4", "I8": "i1", "U8": "u1"}
SCALED = WEIGHTED + ("add", "mul", "concat", "avg_pool", "global_avg_pool", "requantize", "resize_bilinear", "matmul", "softmax", "prelu")
WINDOWED = ("conv2d", "max_pool", "avg_pool", "subsample_pad")


class BadFile(Exception):
    """A file that is not what the format says."""


def check(good, message):
    if not good:
        raise BadFile(message)


# ---------------------------------------------------------------- files


def read_safetensors(path):
    """{name: array}, {key: metadata string}."""
    with open(path, "rb") as file:
        data = file.read()
    check(len(data) >= 8, "shorter than 8 bytes")
    (size,) = struct.unpack("<Q", data[:8])
    check(size <= len(data) - 8, "header longer than the file")
    header = json.loads(data[8 : 8 + size].decode("utf-8"))
    metadata = header.pop("__metadata__", {})
    body, tensors, end = data[8 + size :], {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        check(entry["dtype"] in DTYPES, f"tensor '{name}': dtype {entry['dtype']}")
        dtype, (begin, stop) = np.dtype(DTYPES[entry["dtype"]]), entry["data_offsets"]
        check(begin == end and begin <= stop <= len(body), f"tensor '{name}': offsets {begin}, {stop}")
        check(stop - begin == math.prod(entry["shape"]) * dtype.itemsize, f"tensor '{name}': bytes do not fit its shape")
        tensors[name] = np.frombuffer(body[begin:stop], dtype).reshape(entry["shape"])
        end = stop
    check(end == len(body), "data after the last tensor")
    return tensors, metadata


def read_checkpoint(path):
    """The checkpoint's document, with each node's tensors under their names."""
    tensors, metadata = read_safetensors(path)
    check("octet" in metadata, "no 'octet' in the metadata: not an octet checkpoint")
    graph = json.loads(metadata["octet"])
    check(graph["format_version"] in FORMAT_VERSIONS, f"format version {graph['format_version']}")
    if graph["format_version"] < 3:
        graph["outputs"] = [len(graph["nodes"]) - 1]
        for node in graph["nodes"]:
            if "window" in node:
                node["window"]["pad"] *= 2
    check_outputs(graph["nodes"], graph["outputs"])
    for node in graph["nodes"]:
        names = ("multiplier",) if node["op"] in SCALED else ()
        names += ("weight", "bias", "weight_scale") if node["op"] in WEIGHTED else ()
        names += ("table",) if node["op"] == "lookup" else ()
        names += ("exponentials",) if node["op"] == "softmax" else ()
        version = graph["format_version"]
        if node["op"] == "lookup":
            check(("groups" in node) == (version >= CHANNEL_TABLES_SINCE), f"node '{node['name']}': groups in a lookup of version {version}")
            names += ("multiplier",) if node.setdefault("groups", 1) != 1 else ()
        check(version >= NEW_IN.get(node["op"], 1), f"a {node['op']} in a file of format version {version}")
        for name in names:
            key = f"{node['name']}.{name}"
            check(key in tensors, f"tensor '{key}' is missing")
            node[name] = tensors.pop(key)
        has_bits = version >= PACKED_SINCE and node["op"] in WEIGHTED
        check(("weight_bits" in node) == has_bits, f"node '{node['name']}': weight_bits in a {node['op']} of version {version}")
        bits = node.setdefault("weight_bits", 8)
        check(type(bits) is int and 2 <= bits <= 8, f"node '{node['name']}': weights of {bits} bits")
        has_sparsity = version >= SPARSE_SINCE and node["op"] in WEIGHTED
        check(("sparsity" in node) == has_sparsity, f"node '{node['name']}': sparsity in a {node['op']} of version {version}")
        check(node.setdefault("sparsity", "none") in ("none", "2:4"), f"node '{node['name']}': sparsity {node['sparsity']}")
    check(not tensors, f"tensors of no node: {sorted(tensors)[:3]}")
    for index, node in enumerate(graph["nodes"]):
        try:
            check_node(graph["nodes"], index, node)
        except BadFile as error:
            raise BadFile(f"node {index} '{node['name']}' ({node['op']}): {error}") from error
    for key, choices in (("orientation", ("exif", "as_stored")), ("crop_margin", ("half_to_even", "down"))):
        check((key in graph["preprocessing"]) == (graph["format_version"] >= ORIENTED_SINCE), f"preprocessing: {key} in this version")
        check(graph["preprocessing"].get(key, choices[1]) in choices, f"preprocessing: {key} {graph['preprocessing'].get(key)}")
    for key, choices in (("fit", ("crop", "stretch", "letterbox", "letterbox_corner", "tensor")), ("channel_order", ("rgb", "bgr"))):
        check((key in graph["preprocessing"]) == (graph["format_version"] >= FITTED_SINCE), f"preprocessing: {key} in this version")
        check(graph["preprocessing"].get(key, choices[0]) in choices, f"preprocessing: {key} {graph['preprocessing'].get(key)}")
    check(("boxes" in graph) == (graph["format_version"] >= BOXES_SINCE), "boxes in this version")
    mean, std = graph["preprocessing"]["mean"], graph["preprocessing"]["std"]
    check(len(mean) == len(std) == graph["nodes"][0]["shape"][0], "one mean and std a channel")
    return graph


def unpacked(nodes, node):
    """The weight's codes from its packed bytes: code i in bits [i * b, (i + 1) * b), the lowest first, two's complement."""
    bits, packed, inputs = node["weight_bits"], node["weight"], nodes[node["inputs"][0]]["shape"]
    linear = node["op"] == "linear"
    shape = (node["shape"][0], inputs[0]) if linear else (node["shape"][0], *node["window"]["kernel"], inputs[0] // node["groups"])
    check(packed.dtype == np.uint8 and packed.ndim == 1, f"packed weights of {bits} bits are U8 in one dimension")
    count = math.prod(shape)
    check(len(packed) == (count * bits + 7) // 8, f"{len(packed)} bytes of packed weights for {count} of {bits} bits")
    stream = np.unpackbits(packed, bitorder="little")
    check(not stream[count * bits :].any(), "bits behind the last weight")
    codes = stream[: count * bits].reshape(count, bits).astype(np.int32) @ (1 << np.arange(bits))
    return np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(np.int8).reshape(shape)


def check_outputs(nodes, outputs):
    indices = isinstance(outputs, list) and all(type(i) is int for i in outputs)
    check(indices, f"outputs {outputs}: expected a list of nodes' indices")
    check(outputs and len(set(outputs)) == len(outputs), f"outputs {outputs}")
    check(all(0 < i < len(nodes) for i in outputs), f"outputs {outputs} are not nodes behind the input")
    for index, node in enumerate(nodes):
        check(not node["float_output"] or index in outputs, f"node '{node['name']}' gives floats and is no output")
        check(not any(nodes[i]["float_output"] for i in node["inputs"]), f"node '{node['name']}' reads floats")


def output_shape(node, shapes):
    """[C, H, W] from the inputs' shapes."""
    op, (c, h, w) = node["op"], shapes[0]
    if op == "linear":
        check((h, w) == (1, 1), "input is not flat")
        return [node["shape"][0], 1, 1]
    if op == "concat":
        check(all(s[1:] == [h, w] for s in shapes), "inputs of different size")
        return [sum(s[0] for s in shapes), h, w]
    if op == "global_avg_pool":
        return [c, 1, 1]
    if op == "flatten":
        return [c * h * w, 1, 1]
    if op == "slice":
        check(0 <= node["first_channel"] <= c - node["shape"][0], "channels that the input does not have")
        return [node["shape"][0], h, w]
    if op in ("resize", "resize_bilinear"):
        check(min(node["factor"]) >= 1, f"factor {node['factor']}")
        check(op == "resize" or 4 * 255 * math.prod(node["factor"]) <= 2**24, f"factor {node['factor']}: sums beyond float32")
        return [c, h * node["factor"][0], w * node["factor"][1]]
    if op == "matmul":
        (other, oh, ow), groups = shapes[1], node["groups"]
        check(groups >= 1 and c % groups == 0 and other % groups == 0, f"{c} and {other} channels in {groups} groups")
        check(c // groups * 255 * 255 < 2**31, f"sums of {c // groups} products")
        check(c == (other if node["transposed"] else groups * oh * ow), f"{shapes[0]} by {shapes[1]} in {groups} groups")
        return [groups * oh * ow if node["transposed"] else other, h, w]
    if op == "softmax":
        check(node["groups"] >= 1 and c % node["groups"] == 0, f"{c} channels in {node['groups']} groups")
        check(c // node["groups"] * 2**15 < 2**31, f"sums over {c // node['groups']} channels")
    if op in ("channel_shuffle", "prelu"):
        check(node["groups"] >= 1 and c % node["groups"] == 0, f"{c} channels in {node['groups']} groups")
    if op == "depth_to_space":
        fh, fw = node["factor"]
        check(min(fh, fw) >= 1 and c % (fh * fw) == 0, f"{c} channels as {fh} x {fw} pixels")
        return [c // (fh * fw), h * fh, w * fw]
    if op == "subsample_pad":
        stride = node["window"]["stride"]
        return [node["shape"][0], (h - 1) // stride[0] + 1, (w - 1) // stride[1] + 1]
    if op in WINDOWED:
        win = node["window"]
        extent = [d * (k - 1) + 1 for k, d in zip(win["kernel"], win["dilation"])]
        top, left, bottom, right = win["pad"]
        padded = (h + top + bottom, w + left + right)
        size = [(x - e) // s + 1 for x, e, s in zip(padded, extent, win["stride"])]
        return [node["shape"][0] if op == "conv2d" else c] + size
    return [c, h, w]


def check_node(nodes, index, node):
    op, out, shape = node["op"], node["out"], node["shape"]
    check((op == "input") == (index == 0), "the input is node 0")
    check(all(0 <= i < index for i in node["inputs"]), "inputs must be earlier nodes")
    check(min(shape) >= 1, f"shape {shape}")
    lo, hi = (-128, 127) if out["quant_min"] < 0 else (0, 255)
    check(lo <= out["quant_min"] <= out["zero_point"] <= out["quant_max"] <= hi, "codes beyond 8 bits")
    check(out["quant_min"] <= node["clamp"][0] <= node["clamp"][1] <= out["quant_max"], "clamp outside the codes")
    check(out["scale"] > 0 and math.isfinite(out["scale"]), "scale")
    check(not node["float_output"] or op not in ("input", *PASSING), "copies codes, so it cannot give floats")
    if op == "input":
        return
    inputs = [nodes[i] for i in node["inputs"]]
    check(shape == output_shape(node, [i["shape"] for i in inputs]), f"shape {shape} does not follow from the inputs")
    if op in PASSING:
        check(out == inputs[0]["out"], "must have its input's scale and codes")
    if op in PASSING and op != "max_pool":
        check(node["clamp"] == [out["quant_min"], out["quant_max"]], "does not clamp")
    if op in WEIGHTED:
        if node["weight_bits"] < 8:
            node["weight"] = unpacked(nodes, node)
        weight, magnitude = node["weight"], largest_code(inputs[0])
        groups = node.get("groups", 1)
        kernel = tuple(node["window"]["kernel"]) if op == "conv2d" else ()
        check(weight.dtype == np.int8, "weights must be I8")
        check(weight.shape == (shape[0], *kernel, inputs[0]["shape"][0] // groups), f"weight shape {weight.shape}")
        check(weight.min() >= -127, "weight code -128")
        if node["sparsity"] == "2:4":
            check(weight.shape[-1] % 4 == 0, f"2:4 sparse with {weight.shape[-1]} input channels")
            check((weight.reshape(-1, 4) != 0).sum(1).max() <= 2, "2:4 sparse, but more than two of four weights are not 0")
        check(np.abs(weight.astype(np.int64)).reshape(shape[0], -1).sum(1).max() * magnitude < 2**31, "int32 overflow")
        check(node["bias"].shape == node["multiplier"].shape == (shape[0],), "one multiplier and bias a channel")
    if op == "lookup":
        table, (lowest, highest) = node["table"], node["clamp"]
        check(node["groups"] in (1, shape[0]), f"groups {node['groups']}: one table, or one a channel")
        check(table.dtype == (np.int8 if lo < 0 else np.uint8) and table.shape == (256 * node["groups"],), "a table has 256 codes of its edge's type")
        if node["groups"] > 1:
            check(node["multiplier"].shape == (2 * shape[0],) and node["multiplier"].min() > 0, "two positive scales a channel")
        check(lowest <= table.min() and table.max() <= highest, "a table entry is outside the clamp")
        check(not node["float_output"], "a lookup gives codes, not floats")
    if op == "softmax":
        table = node["exponentials"]
        check(table.dtype == np.int32 and table.shape == (256,), "256 exponentials, I32")
        check(table[0] == 2**15 and table.min() >= 0 and table.max() <= 2**15, "exponentials outside 0..32768, or the first below")
    if op == "conv2d" and len(inputs) == 2:
        check(inputs[1]["shape"] == shape, "the residual has another shape")
    if op in ("add", "concat"):
        check(node["multiplier"].shape == (len(inputs),), "one multiplier an input")
    if op == "prelu":
        check(node["multiplier"].shape == (1 + node["groups"],), "one multiplier, and one a group")
    if op == "mul":
        check(len(inputs) == 2 and inputs[1]["shape"] in (shape, [shape[0], 1, 1]), "the second input has another shape")
    if op == "add":
        check(all(i["shape"] == shape for i in inputs) and len(inputs) == 2, "two inputs of one shape")


# ---------------------------------------------------------------- command line


def read_images(paths, shape):
    c, h, w = shape
    if len(paths) == 1 and paths[0].endswith(".npy"):
        images = np.load(paths[0], allow_pickle=False)
    else:
        from PIL import Image  # only here

        mode = {1: "L", 3: "RGB"}[c]
        images = np.stack([np.asarray(Image.open(path).convert(mode)) for path in paths])
    images = images.reshape(*images.shape[:3], -1)
    check(images.dtype == np.uint8 and images.shape[1:] == (h, w, c), f"images must be uint8 [N, {h}, {w}, {c}]")
    return images


def compare(node, mine, theirs):
    """"" if equal, else a line about the difference. Floats are compared by their bits."""
    if node["float_output"]:
        mine, theirs = mine.view(np.int32), np.ascontiguousarray(theirs).view(np.int32)
    if mine.shape != theirs.shape:
        return f"{node['name']}: shape {list(theirs.shape)}, the witness has {list(mine.shape)}"
    different = np.argwhere(mine != theirs)
    if len(different) == 0:
        return ""
    place = tuple(int(i) for i in different[0])
    lsb = int(np.abs(mine.astype(np.int64) - theirs.astype(np.int64)).max())
    return (
        f"{node['name']} ({node['op']}): {len(different)} of {mine.size} values differ, by up to {lsb}; first at {list(place)}: "
        f"witness {mine[place]}, dump {theirs[place]}"
    )


def against(graph, paths, images, limit):
    """Number of layers that agree in all dumps, the line about the first one that does not, number of images."""
    dumps = [read_safetensors(path)[0] for path in paths]
    if images is None:
        check("images" in dumps[0], f"{paths[0]}: no tensor 'images'; give --images")
        images = dumps[0]["images"]
    images = images[:limit]
    agreed = 0
    for node, mine in run(graph, images):
        key = ("values/" if node["float_output"] else "codes/") + node["name"]
        for path, dump in zip(paths, dumps):
            check(key in dump, f"{path}: tensor '{key}' is missing")
            line = compare(node, mine, dump[key][:limit])
            if line:
                return agreed, f"{path}: {line}", len(images)
        agreed += 1
    return agreed, "", len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--images", nargs="+", metavar="FILE", help="one .npy of uint8 [N, H, W, C], or PNG files")
    parser.add_argument("--against", nargs="+", metavar="DUMP", help="hold these dumps of engines' codes to the witness")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="only the first N images")
    options = parser.parse_args()
    try:
        graph = read_checkpoint(options.checkpoint)
        shape = graph["nodes"][0]["shape"]
        print(f"{options.checkpoint}: {graph['name']}, {len(graph['nodes'])} nodes, input {shape}: good")
        images = read_images(options.images, shape) if options.images else None
        if options.against:
            agreed, line, count = against(graph, options.against, images, options.limit)
            if line:
                print(f"DIFFERENT after {agreed} equal layers: {line}")
                return 1
            print(f"EQUAL: {agreed} layers, {count} images")
        elif images is not None:
            check(len(graph["outputs"]) == 1, f"a classifier has one output, this network {len(graph['outputs'])}")
            values = [y for _, y in run(graph, images[: options.limit])][graph["outputs"][0]]
            names = graph["class_names"]
            for i, row in enumerate(values.reshape(len(values), -1)):
                best = int(np.argmax(row))
                print(f"{i}: {names[best] if names else best} {row[best]:.6g}")
        return 0
    except (BadFile, OSError, LookupError, ArithmeticError, TypeError, ValueError) as error:
        print(f"verify_checkpoint: {error.__class__.__name__}: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
