# SPDX-License-Identifier: Apache-2.0
"""What accuracy.py trains: the tables that people edit, and the runs that follow from them.

Stage choose, for each network and seed: float phases on nine tenths of the training pictures, then from their weights QAT in several
variants, each judged on the tenth that was left out. The folder that it reads has training pictures in place of the test pictures, so no
choice can hang on those. Stage final: the recipes as they are, with the float control, the test pictures read once at the end.
"""
import pathlib
import typing

import programs

NETWORKS = ("mobilenet_v2", "vgg16_bn", "resnet18", "resnet20")  # in recipes/; the longest first, so that no GPU waits at the end
RECIPE = "recipe"  # the variant that changes nothing; the others are held against it

FLOAT = {  # float phases of stage choose, beside the recipe's: each with the QAT of the recipe
    "resnet20": {  # erased parts (DeVries and Taylor 2017, arXiv 1708.04552) helped it most
        "cutout-12": ["data.cutout=12"],
        "no-cutout": ["data.cutout=0"],
        "smoothing": ["train.label_smoothing=0.1", "qat.label_smoothing=0.1"],
        "decay": ["train.weight_decay=1e-3", "qat.weight_decay=1e-3"],
    },
}
QAT = {  # QAT of stage choose, from the float weights of the recipe
    "again": [],  # a run is not the same twice on a GPU: by so much the others may differ for no reason
    "observed": ["quant.scales=observed"],
    "observed-ranges-first": ["quant.scales=observed", "qat.freeze_observers=0.5", "qat.freeze_batch_norm=0.75"],
    "bf16": ["qat.precision=bf16"],
    "batch-norm-frozen": ["qat.freeze_batch_norm=0"],
    "batch-norm-live": ["qat.freeze_batch_norm=1"],
    "minmax": ["calibrate.method=minmax"],
    "percentile": ["calibrate.method=percentile"],
    "int8-forward": ["qat.forward=int8"],  # beside "again": once statistics and ranges stay
    "int8-forward-all": ["qat.forward=int8", "qat.freeze_batch_norm=0", "quant.scales=fixed"],  # beside "frozen-all": in all steps
    "frozen-all": ["qat.freeze_batch_norm=0", "quant.scales=fixed"],
}
RATES = {  # and the peak of QAT's learning rate, around the recipe's
    "mobilenet_v2": (0.001, 0.01),
    "vgg16_bn": (0.0007, 0.006),
    "resnet18": (0.0013, 0.012),
    "resnet20": (0.0003, 0.003),
}

W4A4 = ["quant.weight_bits=4", "quant.activation_bits=4",  # as papers mean it: the picture, the first and the last layer at 8 bits,
        "quant.input_bits=8", "quant.first_layer_bits=8", "quant.last_layer_bits=8", "quant.residual_bits=8"]  # and what adds read
LONGER = {"resnet20": ["qat.epochs=60", "qat.learning_rate=0.01"], "resnet18": ["qat.epochs=20"],  # as the recipes of few bits
          "vgg16_bn": ["qat.epochs=20"], "mobilenet_v2": ["qat.epochs=20"]}
METHODS = {  # beside plain straight-through gradients: learned scales (arXiv 1902.08153), and with them the float network's answers
    "": [],
    "-lsq": ["quant.scales=lsq", "quant.weight_calibrator=lsq"],
    "-lsq_plus": ["quant.scales=lsq_plus", "quant.weight_calibrator=lsq"],  # learned offsets too (arXiv 2004.09576)
    "-lsq-distill": ["quant.scales=lsq", "quant.weight_calibrator=lsq", "qat.distill_weight=0.5"],
}


def of_bits(weights, activations):
    return [*W4A4, f"quant.weight_bits={weights}", f"quant.activation_bits={activations}"]


FEW_BITS = {  # of choose and final: every method with the same epochs and rates
    network: {f"w{bits}a{bits}{name}": [*of_bits(bits, bits), *more, *method] for bits in (4, 3, 2) for name, method in METHODS.items()}
    for network, more in LONGER.items()
}


def at_three_bits(epochs, rate, *more):
    """Learned and taught, BatchNorm never frozen, as the recipes of few bits."""
    return [*of_bits(3, 3), *METHODS["-lsq-distill"], "qat.freeze_batch_norm=1", f"qat.epochs={epochs}", f"qat.learning_rate={rate}", *more]


SCHEDULES = {  # of choose: how long, how fast and with which decay QAT trains at few bits
    "vgg16_bn": {
        "w3a3-20-epochs-rate-0.006": at_three_bits(20, 0.006),
        "w3a3-60-epochs-rate-0.006": at_three_bits(60, 0.006),
        "w3a3-60-epochs-rate-0.02": at_three_bits(60, 0.02),
        "w3a3-60-epochs-rate-0.05": at_three_bits(60, 0.05),
        "w3a3-60-epochs-rate-0.02-decay-1e-4": at_three_bits(60, 0.02, "qat.weight_decay=1e-4"),
        "w3a3-60-epochs-rate-0.02-taught-alone": at_three_bits(60, 0.02, "qat.distill_weight=1"),
    },
}
# Half of the weights go: more to learn than at 8 bits dense (arXiv 2102.04010), at rates too high for frozen BatchNorm (recipe).
SPARSE = ["quant.sparsity=2:4", "qat.epochs=30", "qat.freeze_batch_norm=1"]
SPARSE_RATES = {"2to4": "0.02", "2to4-rate-0.005": "0.005", "2to4-rate-0.1": "0.1"}  # of choose; the recipe has the first
FINAL_TOO = {**FEW_BITS, "resnet18": {**FEW_BITS["resnet18"], "2to4": [*SPARSE, f"qat.learning_rate={SPARSE_RATES['2to4']}"]}}
# ^ QAT of stage final, from the float weights of its own runs

