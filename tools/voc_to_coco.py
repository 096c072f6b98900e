#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes COCO's JSON beside a data set in Pascal VOC's layout, so that octet trains on it (data.format: coco).

usage: voc_to_coco.py FOLDER

FOLDER has ImageSets/Main/SPLIT.txt (names, one a line), Annotations/NAME.xml and JPEGImages/NAME.jpg. Each split becomes
FOLDER/SPLIT.json, whose images are named from FOLDER on. Or it has no lists, as NEU-DET (IMAGES, ANNOTATIONS and
Validation_Images, Validation_Annotations): then of ten images in a row, by name, seven are dealt to train, one to val and
two to test. Classes are the names in all splits, sorted; objects that are marked difficult become crowds: they are not
trained on, and finding them neither helps nor harms.
"""
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

LISTED = ("JPEGImages", "Annotations")
UNLISTED = (("IMAGES", "ANNOTATIONS"), ("Validation_Images", "Validation_Annotations"))
DEALT = ("train",) * 7 + ("val",) + ("test",) * 2


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


def write(folder: Path, splits: dict[str, list], classes: list[str]) -> None:
    """Writes FOLDER/SPLIT.json. splits: of each image its file, size and objects (name, bbox, iscrowd)."""
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, 1)]
    for split, all_images in splits.items():
        images, annotations = [], []
        for number, (file, size, objects) in enumerate(all_images, 1):
            images.append({"id": number, "file_name": file, **size})
            for entry in objects:
                annotations.append({"id": len(annotations) + 1, "image_id": number, "bbox": entry["bbox"],
                                    "area": entry["bbox"][2] * entry["bbox"][3], "iscrowd": entry["iscrowd"],
                                    "category_id": 1 + classes.index(entry["name"])})
        text = json.dumps({"images": images, "categories": categories, "annotations": annotations})
        (folder / f"{split}.json").write_text(text)
        print(f"{folder}/{split}.json: {len(images)} images, {len(annotations)} boxes")


def listed(folder: Path) -> dict[str, list]:
    lists = {file.stem: file.read_text() for file in sorted((folder / "ImageSets/Main").glob("*.txt"))}
    # CLASS_SPLIT.txt says "NAME 1" or "NAME -1" of one class.
    splits = {name: text.split() for name, text in lists.items() if all(len(line.split()) < 2 for line in text.splitlines())}
    images, annotations = LISTED
    return {split: [(f"{images}/{name}.jpg", *read(folder / annotations / f"{name}.xml")) for name in names]
            for split, names in splits.items()}


def dealt(folder: Path) -> dict[str, list]:
    found = [(file, images) for images, annotations in UNLISTED for file in (folder / annotations).glob("*.xml")]
    splits = {split: [] for split in dict.fromkeys(DEALT)}
    for number, (file, images) in enumerate(sorted(found, key=lambda entry: entry[0].stem)):
        splits[DEALT[number % len(DEALT)]].append((f"{images}/{file.stem}.jpg", *read(file)))
    return splits if found else {}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    splits = listed(folder) or dealt(folder)
    if not splits:
        sys.exit(f"{folder}: neither lists of images in ImageSets/Main nor .xml files in {UNLISTED[0][1]}")
    write(folder, splits, sorted({entry["name"] for images in splits.values() for _, _, objects in images for entry in objects}))


if __name__ == "__main__":
    main()
