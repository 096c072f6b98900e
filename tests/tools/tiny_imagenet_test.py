# SPDX-License-Identifier: Apache-2.0
"""tools/tiny_imagenet.py on a data set of a few files: what the archive holds, and its way in parts."""
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "tiny_imagenet.py"


class TinyImageNet(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.data, self.tar = self.folder / "tiny-imagenet-200", self.folder / "tiny.tar"
        for name in ("n02", "n01"):
            for number in (0, 1, 10):
                self.put(f"train/{name}/images/{name}_{number}.JPEG", f"{name} {number}")
        for number, name in enumerate(("n02", "n01", "n02")):
            self.put(f"val/images/val_{number}.JPEG", f"val {number} {name}")
        self.put("test/images/test_0.JPEG", "of no known class")
        (self.data / "val/val_annotations.txt").write_text("".join(f"val_{number}.JPEG\t{name}\t0\t0\t9\t9\n" for number, name in enumerate(
            ("n02", "n01", "n02"))))

    def put(self, name, content):
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff" + content.encode())

    def call(self, *words):
        return subprocess.run([sys.executable, "-B", TOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def members(self):
        with tarfile.open(self.tar) as tar:
            return {member.name: tar.extractfile(member).read()[3:].decode() for member in tar.getmembers()}

    def test_val_becomes_test_in_folders_of_its_labels(self):
        done = self.call("make", self.data, self.tar)
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.tar}: 6 training and 3 test images\n"), done.stderr)
        train = {f"train/{name}/{name}_{number}.jpeg": f"{name} {number}" for name in ("n01", "n02") for number in (0, 1, 10)}
        self.assertEqual(self.members(), {**train, "test/n01/val_1.jpeg": "val 1 n01", "test/n02/val_0.jpeg": "val 0 n02", "test/n02/val_2.jpeg": "val 2 n02"})
        before = self.tar.read_bytes()
        self.call("make", self.data, self.tar)
        self.assertEqual(self.tar.read_bytes(), before)

    def test_a_few_classes_and_images(self):
        self.assertEqual(self.call("make", self.data, self.tar, "--classes", "1", "--pictures", "2").returncode, 0)
        self.assertEqual(set(self.members()), {"train/n01/n01_0.jpeg", "train/n01/n01_1.jpeg", "test/n01/val_1.jpeg"})

    def test_what_is_missing_is_named_and_leaves_no_archive(self):
        (self.data / "val/val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t9\t9\n")
        self.assertIn("no test image of n01", self.call("make", self.data, self.tar).stderr)
        self.assertIn("train/WNID", self.call("make", self.folder, self.tar).stderr)
        self.put("train/n01/images/n01_0.JPEG", "")
        (self.data / "train/n01/images/n01_0.JPEG").write_text("text")
        self.assertIn("n01_0.JPEG is no JPEG", self.call("make", self.data, self.tar).stderr)
        self.assertFalse(self.tar.exists())

    def test_parts_are_small_joined_again_and_checked(self):
        self.tar.write_bytes(random.Random(1).randbytes(5 << 20) + b"the end")
        parts, again = self.folder / "parts", self.folder / "again.tar"
        self.assertIn("6 parts", self.call("split", self.tar, parts, "--limit", "1").stdout)
        self.assertLessEqual(max(path.stat().st_size for path in parts.iterdir()), 1 << 20)
        self.assertEqual(self.call("join", parts, again).returncode, 0)
        self.assertEqual(again.read_bytes(), self.tar.read_bytes())
        self.assertIn("is not empty", self.call("split", self.tar, parts).stderr)
        again.unlink()
        third = parts / "tiny.tar.gz.3"
        whole = third.read_bytes()
        third.write_bytes(whole[:1000] + bytes(24) + whole[1024:])
        self.assertIn("came damaged", self.call("join", parts, again).stderr)
        third.unlink()
        self.assertIn("still to come: tiny.tar.gz.3", self.call("join", parts, again).stderr)
        self.assertFalse(again.exists())


if __name__ == "__main__":
    unittest.main()
