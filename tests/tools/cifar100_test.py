#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/cifar100.py on images made here, with each of PNG's filters: the binary files have their pixels and classes."""
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
NAMES = [f"c{number:02}" for number in range(100)]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def predicted(kind, left, above, corner):
    estimate = left + above - corner
    near = min((left, above, corner), key=lambda value: abs(estimate - value))
    return {0: 0, 1: left, 2: above, 3: (left + above) // 2, 4: near}[kind]


def png(pixels, width=32):
    """pixels: [row][byte]. Row y is stored with filter y % 5."""
    stored = b""
    for y, row in enumerate(pixels):
        above = pixels[y - 1] if y else bytes(len(row))
        stored += bytes([y % 5]) + bytes((value - predicted(y % 5, row[i - 3] if i >= 3 else 0, above[i], above[i - 3] if i >= 3 else 0)) % 256
                                         for i, value in enumerate(row))
    header = struct.pack(">2I5B", width, len(pixels), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(stored)) + chunk(b"IEND", b"")


class Cifar100(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder, self.out = Path(temporary.name) / "cifar", Path(temporary.name) / "out"
        for name in NAMES:
            (self.folder / "train" / name).mkdir(parents=True)

    def write(self, name, pixels, **more):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pixels, **more))

    def call(self):
        return subprocess.run([sys.executable, str(TOOLS / "cifar100.py"), str(self.folder), str(self.out)], capture_output=True, text=True)

    def test_pixels_and_classes(self):
        made = {}
        for label, split in ((7, "train"), (93, "train"), (12, "test")):
            pixels = [random.Random(label * 100 + y).randbytes(96) for y in range(32)]
            self.write(f"{split}/{NAMES[label]}/a.png", pixels)
            made[label] = b"".join(bytes(row[i] for row in pixels for i in range(c, 96, 3)) for c in range(3))
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        train, test = (self.out / "train.bin").read_bytes(), (self.out / "test.bin").read_bytes()
        self.assertEqual((len(train), len(test)), (2 * 3074, 3074))
        records = {train[at + 1]: train[at + 2:at + 3074] for at in (0, 3074)}
        self.assertEqual(records, {7: made[7], 93: made[93]})
        self.assertEqual(test, bytes([0, 12]) + made[12])

    def test_what_is_no_such_set_is_named(self):
        self.write("train/c00/a.png", [bytes(96)] * 32)
        self.assertIn("/test: no class folder has a .png", self.call().stderr)
        self.write("train/c01/b.png", [bytes(93)] * 32, width=31)
        self.assertIn("train/c01/b.png: no 8-bit RGB PNG of 32x32: 31x32, 8 bits", self.call().stderr)
        (self.folder / "train/c01/b.png").write_bytes(b"\x89PNG")
        self.assertIn("b.png: no 8-bit RGB PNG", self.call().stderr)
        (self.folder / "train/more").mkdir()
        self.assertIn("train: 101 class folders, CIFAR-100 has 100", self.call().stderr)


if __name__ == "__main__":
    unittest.main()
