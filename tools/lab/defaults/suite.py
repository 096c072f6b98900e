#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""octet's defaults on networks that nobody tuned it for: float, calibrated only, QAT and float control, worst first.

    suite.py --networks-from ONNX --data CIFAR --out DIR --per-gpu 4 --minutes 9      networks.py's files in ONNX
    suite.py ... --networks regnet_y_400mf,mobilenet_v2 --only 'w8a8*' --seeds 1,2    some of it
    suite.py ... --set train.epochs=12 --set regnet_y_400mf-w8a8-lsq:qat.epochs=5

A run that is finished is not repeated and one that was stopped goes on, so the same command may be given again until all are done.
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "gpu"))  # before packages of the same name
import accuracy  # noqa: E402
import accuracy_plan  # noqa: E402
import final_table  # noqa: E402
import networks  # noqa: E402
import science_plan  # noqa: E402
import suite_table  # noqa: E402

BITS = {"w8a8": [], "w4a4": ["quant.weight_bits=4", "quant.activation_bits=4", "quant.residual_bits=8"]}  # as papers mean W4A4
WAYS = {  # beside octet's defaults, which set nothing: what they are held against
    "": [],
    "-fixed": ["quant.scales=fixed"],
    "-observed": ["quant.scales=observed"],
    "-lsq": ["quant.scales=lsq"],
    "-lsq-weights": ["quant.scales=lsq", "quant.weight_calibrator=lsq"],
    "-mse-fixed": ["calibrate.method=mse", "quant.scales=fixed"],  # the defaults until November 2026
    "-mse-observed": ["calibrate.method=mse", "quant.scales=observed"],
    "-mse-lsq": ["calibrate.method=mse", "quant.scales=lsq"],
    "-frozen": ["qat.freeze_batch_norm=0"],
    "-rate-0.01": ["qat.learning_rate=0.01"],  # w4a4's own, with a float control that trains at it
    "-full": ["quant.weight_codes=full"],
    "-scaled": ["calibrate.channel_scales=true"],  # channels of SiLU and the like, where that loses less
    "-auto-scaled": ["calibrate.channel_scales=auto"],  # the same where much is lost
    "-unscaled": ["calibrate.channel_scales=false"],
}
VARIANTS = {bits + way: [*of_bits, *of_way] for bits, of_bits in BITS.items() for way, of_way in WAYS.items()}
OF_NETWORK = {"squeezenet1_1": ["train.learning_rate=0.01"]}  # without BatchNorm 0.05 diverges


def jobs(arguments, folder, every):
    """Of each seed the float phase of each network with the first variant from its weights, which trains the float control of all; then the
    other variants, one after the other over all networks, so that a stop leaves the first ones whole."""
    for seed in arguments.seeds:
        later = {variant: [] for variant in arguments.only}
        for network in arguments.networks:
            root = accuracy_plan.run_folder(folder, network, seed)
            own = root / "float.safetensors"
            first = [f"model.onnx={(arguments.networks_from / f'{network}.onnx').resolve()}", *every, *OF_NETWORK.get(network, []), f"seed={seed}"]
            changes = accuracy_plan.of_network(arguments.set, network)
            # Its variants read the test images: on a shared GPU their comparison took longer than the training.
            yield accuracy_plan.Job(root, network, [*first, *changes, *accuracy_plan.NO_QAT, "data.limit_test=16"], keep=own.name,
                                    recipe=HERE / "recipe.yaml")
            for at, variant in enumerate(arguments.only):
                trains_alike = not any(setting.startswith("qat.") for setting in VARIANTS[variant])
                name = f"{network}-{variant}"
                settings = [*first, *accuracy_plan.of_network(arguments.set, network, name), *accuracy_plan.start_from(own), *VARIANTS[variant],
                            *(accuracy_plan.NO_CONTROL if at and trains_alike else accuracy_plan.FINAL)]
                later[variant].append(accuracy_plan.Job(accuracy_plan.run_folder(folder, name, seed), network, settings, needs=own, keep="",
                                                        recipe=HERE / "recipe.yaml"))
            if arguments.only:
                yield later[arguments.only[0]].pop()
        for variant in arguments.only[1:]:
            yield from later[variant]


def chosen(names, known, what):
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is no {what}; there are {', '.join(known)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    accuracy.common_arguments(parser)
    parser.set_defaults(seeds=[1], stage="suite")
    parser.add_argument("--networks-from", type=pathlib.Path, required=True, metavar="FOLDER", help="what networks.py wrote")
    parser.add_argument("--networks", type=lambda text: chosen(text.split(","), networks.NETWORKS, "network"), default=list(networks.NETWORKS),
                        metavar="LIST")
    parser.add_argument("--only", type=lambda text: chosen(text.split(","), VARIANTS, "variant"), default=list(BITS), metavar="LIST",
                        help=f"of {', '.join(VARIANTS)}")
    arguments, workers = accuracy.parse(parser)
    folder = arguments.out / ("suite_dry" if arguments.dry else "suite")
    every = [*accuracy.everywhere(arguments, len(workers)), *accuracy.cifar10(arguments), *science_plan.QUICK,
             *(science_plan.DRY if arguments.dry else [])]
    accuracy.carry_out(arguments, folder, list(jobs(arguments, folder, every)), workers, final_table.rows, suite_table.table)


if __name__ == "__main__":
    main()
