#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The forward pass on codes (qat.forward: int8): its tests, compute-sanitizer on its kernels, and a step beside the simulation's.

Its accuracy is stage choose's: run.sh choose --networks resnet18 --only int8-forward,again,int8-forward-all,frozen-all.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import markdown
import programs
import sanitize
import tests

# The cases of each program; those of kernels alone are small enough for every tool of compute-sanitizer.
KERNELS = {"test_quantizers_cuda": "TrainingCodesCuda.*:*BiasGradientCuda.*", "test_kernels_conv2d_cuda": "Conv2dCudaRepack.TheGpu*"}
NETWORKS = {"test_kernels_conv2d_cuda": "Conv2dCudaRepack.*", "test_quantizers_cuda": KERNELS["test_quantizers_cuda"],
            "test_qat_quantizers_cuda": "Int8ForwardCuda.*", "test_trainers_cuda": "*TrainCuda.*qat_int8*"}
UNDER_MEMCHECK = {"test_qat_quantizers_cuda": "Int8ForwardCuda.ARecordedStep*"}  # with LibTorch, which the other tools stop in


def step(path, model, frozen, forward, seconds):
    """train_bench's words for one row."""
    return [str(path), "--model", model, "--phase", "qat", "--precision", "fp16", "--forward", forward, "--seconds", str(seconds),
            *(["--freeze-batch-norm"] if frozen else [])]


def rows_of(models, turns, seconds, path, run):
    """Every model's rows, turn by turn so that no row has the warmer card. run(words) returns train_bench's JSON, or None."""
    found = {}
    for _ in range(turns):
        for model in models:
            for frozen in (False, True):
                for forward in ("simulation", "int8"):
                    result = run(step(path, model, frozen, forward, seconds))
                    found.setdefault((model, frozen, forward), []).append(result)
    return found


def speed_table(found):
    lines = []
    for (model, frozen, forward), results in found.items():
        good = [result for result in results if result is not None]
        if not good:
            lines.append([model, "frozen" if frozen else "live", forward, "failed", "", "", "", ""])
            continue
        rate = statistics.median(result["images_per_second"] for result in good)
        other = [result["images_per_second"] for result in found[model, frozen, "simulation"] if result is not None]
        lines.append([model, "frozen" if frozen else "live", forward, f"{statistics.median(result['median_ms'] for result in good):.2f}",
                      f"{rate:,.0f}", f"{rate / statistics.median(other):.2f}" if other else "",
                      *(f"{max(result[key] for result in good):.2f}" for key in ("peak_gib", "used_gib"))])
    return markdown.table(["network", "BatchNorm", "forward", "ms", "images/s", "of the simulation's", "GiB in tensors", "GiB of the GPU"], lines)


def case_names(path, cases):
    """Names of a program's cases that the filter lets pass."""
    listing = subprocess.run([path, "--gtest_list_tests", f"--gtest_filter={cases}"], stdout=subprocess.PIPE, text=True, check=True).stdout
    names, suite = [], ""
    for line in listing.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + name)
        elif name.endswith("."):
            suite = name
    return names


def run_tests(out, dry):
    problems = []
    folder = out / "forward"
    folder.mkdir(parents=True, exist_ok=True)
    for name, cases in NETWORKS.items():
        code, found, took = tests.run_program(name, folder, 480, [f"--gtest_filter={cases}"])
        counts = {result: sum(case.result == result for case in found) for result in ("passed", "failed", "skipped")}
        print(f"{name:<28}{counts['passed']:>5} passed {counts['failed']:>5} failed {counts['skipped']:>5} skipped {took:>8.1f} s", flush=True)
        problems += [f"{case.name}: {case.message}" for case in found if case.result != "passed"]
        if not found or (code != 0 and counts["failed"] == 0):
            problems.append(f"{name}: exit {code}, see {folder / name}.log")
        if dry:
            break
    return problems


def run_sanitizer(out, dry):
    problems = []
    jobs = [(name, tool, cases) for tool in sanitize.TOOLS for name, cases in KERNELS.items()]
    jobs += [(name, "memcheck", cases) for name, cases in UNDER_MEMCHECK.items()]
    for name, tool, cases in jobs[:1] if dry else jobs:
        folder = out / "forward" / tool
        folder.mkdir(parents=True, exist_ok=True)
        row, bad = sanitize.check(name, tool, case_names(programs.program(name), cases), folder, 300, None)
        print(f"{name:<28}{tool:<11}{row['reports']:>5} reports {row['elsewhere']:>5} elsewhere {row['seconds']:>8.1f} s", flush=True)
        problems += bad
    return problems


def run_speed(out, models, turns, dry):
    def run(words):
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            result = json.loads(done.stdout)
            print(f"{' '.join(words[1:])}: {result['median_ms']:.2f} ms", flush=True)  # a call that is stopped keeps it
            return result
        print(f"{' '.join(words[1:])}: {done.stderr.strip()}", flush=True)
        return None

    if dry:
        models, turns = ["resnet18"], 1
    found = rows_of(models, turns, 0.05 if dry else 0.7, programs.program("train_bench"), run)
    (out / "forward.json").write_text(json.dumps([result for results in found.values() for result in results], indent=2))
    print(speed_table(found))
    return [f"train_bench failed: {' '.join(map(str, key))}" for key, results in found.items() if None in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="resnet50,mobilenet_v2,efficientnet_b0")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--parts", default="tests,speed,sanitize", help="of these")
    parser.add_argument("--dry", action="store_true", help="one test program, one case under one tool, one network's step")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    parts = {"tests": lambda: run_tests(arguments.out, arguments.dry), "sanitize": lambda: run_sanitizer(arguments.out, arguments.dry),
             "speed": lambda: run_speed(arguments.out, arguments.models.split(","), arguments.turns, arguments.dry)}
    problems = []
    for part in arguments.parts.split(","):
        if part not in parts:
            parser.error(f"no part '{part}'; there are {', '.join(parts)}")
        problems += parts[part]()
    for line in problems:
        print(f"FAILED {line}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
