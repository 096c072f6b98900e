#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data sets of made-up boxes in the layouts of NEU-DET and DeepPCB become COCO's JSON."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def voc(objects):
    text = "".join(f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>{box[0]}</xmin>"
                   f"<ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
                   for name, difficult, box in objects)
    return f"<annotation><size><width>200</width><height>100</height><depth>1</depth></size>{text}</annotation>"


class ToCoco(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = Path(self.temporary.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tool(self, tool):
        return subprocess.run([sys.executable, str(TOOLS / tool), str(self.folder)], capture_output=True, text=True)

    def read(self, tool, split):
        done = self.run_tool(tool)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / f"{split}.json").read_text())

    def refusal(self, tool):
        done = self.run_tool(tool)
        self.assertEqual(done.returncode, 1)
        return done.stderr

    def test_neu_det_is_dealt(self):
        for kind in ("crazing", "patches"):
            for number in range(10):
                folder = "Validation_" if number == 5 else ""
                annotations = f"{folder}Annotations" if folder else "ANNOTATIONS"
                self.write(f"{annotations}/{kind}_{number}.xml", voc([(kind, 0, (1, 1, 100, 50))]))
        splits = {split: self.read("neu_det_to_coco.py", split) for split in ("train", "val", "test")}
        self.assertEqual([len(s["images"]) for s in splits.values()], [14, 2, 4])
        self.assertEqual(len({i["file_name"] for s in splits.values() for i in s["images"]}), 20)
        for split in splits.values():  # each kind in each
            self.assertEqual({c["category_id"] for c in split["annotations"]}, {1, 2})
        names = [i["file_name"] for i in splits["train"]["images"]]
        self.assertIn("IMAGES/crazing_0.jpg", names)
        self.assertIn("Validation_Images/crazing_5.jpg", names)
        self.assertEqual(splits["train"]["annotations"][0]["bbox"], [0, 0, 100, 50])
        self.assertEqual({a["iscrowd"] for a in splits["train"]["annotations"]}, {0})
        self.write("ANNOTATIONS/crazing_0.xml", voc([("crazing", 1, (5, 5, 5, 5))]))
        first = self.read("neu_det_to_coco.py", "train")["annotations"][0]
        self.assertEqual((first["bbox"], first["iscrowd"]), ([4, 4, 1, 1], 1))
        self.write("ANNOTATIONS/crazing_0.xml", "<annotation/>")
        self.assertIn("ANNOTATIONS/crazing_0.xml: no annotation of Pascal VOC", self.refusal("neu_det_to_coco.py"))

    def test_nothing_is_named(self):
        self.assertIn("no .xml files in ANNOTATIONS", self.refusal("neu_det_to_coco.py"))
        self.assertIn("trainval.txt: no such file; name the folder PCBData", self.refusal("deeppcb_to_coco.py"))

    def test_deeppcb(self):
        self.write("trainval.txt", "g1/1/100.jpg g1/1_not/100.txt\ng1/1/101.jpg g1/1_not/101.txt\n")
        self.write("test.txt", "g2/2/200.jpg g2/2_not/200.txt\n")
        self.write("g1/1_not/100.txt", "10 20 40 60 1\n466 441 493 470 6\n")
        self.write("g1/1_not/101.txt", "")
        self.write("g2/2_not/200.txt", "1,2,3,4,3\n")
        train = self.read("deeppcb_to_coco.py", "trainval")
        self.assertEqual([i["file_name"] for i in train["images"]], ["g1/1/100_test.jpg", "g1/1/101_test.jpg"])
        self.assertEqual(train["images"][0]["width"], 640)
        self.assertEqual([(a["image_id"], a["category_id"], a["bbox"]) for a in train["annotations"]],
                         [(1, 1, [10, 20, 30, 40]), (1, 6, [466, 441, 27, 29])])
        self.assertEqual([c["name"] for c in train["categories"]][2:4], ["mousebite", "spur"])
        self.assertEqual(self.read("deeppcb_to_coco.py", "test")["annotations"][0]["bbox"], [1, 2, 2, 2])
        for line in ("10 20 40 60", "10 20 40 60 7", "10 20 40 x 1"):
            self.write("g2/2_not/200.txt", f"1 2 3 4 1\n{line}\n")
            self.assertIn(f"g2/2_not/200.txt:2: '{line}' is not x1 y1 x2 y2 type", self.refusal("deeppcb_to_coco.py"))
        self.write("g2/2_not/200.txt", "9 2 3 4 1\n")
        self.assertIn("200.txt:1: a box of negative size", self.refusal("deeppcb_to_coco.py"))
        (self.folder / "g2/2_not/200.txt").unlink()
        self.assertIn("g2/2_not/200.txt: No such file", self.refusal("deeppcb_to_coco.py"))
        self.write("test.txt", "g2/2/200.jpg\n")
        self.assertIn("test.txt:1: 'g2/2/200.jpg' is not an image and its annotations", self.refusal("deeppcb_to_coco.py"))


if __name__ == "__main__":
    unittest.main()