CHOOSE = ["data.validation_fraction=0.1", "data.limit_test=16"]
FLOAT_ONLY = ["qat.epochs=0", "data.limit_validation=1000"]  # watched on a part; what counts is measured after QAT
FINAL = ["qat.float_control=true"]
CONTROL_KEYS = ("epochs", "learning_rate", "precision", "freeze_batch_norm", "weight_decay", "batch_size", "label_smoothing", "ema",
                "warmup_epochs")  # of qat: what a float control does; runs that share one have all of them alike
NO_CONTROL = ["qat.float_control=false"]
NO_QAT = ["qat.epochs=0", *NO_CONTROL]
DRY = ["train.epochs=1", "train.warmup_epochs=0", "qat.epochs=1", "qat.warmup_epochs=0", "calibrate.images=256", "data.limit_train=1024",
       "data.limit_validation=256"]
DRY_VARIANTS = ("cutout-12", "batch-norm-frozen")


class Job(typing.NamedTuple):
    folder: pathlib.Path  # the run directory
    network: str
    settings: list  # KEY=VALUE; of a key that stands there twice octet takes the last
    needs: pathlib.Path | None = None  # float weights that another job leaves
    keep: str = "*"  # which of its weights stay once it is finished
    recipe: pathlib.Path | None = None  # None: the network's of CIFAR-10 at 8 bits


def recipe_file(network):
    return programs.ROOT / "recipes" / f"{network}_cifar10_int8.yaml"


def float_variants(network):
    return {RECIPE: [], **FLOAT.get(network, {})}


def qat_variants(network):
    rates = {f"rate-{rate:g}": [f"qat.learning_rate={rate:g}"] for rate in RATES[network]}
    sparse = {name: [*SPARSE, f"qat.learning_rate={rate}"] for name, rate in SPARSE_RATES.items() if network == "resnet18"}
    return {RECIPE: [], **QAT, **rates, **FEW_BITS.get(network, {}), **SCHEDULES.get(network, {}), **sparse}


def run_folder(folder, network, seed):
    return folder / f"{network}-seed{seed}"


def float_weights(folder, network, seed, variant):
    """Where stage choose leaves them."""
    return run_folder(folder, network, seed) / f"float-{variant}" / "float.safetensors"


def start_from(weights):
    return ["train.epochs=0", "train.warmup_epochs=0", f"model.weights={weights}"]


def of_network(settings, *names):
    """--set: KEY=VALUE for every network, NETWORK:KEY=VALUE for one (`names`: what it is called)."""
    named = [setting.split(":", 1) if ":" in setting.split("=")[0] else ("", setting) for setting in settings]
    return [setting for name, setting in named if name in ("", *names)]


def float_jobs(folder, networks, seeds, wanted):
    for network in networks:
        for seed in seeds:
            for name, settings in float_variants(network).items():
                if wanted(name):
                    weights = float_weights(folder, network, seed, name)
                    yield Job(weights.parent, network, [*CHOOSE, *FLOAT_ONLY, f"seed={seed}", *settings], keep=weights.name)


def qat_jobs(folder, networks, seeds, wanted):
    """Seed by seed, so that a stop leaves whole seeds."""
    for seed in seeds:
        for network in networks:
            for start, settings in float_variants(network).items():
                weights = float_weights(folder, network, seed, start)
                for name, changes in (qat_variants(network) if start == RECIPE else {start: settings}).items():
                    if wanted(name):
                        yield Job(run_folder(folder, network, seed) / name, network,
                                  [*CHOOSE, f"seed={seed}", *start_from(weights), *changes], needs=weights, keep="")


def choose_jobs(folder, networks, seeds, only=None):
    def wanted(name):
        return only is None or name in (RECIPE, *only)
    return [*float_jobs(folder, networks, seeds, wanted), *qat_jobs(folder, networks, seeds, wanted)]


def final_jobs(folder, networks, seeds, float_from=None, only=None, few_bits=False):
    """`float_from`: (stage choose's folder, {network: variant}): QAT and its control start from those float weights. `only`: of
    FINAL_TOO these. `few_bits`: no QAT of eight bits, and one control for all that train as long: that of the first."""
    runs, more = [], []
    for network in networks:
        for seed in seeds:
            weights, settings = None, []
            if float_from is not None:
                variant = float_from[1][network]
                weights = float_weights(float_from[0], network, seed, variant)
                settings = [*start_from(weights), *float_variants(network)[variant]]
            root, settings = run_folder(folder, network, seed), [*FINAL, f"seed={seed}", *settings]
            runs.append(Job(root, network, [*settings, *(NO_QAT if few_bits else [])], needs=weights))
            own, controlled = root / "float.safetensors", False
            for name, changes in FINAL_TOO.get(network, {}).items():
                if only is not None and name not in only:
                    continue
                alike = few_bits and name in FEW_BITS[network]
                share = NO_CONTROL if alike and controlled else []
                controlled = controlled or alike
                more.append(Job(run_folder(folder, f"{network}-{name}", seed), network, [*settings, *start_from(own), *changes, *share],
                                needs=own))
    return runs + more
