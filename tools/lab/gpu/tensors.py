# SPDX-License-Identifier: Apache-2.0
"""How far apart two files of float32 weights are. Standard library only: a GPU machine need not have more."""
import array
import json
import math
import struct


def parsed(data):
    """A .safetensors file's metadata, and {name: values} of its float32 tensors."""
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__", {})
    places = {name: [begin + offset for offset in tensor["data_offsets"]] for name, tensor in header.items() if tensor["dtype"] == "F32"}
    return metadata, {name: array.array("f", data[first:last]) for name, (first, last) in places.items()}


def largest_distance(one, other):
    """Of the tensors of two files, see distance()."""
    return distance(*(parsed(path.read_bytes())[1] for path in (one, other)))


def distance(first, second):
    """|a - b| / |a| in L2: over all values, and of the tensor where it is largest."""
    if first.keys() != second.keys():
        raise ValueError("files of different tensors")
    squares = {name: (sum((a - b) ** 2 for a, b in zip(first[name], second[name])), sum(a * a for a in first[name])) for name in first}
    apart = {name: math.sqrt(difference / max(size, 1e-60)) for name, (difference, size) in squares.items()}
    largest = max(apart, key=apart.get)
    of_all = math.sqrt(sum(difference for difference, _ in squares.values()) / sum(size for _, size in squares.values()))
    return {"largest": apart[largest], "of": largest, "of_all": of_all}
