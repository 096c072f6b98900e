# SPDX-License-Identifier: Apache-2.0
"""What science.py trains: a row for each table of "what QAT brings at few bits", and the runs that follow from them.

Every variant of a network starts from the same float weights, and those that train as long share one float control. The first variants of a
row say most, so that a stop leaves something whole. A run that several rows want is made once.
"""
import fnmatch
import json
import pathlib
import shlex
import typing

import accuracy_plan
import programs
from accuracy_plan import FINAL, LONGER, METHODS, NO_CONTROL, SPARSE, SPARSE_RATES, of_bits


class Row(typing.NamedTuple):
    title: str
    network: str
    variants: dict  # {name: settings}; w4a8 are weights of four bits, activations of eight
    asked: dict  # {w4a4, ...: points minus the float control or, above 50, top-1}
    published: str
    base: list  # epochs and rates: what --set may change
    data: str = "cifar10"  # or "tiny", another data set with a recipe of its own
    effects: tuple = ()  # (variant, the one it differs from by one thing)
    base_of: dict = {}  # {w2a2: beyond base}


FEWER = {  # beside LONGER: few bits change weights more than 8 do, so a rate of the highest that helped at 8 bits on validation pictures
    # (tools/lab/notebooks/gpu.md) and BatchNorm that never freezes, as ResNet-20's recipes; not chosen for few bits on these networks
    network: [*LONGER.get(network, []), "qat.learning_rate=0.01", "qat.freeze_batch_norm=1"]
    for network in ("resnet18", "mobilenet_v2", "resnet18_tiny_imagenet")
} | {"vgg16_bn": ["qat.epochs=60", "qat.learning_rate=0.02", "qat.freeze_batch_norm=1"]}  # chosen for few bits: accuracy_plan.SCHEDULES
LEARNED = METHODS["-lsq"]
ONE_BY_ONE = {  # beside METHODS: one thing more, or another, than in the variant that `effects` names
    "-observed": ["quant.scales=observed"],
    "-lsq-taught-alone": [*LEARNED, "qat.distill_weight=1"],  # by the float network's answers alone, without labels
    "-lsq-bf16": [*LEARNED, "qat.precision=bf16"],
    "-lsq-again": LEARNED,  # a run is not the same twice on a GPU: by so much the others may differ for no reason
}


def of(*names):
    """Variants from names such as w4a8-lsq: bits of weights and activations, then the method."""
    methods, variants = {**METHODS, **ONE_BY_ONE}, {}
    for name in names:
        bits, dash, method = name.partition("-")
        weights, activations = map(int, bits.removeprefix("w").split("a"))
        variants[name] = [*(of_bits(weights, activations) if weights < 8 else []), *methods[dash + method]]
    return variants


ROWS = {  # by their numbers in the first table of docs/RESULTS.md
    "1": Row("ResNet-20, CIFAR-10", "resnet20",
             of("w2a2-lsq-distill", "w2a2", "w4a4-lsq-distill", "w4a4", "w3a3-lsq-distill", "w3a3", "w8a8", "w2a2-lsq", "w4a4-lsq", "w3a3-lsq"),
             {"w8a8": -0.1, "w4a4": -0.5, "w3a3": -0.8, "w2a2": -1.8}, "APoT 92.96 -> 92.45 / 92.49 / 90.96 (4, 3, 2 bits); PACT 90.8 / 90.6 / 88.9",
             LONGER["resnet20"], base_of={"w2a2": ["qat.epochs=120", "quant.weight_codes=full"]}),
    "2": Row("ResNet-18, CIFAR-10", "resnet18", of("w4a4-lsq-distill", "w2a2-lsq-distill", "w4a4", "w2a2", "w4a4-lsq", "w2a2-lsq"),
             {"w4a4": 95.2, "w2a2": 94.4}, "Brevitas 4/4 92.61 (another net)", FEWER["resnet18"], base_of={"w2a2": ["qat.epochs=40"]}),
    "3": Row("VGG-16-BN, CIFAR-10", "vgg16_bn",
             of("w4a4-lsq-taught-alone", "w3a3-lsq-taught-alone", "w2a2-lsq-taught-alone", "w4a4", "w3a3", "w2a2"),
             {"w4a4": 94.0, "w3a3": 93.8, "w2a2": 93.3}, "LSQ, VGG-small 94.26 / 93.89 / 93.42 of 93.34", FEWER["vgg16_bn"]),
    "4": Row("MobileNetV2, CIFAR-10", "mobilenet_v2",
             of("w4a4-lsq-distill", "w4a4", "w4a8-lsq-distill", "w4a8", "w8a8", "w4a4-lsq", "w4a8-lsq"),
             {"w8a8": -0.1, "w4a8": -0.4, "w4a4": -1.5}, "ImageNet: 72.5 (8/8) -> 70.93 (4/4) N2D2; MQBench LSQ 4/4 68.66", FEWER["mobilenet_v2"]),
    "5": Row("ResNet-18, Tiny-ImageNet-200", "resnet18_tiny_imagenet", of("w4a4-lsq-distill", "w2a2-lsq-distill", "w8a8", "w4a4", "w2a2"),
             {"w8a8": -0.2, "w4a4": -0.5, "w2a2": -4.0}, "ImageNet, LSQ reproduction 70.36 / 69.35 / 66.31 (8, 4, 2 bits)",
             ["qat.epochs=15", *FEWER["resnet18_tiny_imagenet"]], data="tiny"),
    "7": Row("EfficientNet-B0, CIFAR-10", "efficientnet_b0", of("w8a8"), {"w8a8": -0.5}, "NVIDIA 76.97 / 71.71 / 75.82 (float, PTQ, QAT; ImageNet)", []),
    "9": Row("ResNet-18 with 2:4 sparse weights, CIFAR-10", "resnet18", {"2to4": SPARSE[:1] + SPARSE[2:]}, {"2to4": -0.2}, "SR-STE (arXiv 2102.04010)",
             ["qat.epochs=30", f"qat.learning_rate={SPARSE_RATES['2to4']}"]),
    "10": Row("what each method adds, MobileNetV2 4/4, CIFAR-10", "mobilenet_v2",
              of("w4a4-lsq-distill", "w4a4", "w4a4-lsq", "w4a4-observed", "w4a4-lsq-bf16", "w4a4-lsq-again"),
              {"w4a4": -1.5}, "", FEWER["mobilenet_v2"],
              effects=(("w4a4", "w4a4-observed"), ("w4a4-lsq", "w4a4"), ("w4a4-lsq-distill", "w4a4-lsq"),
                       ("w4a4-lsq-bf16", "w4a4-lsq"), ("w4a4-lsq-again", "w4a4-lsq"))),
}
QUICK = ["evaluate.latency_images=0"]  # no run's latency is told, and single images take as long as all others
DRY = [*accuracy_plan.DRY, "data.limit_test=200"]


