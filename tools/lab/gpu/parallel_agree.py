# SPDX-License-Identifier: Apache-2.0
"""Part agree of parallel.py: are weights of several GPUs those of one?"""
import json
import os
import sys
import threading
import time
from concurrent import futures

import gpus
import parallel_runs
import pictures
import tensors

LARGEST_DISTANCE = 1e-5  # asked, relative, over all weights
SHOWN_STEPS = (1, 2, 5, 10, 20, 50)
MOST_TIMES_ANOTHER_ORDER = 2  # of what one GPU is apart from itself with the pictures of each batch in another order
STAGES = ["parallel.stages=[layer1.2.conv2]", "parallel.micro_batches=8", "threads=1"]  # two; a CPU adds up by threads


def judged(apart, other_order):
    """Of distances over all weights. A control that has the same bits says nothing of how many times: None."""
    reached, comparable = apart <= LARGEST_DISTANCE, other_order > 0
    return {"reached": reached, "times_another_order": round(apart / other_order, 2) if comparable else None,
            "good": reached or (comparable and apart / other_order <= MOST_TIMES_ANOTHER_ORDER)}


class Following:
    """Keeps, while a run goes on, the weights of its state file after some of its epochs; one that is replaced too soon is missed."""

    def __init__(self, folder, epochs):
        self.path, self.epochs, self.weights, self.seen = folder / "checkpoints/float.state.safetensors", epochs, {}, None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.follow)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def follow(self):
        while not self.ended.wait(0.005):
            self.look()
        self.look()

    def look(self):
        try:
            with open(self.path, "rb") as file:  # it is replaced, not written over
                about = os.fstat(file.fileno())
                which = (about.st_ino, about.st_mtime_ns)  # a later file may have the number of one that is gone
                if which == self.seen:
                    return
                data = file.read()
        except FileNotFoundError:
            return
        self.seen = which
        metadata, values = tensors.parsed(data)
        position = json.loads(metadata["octet_state"])
        epoch = position["epoch"] + (0 if position["finished"] else 1)
        if epoch in self.epochs:
            self.weights.setdefault(epoch, {name: value for name, value in values.items() if name.startswith("weights.")})


def by_step(first, second):
    """Over all weights, after each step that both runs were seen at."""
    return {step: float(f"{tensors.distance(first[step], second[step])['of_all']:.2e}") for step in sorted(first.keys() & second.keys())}


def agree(options):
    """BatchNorm would normalize each share by itself: a network without. An epoch is a step with one batch of all pictures: bits are compared
    after each, and the pictures' order in their files is that in the batch, shuffled alike. The control says what an order
    is worth: 50 steps of a deep network make more of one rounding than is asked, whoever adds up. Then the network in two stages, on two GPUs and, by the same
    recipe, on one: they are to add up alike, so what crosses between lanes and GPUs too early or in another's place shows here.
    by_step: both distances after some steps, since a rounding grows from step to step."""
    steps, batch = 3 if options.dry else 50, 256 if options.device == "cuda" else 32
    train_pictures, others = pictures.records(batch, seed=1), pictures.records(320, seed=2)
    for name, records in {"pictures": train_pictures, "other_order": train_pictures[::-1]}.items():
        pictures.write(options.folder / name, records, others[:64])
    pictures.write(options.folder / "test", train_pictures, others[64:])
    settings = [*parallel_runs.SHORT, "model.folded=true", "train.precision=fp32", "qat.precision=fp32", "cuda.deterministic=true",
                "cuda.tf32=false", "data.validation=test", "data.validation_fraction=0", "data.test=test", f"data.test_path={options.folder / 'test'}",
                "data.pad=0", "data.flip=false", "data.cutout=0", f"train.batch_size={batch}", f"qat.batch_size={batch}",
                "train.learning_rate=0.01", f"train.epochs={steps}", "quant.scales=fixed", "qat.epochs=0", "qat.float_control=false",
                "data.limit_validation=8", "data.limit_test=8"]
    seconds, weights = {}, {}

    def timed(name, count, of, gpu=0, more=()):
        start = time.monotonic()
        folder, data = options.folder / f"agree_{name}", f"data.path={options.folder / of}"
        words = parallel_runs.train("resnet20_cifar10_int8", folder, count, [*settings, *more, data], options)
        with Following(folder, SHOWN_STEPS) as following:
            parallel_runs.run(words, 90, gpus.environment(options.visible[gpu]) if count == 1 and options.visible else None)
        weights[name] = following.weights
        seconds[name] = round(time.monotonic() - start, 1)
        print(f"  {name}: {seconds[name]} s", file=sys.stderr, flush=True)

    with futures.ThreadPoolExecutor() as pool:  # a GPU each
        for done in [pool.submit(timed, "one", 1, "pictures", 0), pool.submit(timed, "control", 1, "other_order", 1)]:
            done.result()
    timed("all", options.count, "pictures")
    timed("staged_one", 1, "pictures", more=STAGES)
    timed("staged", 2, "pictures", more=STAGES)

    def apart(*names):
        return tensors.largest_distance(*(options.folder / f"agree_{name}/float.safetensors" for name in names))

    shared, other_order, staged = apart("one", "all"), apart("one", "control"), apart("staged_one", "staged")
    of_shared, of_staged = (judged(distance["of_all"], other_order["of_all"]) for distance in (shared, staged))
    return {**shared, **of_shared, "good": of_shared["good"] and of_staged["good"], "steps": steps, "asked": LARGEST_DISTANCE,
            "staged": {**staged, **of_staged}, "other_order": other_order, "seconds": seconds,
            "by_step": {"all": by_step(weights["one"], weights["all"]), "other_order": by_step(weights["one"], weights["control"])}}
