#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes COCO's JSON beside NEU-DET, which has Pascal VOC's XML but no lists, so that octet trains on it (data.format: coco).

usage: neu_det_to_coco.py FOLDER

FOLDER has images and annotations in IMAGES and ANNOTATIONS, and in Validation_Images and Validation_Annotations. Of ten
images in a row, by name, seven are dealt to train, one to val and two to test: FOLDER/train.json and so on, whose images
are named from FOLDER on. Classes are the names in all splits, sorted; objects that are marked difficult become crowds:
they are not trained on, and finding them neither helps nor harms. (Pascal VOC with its lists needs no script:
data.format: voc.)
"""
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

FOLDERS = (("IMAGES", "ANNOTATIONS"), ("Validation_Images", "Validation_Annotations"))
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


def dealt(folder: Path) -> dict[str, list]:
    found = [(file, images) for images, annotations in FOLDERS for file in (folder / annotations).glob("*.xml")]
    splits = {split: [] for split in dict.fromkeys(DEALT)}
    for number, (file, images) in enumerate(sorted(found, key=lambda entry: entry[0].stem)):
        splits[DEALT[number % len(DEALT)]].append((f"{images}/{file.stem}.jpg", *read(file)))
    return splits if found else {}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    splits = dealt(folder)
    if not splits:
        sys.exit(f"{folder}: no .xml files in {FOLDERS[0][1]}")
    write(folder, splits, sorted({entry["name"] for images in splits.values() for _, _, objects in images for entry in objects}))


if __name__ == "__main__":
    main()