def bits_of(variant):
    return variant.partition("-")[0]


def recipe_of(row):
    return None if row.data == "cifar10" else programs.ROOT / "recipes" / f"{row.network}_int8.yaml"


def wanted(row, only):
    return [name for name in row.variants if only is None or any(fnmatch.fnmatch(name, glob) for glob in only)]


def last(settings, key):
    """What octet takes of a key that stands there several times; None: what the recipe has."""
    return next((value for name, _, value in (setting.partition("=") for setting in reversed(settings)) if name == key), None)


def schedule_of(network, seed, settings):
    """Runs of one schedule may share a float control."""
    return network, seed, *(last(settings, f"qat.{key}") for key in accuracy_plan.CONTROL_KEYS)


def controls_of(folder):
    """{schedule: folder of a finished run with a control}: what earlier calls have trained, whichever variants those were for."""
    controls = {}
    for report in folder.glob("*-seed*/report.json"):
        if any(row["name"] == "float_control" for row in json.loads(report.read_text())["rows"]):
            name, _, seed = report.parent.name.rpartition("-seed")
            words = shlex.split((report.parent / "command.txt").read_text().splitlines()[0])  # as it began; those behind are of --resume
            settings = [setting for option, setting in zip(words, words[1:]) if option == "--set"]
            controls[schedule_of(name.partition("-")[0], int(seed), settings)] = report.parent
    return controls


def jobs(folder, numbers, seeds, only, every, changes):
    """`every`: {data: settings of each run}; `changes`: --set, NETWORK: or NETWORK-VARIANT: before a KEY=VALUE."""
    made, controls = {}, controls_of(folder)
    for seed in seeds:
        for number in numbers:
            row = ROWS[number]
            first = [*row.base, *every[row.data], *QUICK]
            root = accuracy_plan.run_folder(folder, row.network, seed)
            names = wanted(row, only)
            if names:
                made.setdefault(root, accuracy_plan.Job(root, row.network, [*first, *accuracy_plan.of_network(changes, row.network), f"seed={seed}",
                                                                          *accuracy_plan.NO_QAT], keep="float.safetensors", recipe=recipe_of(row)))
            for name in names:
                own = root / "float.safetensors"
                where = accuracy_plan.run_folder(folder, f"{row.network}-{name}", seed)
                if where in made:
                    continue
                settings = [*row.base, *row.base_of.get(bits_of(name), []), *every[row.data], *QUICK,
                            *accuracy_plan.of_network(changes, row.network, f"{row.network}-{name}"),
                            f"seed={seed}", *accuracy_plan.start_from(own), *row.variants[name]]
                owner = controls.setdefault(schedule_of(row.network, seed, settings), where)
                made[where] = accuracy_plan.Job(where, row.network, [*settings, *(FINAL if owner == where else NO_CONTROL)], needs=own, keep="",
                                                recipe=recipe_of(row))
    return list(made.values())


def folder_of(out, dry):
    return pathlib.Path(out) / ("science_dry" if dry else "science")
