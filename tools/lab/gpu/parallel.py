#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several processes that train one network, a GPU each: how fast beside one, whether alike, what happens when one dies.

Parts, each with a time limit of its own; what is known is in parallel.json after every part:
    speed    a QAT step in fp16 on random pictures: images/s of 2, 4, 8 and all GPUs beside one, in this call; and how far the model of a
             step's time that one and two GPUs give (tools/lab/bench/step_model.py) is from what more of them take
    pipeline ResNet-50 cut in two where the GPU's own times say, 8 micro-batches of 128 and of 32: images/s and peak memory beside one GPU;
             with four GPUs and more also by replicas of the two stages on all of them
    folder   ResNet-50 from one folder of JPEG files (--pictures): images/s and the share of time that GPUs wait for pictures
    agree    fp32, deterministic: 50 steps with the same batches on one GPU and on all; how far apart the weights are, and, as a control
             (other_order), those of one GPU that gets the pictures of each batch in another order. After each step octet itself holds
             the bits of all ranks together, ranges included, and stops where they differ. Good: within 1e-5, or twice the control's distance;
             and so the network in two stages on two GPUs beside one with the same recipe
    faults   a process is killed: do the others stop, how soon, with which words; --resume goes on with as many
    hang     a process is stopped (SIGSTOP): likewise
    report   ResNet-18 on CIFAR-10 from data to report, on all GPUs and on one, for each seed: accuracies and differing codes. Runs stay in
             OUT/report; the same command goes on where they stopped
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time

import gpus
import parallel_agree
import parallel_faults
import parallel_folder
import parallel_report
import parallel_runs
import parallel_speed
import programs

PARTS = {"speed": parallel_speed.speed, "pipeline": parallel_speed.pipeline, "folder": parallel_folder.folder, "agree": parallel_agree.agree, "faults": parallel_faults.faults,
         "hang": parallel_faults.hang, "report": parallel_report.report}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, default=programs.ROOT / "data/binary", help="CIFAR-10's binary files, for part report")
    parser.add_argument("--pictures", type=pathlib.Path, metavar="TAR|FOLDER", help="JPEG files, for part folder")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3], metavar="LIST", help="report")
    parser.add_argument("--minutes", type=float, help="report: stop then, with every run saved; the same command goes on")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="report: as train.epochs=30")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: two processes over Gloo, to try this script")
    parser.add_argument("--octet", type=pathlib.Path, default=programs.program("octet"), metavar="PROGRAM")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    options.out = options.out.resolve()
    unknown = set(options.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only {','.join(unknown)}: of {', '.join(PARTS)}")
    options.visible = gpus.visible() if options.device == "cuda" else []
    options.count = max(2, len(options.visible))
    if options.device == "cuda" and len(options.visible) < 2:
        sys.exit("parallel: needs two GPUs")
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"processes": options.count, "device": options.device}
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        for name in options.only.split(","):
            print(f"== {name}", file=sys.stderr, flush=True)
            start = time.monotonic()
            try:
                result[name] = PARTS[name](options)
            except parallel_runs.Failed as failure:
                result[name] = {"good": False, "failed": str(failure)}
            result[name]["seconds_of_part"] = round(time.monotonic() - start, 1)
            (options.out / "parallel.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    sys.exit(0 if all(result[name].get("good", True) for name in options.only.split(",")) else 1)


if __name__ == "__main__":
    main()
