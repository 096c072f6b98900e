#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ways that octet's defaults might take, on networks that nobody tuned: int8 on validation images after QAT. No test image is read.

    trials.py --networks-from ONNX --data CIFAR --out DIR --per-gpu 8 --minutes 6 --networks mobilenet_v3_large --only 'w4a4*'

Float networks are trained on nine tenths of the training images; a training file lies in the test file's place. Each trial starts from its
network's float weights. Trial by trial over all networks, so that a stop leaves whole comparisons.
"""
import argparse
import fnmatch
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "gpu"))  # before packages of the same name
import accuracy  # noqa: E402
import accuracy_plan  # noqa: E402
import markdown  # noqa: E402
import networks  # noqa: E402
import science_plan  # noqa: E402
import suite  # noqa: E402

TRIALS = {  # {name: settings}; the first word of a name is its bits; w4a4 and w8a8 are the defaults
    "w4a4": [],
    "w4a4-rate-0.02": ["qat.learning_rate=0.02"],
    "w4a4-scaled": ["calibrate.channel_scales=true"],
    "w4a4-start-99.9": ["calibrate.method=percentile", "calibrate.percentile=99.9"],
    "w8a8": [],
    "w8a8-scaled": ["calibrate.channel_scales=true"],
    "w4a4-again": [],  # by so much the others may differ for no reason
    "w4a4-scales-0.3": ["qat.scale_learning_rate=0.003"],  # of the weights' rate; the default is a tenth
    "w4a4-mse-weights": ["quant.weight_calibrator=mse"],
    "w4a4-lsq-weights": ["quant.weight_calibrator=lsq"],
    "w4a4-start-99.5": ["calibrate.method=percentile", "calibrate.percentile=99.5"],
    "w4a4-taught": ["qat.distill_weight=0.5"],
    "w4a4-full-codes": ["quant.weight_codes=full"],
    "w4a4-full-mse-weights": ["quant.weight_codes=full", "quant.weight_calibrator=mse"],
    "w4a4-full-lsq-weights": ["quant.weight_codes=full", "quant.weight_calibrator=lsq"],
    "w8a8-rate-0.01": ["qat.learning_rate=0.01"],
    "w8a8-observed": ["quant.scales=observed"],
    "w8a8-mse-weights": ["quant.weight_calibrator=mse"],
    "w4a4-rate-0.03-warm": ["qat.learning_rate=0.03", "qat.warmup_epochs=0.5"],
    "w4a4-lsq-plus": ["quant.scales=lsq_plus", "qat.scale_learning_rate=0.001"],
    "w4a4-lsq": ["quant.scales=lsq", "qat.scale_learning_rate=0.001"],  # begins as calibrated, whatever a batch loses
    "w4a4-scales-1": ["qat.scale_learning_rate=0.01"],
    "w8a8-lsq": ["quant.scales=lsq", "qat.scale_learning_rate=0.0005"],
    "w8a8-live": ["qat.freeze_batch_norm=1"],
    "w8a8-fixed": ["quant.scales=fixed"],
    "w4a4-ema": ["qat.ema=0.998"],
    "w4a4-6-epochs": ["qat.epochs=6"],
    "w4a8": ["quant.activation_bits=8"],
    "w8a4": ["quant.weight_bits=8"],
    "w4a4-decay-1e-4": ["qat.weight_decay=1e-4"],
    "w4a4-live-0.75": ["qat.freeze_batch_norm=0.75"],
    "w4a4-live": ["qat.freeze_batch_norm=0.5"],  # BatchNorm's statistics follow for half of the steps, whatever auto finds
    "w4a4-frozen": ["qat.freeze_batch_norm=0"],
}


def settings_of(trial):
    return [*(suite.BITS["w4a4"] if trial.startswith(("w4", "w8a4")) else []), *TRIALS[trial]]


def jobs(arguments, folder, every):
    floats = {}
    for network in arguments.networks:
        root = accuracy_plan.run_folder(folder, network, arguments.seeds[0])
        first = [f"model.onnx={(arguments.networks_from / f'{network}.onnx').resolve()}", *every, *suite.OF_NETWORK.get(network, []),
                 f"seed={arguments.seeds[0]}", *accuracy_plan.of_network(arguments.set, network)]
        floats[network] = (root / "float.safetensors", first)
        yield accuracy_plan.Job(root, network, [*first, *accuracy_plan.NO_QAT], keep="float.safetensors", recipe=HERE / "recipe.yaml")
    for trial in TRIALS:
        for network in arguments.networks:
            if any(fnmatch.fnmatch(trial, glob) or fnmatch.fnmatch(f"{network}:{trial}", glob) for glob in arguments.only):
                own, first = floats[network]
                folder_of = accuracy_plan.run_folder(folder, f"{network}-{trial}", arguments.seeds[0])
                yield accuracy_plan.Job(folder_of, network, [*first, *accuracy_plan.start_from(own), *settings_of(trial)], needs=own, keep="",
                                        recipe=HERE / "recipe.yaml")


def rows(folder):
    """What the last epoch of each run's last phase has on the validation images."""
    found = []
    for path in sorted(folder.glob("*-seed*/report.json")):
        network, _, trial = path.parent.name.rpartition("-seed")[0].partition("-")
        report = json.loads(path.read_text())
        last = report["epochs"][-1]
        found.append({"network": network, "trial": trial or "float", "top1": 100 * last["validation_top1"], "loss": last["validation_loss"],
                      "seconds": report["seconds"]})
    return found


def table(found):
    by = {(row["network"], row["trial"]): row for row in found}
    names = sorted({row["network"] for row in found})
    lines = []
    for trial in ["float", *TRIALS]:
        have = [by.get((network, trial)) for network in names]
        if not any(have):
            continue
        base = [by.get((network, trial.partition("-")[0])) for network in names]
        gained = [row["top1"] - other["top1"] for row, other in zip(have, base) if row and other and row is not other]
        loss = [row["loss"] - other["loss"] for row, other in zip(have, base) if row and other and row is not other]
        lines.append([trial, *(f"{row['top1']:.2f} ({row['loss']:.3f})" if row else "" for row in have),
                      f"{statistics.fmean(gained):+.2f} ({statistics.fmean(loss):+.3f})" if gained else ""])
    return markdown.table(["trial: validation top-1 (loss)", *names, "mean beyond the defaults"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    accuracy.common_arguments(parser)
    parser.set_defaults(seeds=[1], stage="choose")
    parser.add_argument("--networks-from", type=pathlib.Path, required=True, metavar="FOLDER", help="what networks.py wrote")
    parser.add_argument("--networks", type=lambda text: suite.chosen(text.split(","), networks.NETWORKS, "network"), required=True, metavar="LIST")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["*"], metavar="LIST", help=f"TRIAL or NETWORK:TRIAL, globs of {', '.join(TRIALS)}")
    arguments, workers = accuracy.parse(parser)
    folder = arguments.out / ("trials_dry" if arguments.dry else "trials")
    every = [*accuracy.everywhere(arguments, len(workers)), *accuracy.cifar10(arguments), *accuracy_plan.CHOOSE, *science_plan.QUICK, "cuda.benchmark=false",
             *(science_plan.DRY if arguments.dry else [])]
    accuracy.carry_out(arguments, folder, list(jobs(arguments, folder, every)), workers, rows, table)


if __name__ == "__main__":
    main()
