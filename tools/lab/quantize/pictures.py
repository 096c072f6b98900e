# SPDX-License-Identifier: Apache-2.0
"""Pictures of folders and .tar archives, and a network's input from one as octet makes it, with Pillow and numpy."""
import io
import pathlib
import tarfile

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def files_of(place):
    """Names and openers of the pictures of a folder (and all within) or a .tar, sorted by name."""
    place = pathlib.Path(place)
    if place.is_dir():
        files = [file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES]
        found = {str(file.relative_to(place)): file.read_bytes for file in files}
    else:
        archive = tarfile.open(place)
        found = {member.name: lambda member=member: archive.extractfile(member).read()
                 for member in archive if member.isfile() and member.name.lower().endswith(SUFFIXES)}
    return sorted(found.items())


def evenly_spaced(items, count):
    """At most `count` of the items, the first and others at equal distances."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def prepare(file, settings):
    """The network's input of one picture: float32 [3, size, size]. settings: what networks.py writes into NAME.json."""
    import numpy as np
    from PIL import Image

    image = Image.open(io.BytesIO(file[1]())).convert("RGB")
    size = settings["size"]
    if settings["fit"] == "crop":
        scale = settings["resize"] / min(image.size)
        image = image.resize([max(size, round(side * scale)) for side in image.size], Image.BILINEAR)
        left, top = ((side - size) // 2 for side in image.size)
        image = image.crop((left, top, left + size, top + size))
    else:
        scale = size / max(image.size)
        image = image.resize([round(side * scale) for side in image.size], Image.BILINEAR)
        ground = Image.new("RGB", (size, size), (114, 114, 114))
        corner = settings["fit"] == "letterbox_corner"
        ground.paste(image, (0, 0) if corner else tuple((size - side) // 2 for side in image.size))
        image = ground
    return to_input(np.asarray(image), settings, settings.get("order") == "bgr")


def to_input(pixels, settings, swap=False):
    """float32 [3, H, W] of uint8 pixels [H, W, 3] by mean and deviation."""
    import numpy as np

    values = pixels[:, :, ::-1] if swap else pixels
    mean, std = (np.asarray(settings[key], np.float32) for key in ("mean", "std"))
    return np.ascontiguousarray(((values.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1))
