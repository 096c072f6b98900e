#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny-ImageNet-200 as what data.format image_folder reads, and in small parts for machines that it must be carried to.

    tiny_imagenet.py make FOLDER OUT.tar [--classes N] [--pictures N]    train/WNID/*.jpeg and test/WNID/*.jpeg, from the data set's folder
    tiny_imagenet.py split OUT.tar PARTS [--limit MIB]                   PARTS/tiny.tar.gz.1, .2, ... and tiny.json
    tiny_imagenet.py join PARTS OUT.tar                                  there, once all parts have come

FOLDER is tiny-imagenet-200 as Stanford's CS231n gave it out: train/WNID/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt. Its
val/ becomes test/, for its own test/ has no labels; images to choose on are cut from train/ (data.validation_fraction). All JPEGs have the
same tables, so that gzip takes 30 % off.
"""
import argparse
import hashlib
import json
import pathlib
import sys
import tarfile
import zlib

MIB, BLOCK = 1 << 20, 1 << 22
NAME, MANIFEST = "tiny.tar.gz", "tiny.json"


def training_images(folder, classes):
    """{class: paths}, sorted; of the first so many classes."""
    folders = sorted(path for path in (folder / "train").glob("*") if path.is_dir())
    if not folders:
        sys.exit(f"tiny_imagenet: no {folder}/train/WNID; is it the data set's folder?")
    return {path.name: sorted((path / "images").glob("*.JPEG")) for path in folders[:classes]}


def test_images(folder, classes):
    """The same of val/, whose annotations say what each image is."""
    annotations = folder / "val" / "val_annotations.txt"
    if not annotations.exists():
        sys.exit(f"tiny_imagenet: no {annotations}")
    found = {name: [] for name in classes}
    for line in annotations.read_text().splitlines():
        image, name, *_ = line.split("\t")
        if name in found:
            found[name].append(folder / "val" / "images" / image)
    return {name: sorted(paths) for name, paths in found.items()}


def add(tar, path, member):
    data = path.read_bytes()
    if not data.startswith(b"\xff\xd8\xff"):
        sys.exit(f"tiny_imagenet: {path} is no JPEG")
    information = tarfile.TarInfo(member)  # the same bytes from the same images: no times, no owners
    information.size = len(data)
    with open(path, "rb") as file:
        tar.addfile(information, file)


def make(folder, target, classes=None, images=None):
    """How many images each part has."""
    train = training_images(folder, classes)
    counts, new = {}, pathlib.Path(f"{target}.new")
    with tarfile.open(new, "w", format=tarfile.USTAR_FORMAT) as tar:
        for split, found in (("train", train), ("test", test_images(folder, train))):
            lacking = [name for name, paths in found.items() if not paths]
            if lacking:
                sys.exit(f"tiny_imagenet: no {split} image of {lacking[0]} in {folder}")
            for name, paths in found.items():
                for path in paths[:images]:
                    add(tar, path, f"{split}/{name}/{path.stem}.jpeg")
                counts[split] = counts.get(split, 0) + len(paths[:images])
    new.rename(target)
    return counts


def blocks(path):
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            yield block


def sha256(path):
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def split(archive, folder, limit_mib):
    """Compressed as one, so that each part alone is nothing; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"tiny_imagenet: {folder} is not empty")
    packer, waiting, count = zlib.compressobj(9, wbits=31), bytearray(), 0

    def write(size):
        nonlocal count
        count += 1
        (folder / f"{NAME}.{count}").write_bytes(waiting[:size])
        del waiting[:size]
    for block in blocks(archive):
        waiting += packer.compress(block)
        while len(waiting) > limit_mib * MIB:
            write(limit_mib * MIB)
    waiting += packer.flush()
    while waiting:
        write(limit_mib * MIB)
    (folder / MANIFEST).write_text(json.dumps({"parts": count, "sha256": sha256(archive)}))
    return count


def join(folder, target):
    if not (folder / MANIFEST).exists():
        sys.exit(f"tiny_imagenet: no {folder / MANIFEST}")
    manifest = json.loads((folder / MANIFEST).read_text())
    parts = [folder / f"{NAME}.{number}" for number in range(1, manifest["parts"] + 1)]
    lacking = [part.name for part in parts if not part.exists()]
    if lacking:
        sys.exit(f"tiny_imagenet: still to come: {', '.join(lacking)}")
    unpacker, new = zlib.decompressobj(wbits=31), pathlib.Path(f"{target}.new")
    try:
        with open(new, "wb") as file:
            for part in parts:
                for block in blocks(part):
                    file.write(unpacker.decompress(block))
            file.write(unpacker.flush())
    except zlib.error:
        pass  # its digest says so
    if sha256(new) != manifest["sha256"]:
        new.unlink()
        sys.exit("tiny_imagenet: a part came damaged; send them again")
    new.rename(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("make")
    one.add_argument("folder", type=pathlib.Path)
    one.add_argument("target", type=pathlib.Path)
    one.add_argument("--classes", type=int, metavar="N", help="only the first N")
    one.add_argument("--pictures", type=int, metavar="N", help="only the first N of each class")
    two = commands.add_parser("split")
    two.add_argument("archive", type=pathlib.Path)
    two.add_argument("folder", type=pathlib.Path)
    two.add_argument("--limit", type=int, default=48, metavar="MIB", help="largest size of a part (default: 48)")
    three = commands.add_parser("join")
    three.add_argument("folder", type=pathlib.Path)
    three.add_argument("target", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "make":
        counts = make(arguments.folder, arguments.target, arguments.classes, arguments.pictures)
        print(f"{arguments.target}: {counts['train']:,} training and {counts['test']:,} test images")
    elif arguments.command == "split":
        print(f"{split(arguments.archive, arguments.folder, arguments.limit)} parts in {arguments.folder}")
    else:
        join(arguments.folder, arguments.target)
        print(arguments.target)


if __name__ == "__main__":
    main()
