#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the COCO images of docs/RESULTS.md, a part of val2017 that is stored on GitHub, with COCO's JSON beside them.

usage: coco_minto5z.py IMAGES BOXES FLAGS FOLDER [--side PIXELS]

IMAGES is the folder coco/images of minto5z/coco_yolo@4715f5ca05, BOXES is data/coco_val2017.txt of
xytpai/fcos@73e7202595 and FLAGS is data/dataset/val2017.txt of hunglc007/tensorflow-yolov4-tflite@9f16748aa3. BOXES has
no crowds and FLAGS has them unmarked, so what FLAGS has more are the crowds. Boxes are whole pixels in both.

FOLDER gets train.json, val.json, test.json and more.json with a folder of images each. Of the 1,648 images in
IMAGES/train2017 (which are val2017's, too), in the order of the SHA-256 of their names, the first 300 are of test, then 200
of val and 1,019 of train; more are the others and the 1,045 of IMAGES/val2017, on which a choice is less of a chance than
on 200. --side resizes images and boxes to so many pixels on their longer side, bilinearly without antialiasing as YOLOX
does, as JPEG of quality --quality (95).
"""
import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

from PIL import Image

PARTS = (("test", 300), ("val", 200), ("train", 1019))
COUNTS = (1648, 1045)  # images in train2017 and val2017
CLASSES = """person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant stop_sign parking_meter
bench bird cat dog horse sheep cow elephant bear zebra giraffe backpack umbrella handbag tie suitcase frisbee skis snowboard
sports_ball kite baseball_bat baseball_glove skateboard surfboard tennis_racket bottle wine_glass cup fork knife spoon bowl
banana apple sandwich orange broccoli carrot hot_dog pizza donut cake chair couch potted_plant bed dining_table toilet tv
laptop mouse remote keyboard cell_phone microwave oven toaster sink refrigerator book clock vase scissors teddy_bear
hair_drier toothbrush""".split()


def boxes_of(path: Path) -> dict[str, list]:
    """Returns of each image its boxes, [class from 0, left, top, right, bottom]; there are no crowds among them."""
    result = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        name, *values = line.split()
        if len(values) % 5:
            sys.exit(f"{path}:{number}: {len(values)} numbers are no boxes of five")
        fives = [list(map(int, values[i:i + 5])) for i in range(0, len(values), 5)]
        result[name] = [[kind - 1, left, top, right, bottom] for top, left, bottom, right, kind in fives]
    return result


def all_boxes_of(path: Path) -> dict[str, list]:
    """Returns the same of a file that has crowds, too."""
    result = {}
    for line in path.read_text().splitlines():
        file, *boxes = line.split()
        fives = [list(map(int, box.split(","))) for box in boxes]
        result[Path(file).name] = [[kind, left, top, right, bottom] for left, top, right, bottom, kind in fives]
    return result


def crowds(every: list, single: list) -> list:
    """Returns the boxes of `every` that `single` has not, which rounds a pixel otherwise and leaves out the narrowest."""
    left = list(single)
    found = []
    for box in every:
        same = [other for other in left if other[0] == box[0] and all(abs(a - b) <= 1 for a, b in zip(other, box))]
        if same:
            left.remove(same[0])
        elif box[3] - box[1] > 1 and box[4] - box[2] > 1:
            found.append(box)
    return found


def write(folder: Path, part: str, files: list[Path], single: dict, every: dict, side: int, quality: int) -> None:
    images, annotations = [], []
    (folder / part).mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files, 1):
        times = 1.0
        with Image.open(file) as image:
            width, height = image.size
            if side:
                times = side / max(width, height)
                width, height = max(1, int(width * times + 1e-9)), max(1, int(height * times + 1e-9))
                across, down = image.size[0] / width, image.size[1] / height
                resized = image.convert("RGB").transform((width, height), Image.Transform.AFFINE, (across, 0, 0, 0, down, 0),
                                                         Image.Resampling.BILINEAR)
                resized.save(folder / part / file.name, quality=quality)
            else:
                shutil.copyfile(file, folder / part / file.name)
        images.append({"id": number, "file_name": file.name, "width": width, "height": height})
        known = single.get(file.name, [])
        for crowd, boxes in enumerate((known, crowds(every.get(file.name, []), known))):
            for kind, left, top, right, bottom in boxes:
                box = [round(value * times, 3) for value in (left, top, right - left, bottom - top)]
                annotations.append({"id": len(annotations) + 1, "image_id": number, "category_id": kind + 1, "bbox": box,
                                    "area": box[2] * box[3], "iscrowd": crowd})
    categories = [{"id": number, "name": name.replace("_", " ")} for number, name in enumerate(CLASSES, 1)]
    text = json.dumps({"images": images, "categories": categories, "annotations": annotations})
    (folder / f"{part}.json").write_text(text)
    of_crowds = sum(entry["iscrowd"] for entry in annotations)
    print(f"{folder}/{part}.json: {len(images)} images, {len(annotations) - of_crowds} boxes, {of_crowds} crowds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("images", "boxes", "flags", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--side", type=int, default=0)
    parser.add_argument("--quality", type=int, default=95)
    given = parser.parse_args()
    single, every = boxes_of(given.boxes), all_boxes_of(given.flags)
    more = list((given.images / "val2017").glob("*.jpg"))
    files = sorted((given.images / "train2017").glob("*.jpg"), key=lambda file: hashlib.sha256(file.name.encode()).hexdigest())
    if (len(files), len(more)) != COUNTS:
        sys.exit(f"{given.images}: {len(files)} and {len(more)} images in train2017 and val2017, not {COUNTS}: another version?")
    for part, count in PARTS:
        write(given.folder, part, sorted(files[:count]), single, every, given.side, given.quality)
        files = files[count:]
    write(given.folder, "more", sorted(files + more), single, every, given.side, given.quality)


if __name__ == "__main__":
    main()
