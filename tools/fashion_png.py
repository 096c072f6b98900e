#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the first COUNT Fashion-MNIST test images as FOLDER/00000.png, ... for `octet run`:  tools/fashion_png.py COUNT FOLDER"""
import gzip
import os
import struct
import sys
import zlib

IMAGES = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(path, width, height, pixels):
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(height))
    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def main(count, folder):
    os.makedirs(folder, exist_ok=True)
    with gzip.open(IMAGES) as file:
        _, images, height, width = struct.unpack(">4I", file.read(16))
        for index in range(min(count, images)):
            write_png(os.path.join(folder, f"{index:05}.png"), width, height, file.read(width * height))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(int(sys.argv[1]), sys.argv[2])
