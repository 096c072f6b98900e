#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Splits a folder into parts that can be sent one at a time, and joins them on the other side.

    parts.py split FOLDER DIR --limit MIB     DIR/part1, DIR/part2, ...: whole files, each part with the scripts and the manifest
    parts.py join PART HOME                   adds a part to HOME, checks its files, says what is still missing
    parts.py complete HOME [FOLDER/]          exit code 0 if nothing is missing (in FOLDER)

manifest.json: {"parts": n, "files": {path: [part, bytes, sha256]}}. Programs and libraries travel as .xz, a quarter of their size.
"""
import argparse
import hashlib
import json
import lzma
import pathlib
import shutil
import sys

MIB = 2**20
MANIFEST = "manifest.json"
EVERYWHERE = "tools/"  # so that each part can unpack itself
COMPRESSED = ("bin/", "lib/")  # data and wheels are compressed as they are


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def assign(sizes, limit):
    """{path: part} by first-fit decreasing; limit in bytes for the files of `sizes` in one part. Programs come first: they are used first."""
    parts, room = {}, []
    for path in sorted(sizes, key=lambda path: (path.startswith(("data/", "tiny/")), -sizes[path], path)):
        if sizes[path] > limit:
            sys.exit(f"parts: {path} alone is {sizes[path] / MIB:.1f} MiB; a part has room for {limit / MIB:.1f}")
        part = next((index for index, free in enumerate(room) if free >= sizes[path]), len(room))
        if part == len(room):
            room.append(limit)
        room[part] -= sizes[path]
        parts[path] = part + 1
    return parts


def name_in_part(path):
    return path + ".xz" if path.startswith(COMPRESSED) else path


def put(source, target):
    """A copy that may be executed where its source may; .xz names its form on either side."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == target.suffix:
        shutil.copy2(source, target)
        return
    with (lzma.open(source) if source.suffix == ".xz" else open(source, "rb")) as read, \
            (lzma.open(target, "wb", preset=3) if target.suffix == ".xz" else open(target, "wb")) as written:
        shutil.copyfileobj(read, written, MIB)
    shutil.copymode(source, target)


def split(folder, target, limit_mib):
    """By way of DIR/.all, since what counts is a file's size as it travels."""
    everything = target / ".all"
    for path in files_of(folder):
        put(folder / path, everything / name_in_part(path))
    sizes = {path: (everything / name_in_part(path)).stat().st_size for path in files_of(folder)}
    shared = {path: sizes.pop(path) for path in list(sizes) if path.startswith(EVERYWHERE)}
    allowance = 256 * len(sizes) + 65536  # the manifest itself
    parts = assign(sizes, limit_mib * MIB - sum(shared.values()) - allowance)
    count = max(parts.values(), default=0)
    files = {path: [parts.get(path, 0), (folder / path).stat().st_size, sha256(folder / path)] for path in files_of(folder)}
    for part in range(1, count + 1):
        root = target / f"part{part}"
        for path, (owner, _, _) in files.items():
            if owner in (0, part):
                put(everything / name_in_part(path), root / name_in_part(path))
        (root / MANIFEST).write_text(json.dumps({"parts": count, "files": files}))
        size = sum((root / path).stat().st_size for path in files_of(root))
        print(f"{root}: {size / MIB:.1f} MiB, {len(files_of(root))} files")
    shutil.rmtree(everything)


def join(part, home):
    manifest = json.loads((part / MANIFEST).read_text())
    old = home / MANIFEST
    if old.exists() and json.loads(old.read_text()) != manifest:
        sys.exit(f"parts: {home} holds another package; remove it first, or unpack elsewhere with --home")
    for path, (_, _, digest) in manifest["files"].items():
        if not (part / name_in_part(path)).exists():
            continue
        try:
            put(part / name_in_part(path), home / path)
        except (lzma.LZMAError, EOFError):
            pass  # its digest says so
        if sha256(home / path) != digest:
            sys.exit(f"parts: {path} came damaged; send the part again")
    shutil.copy2(part / MANIFEST, old)


def missing(home, folder=""):
    """Numbers of the parts that have not come."""
    files = json.loads((home / MANIFEST).read_text())["files"]
    return sorted({part for path, (part, _, _) in files.items() if path.startswith(folder) and not (home / path).exists()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("split")
    one.add_argument("folder", type=pathlib.Path)
    one.add_argument("target", type=pathlib.Path)
    one.add_argument("--limit", type=int, default=48)
    two = commands.add_parser("join")
    two.add_argument("part", type=pathlib.Path)
    two.add_argument("home", type=pathlib.Path)
    three = commands.add_parser("complete")
    three.add_argument("home", type=pathlib.Path)
    three.add_argument("folder", nargs="?", default="")
    arguments = parser.parse_args()
    if arguments.command == "split":
        split(arguments.folder, arguments.target, arguments.limit)
        return
    if arguments.command == "join":
        join(arguments.part, arguments.home)
    folder = arguments.folder if arguments.command == "complete" else ""
    to_come = ", ".join(map(str, missing(arguments.home, folder)))
    print(f"{arguments.home / folder}: {f'part {to_come} still to come' if to_come else 'complete'}")
    if arguments.command == "complete":
        sys.exit(1 if to_come else 0)


if __name__ == "__main__":
    main()
