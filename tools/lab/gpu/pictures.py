# SPDX-License-Identifier: Apache-2.0
"""Pictures in CIFAR-10's binary form: each file's order is known, so that a run can be given the same in another. Standard library only."""
import random

CLASSES, SIDE = 10, 32
TRAIN_FILES = [f"data_batch_{number}.bin" for number in range(1, 6)]


def record(label, draw):
    """Stripes whose direction and colour name the class, somewhere, and noise: like octet's data set `synthetic`."""
    pattern = random.Random(label)
    dx, dy = pattern.randrange(-48, 49), pattern.randrange(-48, 49)
    contrast = [40 + pattern.randrange(80) for _ in range(3)]
    place, brightness = draw.randrange(256), draw.randrange(60)
    waves = [min(255, 2 * abs((place + dx * x + dy * y) % 256 - 128)) for y in range(SIDE) for x in range(SIDE)]
    return bytes([label, *(min(255, brightness + wave * c // 128 + draw.randrange(64)) for c in contrast for wave in waves)])


def records(count, seed):
    draw = random.Random(seed)
    return [record(i % CLASSES, draw) for i in range(count)]


def write(folder, train, test):
    """Two lists of records, of which the first are spread over the five files of the training split."""
    folder.mkdir(parents=True)
    share = -(-len(train) // len(TRAIN_FILES))
    for number, name in enumerate(TRAIN_FILES):
        (folder / name).write_bytes(b"".join(train[number * share:(number + 1) * share]))
    (folder / "test_batch.bin").write_bytes(b"".join(test))
