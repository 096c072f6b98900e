#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a .tar of JPEG files of one size from any others: train/ and val/ with ten class folders, each source resized once and repeated.

  tools/lab/bench/jpeg_tar.py coco.tar /dev/shm/jpegs.tar --count 25600   # needs Pillow

Files of one size and number compare decoders; repeated ones are read from memory, as a data set in RAM would be."""
import argparse
import concurrent.futures
import io
import pathlib
import tarfile


def sources(path):
    """The bytes of the JPEG files in a .tar or a folder, by name."""
    if path.is_dir():
        return [file.read_bytes() for file in sorted(path.rglob("*")) if file.suffix.lower() in (".jpg", ".jpeg")]
    with tarfile.open(path) as tar:
        members = sorted((member for member in tar if member.isfile() and member.name.lower().endswith((".jpg", ".jpeg"))), key=lambda m: m.name)
        return [tar.extractfile(member).read() for member in members]


def resized(job):
    from PIL import Image
    data, size, quality = job
    out = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.convert("RGB").resize(size, Image.Resampling.BICUBIC).save(out, "JPEG", quality=quality)
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="a .tar or folder of JPEG files")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=25600, help="training images")
    parser.add_argument("--size", type=int, nargs=2, default=(500, 375), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--quality", type=int, default=90)
    options = parser.parse_args()
    with concurrent.futures.ProcessPoolExecutor() as pool:
        files = list(pool.map(resized, [(data, tuple(options.size), options.quality) for data in sources(options.source)], chunksize=16))
    with tarfile.open(options.out, "w", format=tarfile.USTAR_FORMAT) as tar:
        for split, count in (("train", options.count), ("val", 256)):
            for number in range(count):
                data = files[number % len(files)]
                member = tarfile.TarInfo(f"{split}/class{number % 10}/{number:07}.jpg")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    print(f"{options.count} files of {options.size[0]}x{options.size[1]} from {len(files)} pictures, {sum(map(len, files)) / len(files):.0f} bytes in the mean")


if __name__ == "__main__":
    main()
