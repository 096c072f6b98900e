#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes COCO's JSON beside DeepPCB (github.com/tangsanli5201/DeepPCB), so that octet trains on it (data.format: coco).

usage: deeppcb_to_coco.py FOLDER

FOLDER is the repository's PCBData, with trainval.txt and test.txt. Their lines name an image, A/B/NAME.jpg, whose file is
A/B/NAME_test.jpg beside its template, and its annotations, a file with a line x1 y1 x2 y2 type for each defect. They become
FOLDER/trainval.json and FOLDER/test.json.
"""
import sys
from pathlib import Path

from neu_det_to_coco import write

CLASSES = ["open", "short", "mousebite", "spur", "copper", "pin-hole"]  # types 1 to 6
SIDE = 640  # pixels of all images


def objects_of(path: Path) -> list[dict]:
    objects = []
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words:
            continue
        if len(words) != 5 or not all(word.isdigit() for word in words) or not 1 <= int(words[4]) <= len(CLASSES):
            sys.exit(f"{path}:{number}: '{line}' is not x1 y1 x2 y2 type, a type from 1 to {len(CLASSES)}")
        left, top, right, bottom, kind = map(int, words)
        if right < left or bottom < top:
            sys.exit(f"{path}:{number}: a box of negative size")
        objects.append({"name": CLASSES[kind - 1], "bbox": [left, top, right - left, bottom - top], "iscrowd": 0})
    return objects


def images_of(folder: Path, list_file: Path) -> list:
    images = []
    for number, line in enumerate(list_file.read_text().splitlines(), 1):
        if not line.strip():
            continue
        if len(line.split()) != 2:
            sys.exit(f"{list_file}:{number}: '{line}' is not an image and its annotations")
        image, annotations = line.split()
        tested = Path(image).with_name(f"{Path(image).stem}_test{Path(image).suffix}")
        images.append((str(tested), {"width": SIDE, "height": SIDE}, objects_of(folder / annotations)))
    return images


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    lists = [folder / f"{split}.txt" for split in ("trainval", "test")]
    for file in lists:
        if not file.is_file():
            sys.exit(f"{file}: no such file; name the folder PCBData of the repository")
    write(folder, {file.stem: images_of(folder, file) for file in lists}, CLASSES)


if __name__ == "__main__":
    main()
