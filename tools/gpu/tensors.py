"""How far apart two files of float32 weights are. Standard library only: a GPU machine need not have more."""
import array
import json
import math
import struct


def read(path):
    """{name: values} of a .safetensors file's float32 tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: array.array("f", data[slice(*tensor["data_offsets"])]) for name, tensor in header.items() if tensor["dtype"] == "F32"}


def largest_distance(one, other):
    """|a - b| / |a| in L2: over all values, and of the tensor where it is largest."""
    first, second = read(one), read(other)
    if first.keys() != second.keys():
        raise ValueError(f"{one} and {other} hold different tensors")
    squares = {name: (sum((a - b) ** 2 for a, b in zip(first[name], second[name])), sum(a * a for a in first[name])) for name in first}
    apart = {name: math.sqrt(difference / max(size, 1e-60)) for name, (difference, size) in squares.items()}
    largest = max(apart, key=apart.get)
    of_all = math.sqrt(sum(difference for difference, _ in squares.values()) / sum(size for _, size in squares.values()))
    return {"largest": apart[largest], "of": largest, "of_all": of_all}
