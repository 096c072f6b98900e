#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes CIFAR-100's binary files from its images in class folders, so that octet reads them into memory (data.format: cifar100).

usage: cifar100.py FOLDER OUT

FOLDER has train/CLASS/*.png and test/CLASS/*.png, as github.com/cyizhuo/CIFAR-100-dataset: 8-bit RGB of 32x32. OUT/train.bin and
OUT/test.bin get a record each, shuffled by name: a byte 0 in the place of the coarse class, which octet does not read, the class by
the sorted names of all 100, and three planes.
"""
import hashlib
import struct
import sys
import zlib
from pathlib import Path

SIDE, CLASSES = 32, 100


def chunks(data):
    at = 8
    while at + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        yield kind, data[at + 8:at + 8 + length]
        at += length + 12


def unfiltered(kind, row, above):
    """The row of a PNG: each byte is what is stored plus what its filter predicts from the bytes to the left and above."""
    row = bytearray(row)
    for i, value in enumerate(row):
        left, corner = (row[i - 3], above[i - 3]) if i >= 3 else (0, 0)
        near = min((left, above[i], corner), key=lambda of: abs(left + above[i] - corner - of))
        row[i] = (value + (0, left, above[i], (left + above[i]) // 2, near)[kind]) % 256
    return bytes(row)


def planes(path):
    """Returns red, green and blue of an image, each 32x32; ends the program with its name where it is no such PNG."""
    try:
        data = path.read_bytes()
        found = list(chunks(data))
        width, height, depth, colour, _, _, interlaced = struct.unpack(">2I5B", found[0][1])
        if data[:8] != b"\x89PNG\r\n\x1a\n" or (width, height, depth, colour, interlaced) != (SIDE, SIDE, 8, 2, 0):
            raise ValueError(f"{width}x{height}, {depth} bits, colour type {colour}")
        stored = zlib.decompress(b"".join(part for kind, part in found if kind == b"IDAT"))
        line, rows = 1 + 3 * SIDE, [bytes(3 * SIDE)]
        for y in range(SIDE):
            rows.append(unfiltered(stored[y * line], stored[y * line + 1:(y + 1) * line], rows[-1]))
    except (OSError, ValueError, IndexError, struct.error, zlib.error) as error:
        sys.exit(f"{path}: no 8-bit RGB PNG of {SIDE}x{SIDE}: {error}")
    pixels = b"".join(rows[1:])
    return pixels[0::3] + pixels[1::3] + pixels[2::3]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    names = sorted(path.name for path in (folder / "train").glob("*") if path.is_dir())
    if len(names) != CLASSES:
        sys.exit(f"{folder}/train: {len(names)} class folders, CIFAR-100 has {CLASSES}")
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        files = [(path, label) for label, name in enumerate(names) for path in (folder / split / name).glob("*.png")]
        if not files:
            sys.exit(f"{folder}/{split}: no class folder has a .png")
        files.sort(key=lambda file: hashlib.sha256(f"{file[0].parent.name}/{file[0].name}".encode()).digest())
        with open(out / f"{split}.bin", "wb") as binary:
            for path, label in files:
                binary.write(bytes([0, label]) + planes(path))
        print(f"{out}/{split}.bin: {len(files)} images")


if __name__ == "__main__":
    main()
