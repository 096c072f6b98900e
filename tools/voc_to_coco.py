#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes COCO's JSON beside a data set in Pascal VOC's layout, so that octet trains on it (data.format: coco).

usage: voc_to_coco.py FOLDER

FOLDER has ImageSets/Main/SPLIT.txt (names, one a line), Annotations/NAME.xml and JPEGImages/NAME.jpg. Each split becomes
FOLDER/SPLIT.json, whose images are named from FOLDER on. Classes are the names in all splits, sorted; objects
that are marked difficult become crowds: they are not trained on, and finding them neither helps nor harms.
"""
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def read(path: Path) -> tuple[dict, list[dict]]:
    """Returns image and objects of an annotation file; ends the program with its name where something is missing."""
    try:
        root = xml.parse(path).getroot()
        size = {side: int(root.find("size").find(side).text) for side in ("width", "height")}
        objects = []
        for entry in root.iter("object"):
            corner = {key: float(entry.find("bndbox").find(key).text) for key in ("xmin", "ymin", "xmax", "ymax")}
            difficult = entry.find("difficult")
            # Corners are pixels, counted from 1, and belong to the box (VOC2012's devkit, section 4.2).
            objects.append({"name": entry.find("name").text.strip(),
                            "bbox": [corner["xmin"] - 1, corner["ymin"] - 1, corner["xmax"] - corner["xmin"] + 1,
                                     corner["ymax"] - corner["ymin"] + 1],
                            "iscrowd": int(difficult is not None and difficult.text.strip() == "1")})
        return size, objects
    except (OSError, xml.ParseError, AttributeError, ValueError) as error:
        sys.exit(f"{path}: no annotation of Pascal VOC: {error}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    lists = {file.stem: file.read_text() for file in sorted((folder / "ImageSets/Main").glob("*.txt"))}
    # CLASS_SPLIT.txt says "NAME 1" or "NAME -1" of one class.
    splits = {name: text.split() for name, text in lists.items() if all(len(line.split()) < 2 for line in text.splitlines())}
    if not splits:
        sys.exit(f"{folder}/ImageSets/Main: no list of images")
    found = {name: read(folder / f"Annotations/{name}.xml") for names in splits.values() for name in names}
    classes = sorted({entry["name"] for _, objects in found.values() for entry in objects})
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, 1)]
    for split, names in splits.items():
        images, annotations = [], []
        for number, name in enumerate(names, 1):
            size, objects = found[name]
            images.append({"id": number, "file_name": f"JPEGImages/{name}.jpg", **size})
            for entry in objects:
                annotations.append({"id": len(annotations) + 1, "image_id": number, "bbox": entry["bbox"],
                                    "area": entry["bbox"][2] * entry["bbox"][3], "iscrowd": entry["iscrowd"],
                                    "category_id": 1 + classes.index(entry["name"])})
        text = json.dumps({"images": images, "categories": categories, "annotations": annotations})
        (folder / f"{split}.json").write_text(text)
        print(f"{folder}/{split}.json: {len(images)} images, {len(annotations)} boxes")


if __name__ == "__main__":
    main()
