#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the quick cases of every GPU test program under compute-sanitizer's four tools, on all GPUs at once.

Quick is what took least time in the stage tests (which runs first if it did not), up to --budget seconds a program: the tools make
kernels 10 to 1000 times slower. Reports about kernels that are not octet's (LibTorch, cuDNN) are counted apart: they fail nothing.
"""
import argparse
import collections
import json
import pathlib
import re
import shutil
import sys
import threading
import typing

import gpus
import programs
import tests

# initcheck must see every kernel, since others may have written what octet reads; races are looked for in octet's kernels alone.
TOOLS = {
    "racecheck": ["--kernel-name", "kernel_substring=octet"],
    "memcheck": ["--report-api-errors", "no"],
    "initcheck": [],
    "synccheck": ["--kernel-name", "kernel_substring=octet"],
}
SHARE = {"racecheck": 1 / 3}  # of the budget: convolutions, all shared memory, are ten times slower under it than under the others

# What was seen not to work on an H200 (compute-sanitizer of CUDA 13.0). Octet's kernels in these programs run under the tool in others.
STOPS = "the tool stops in LibTorch's kernels: Internal Sanitizer Error"
READS = "cuDNN's BatchNorm reads what nobody wrote, without end"
LEFT_OUT = {
    ("test_trainers_cuda", "racecheck"): STOPS,
    ("test_qat_quantizers_cuda", "racecheck"): STOPS,
    ("test_engine_cudnn", "racecheck"): "not done after two minutes",
    ("test_trainers_cuda", "initcheck"): READS,
    ("test_qat_quantizers_cuda", "initcheck"): READS,
}

# Kernels of octet whose input a library wrote with stores (TMA) that initcheck does not see: their reports count as elsewhere. Seen on an
# H200: all eight of cuBLASLt's plans overwrite every poisoned sum; after the two sm90_xmma plans the reader of the sums is reported.
UNSEEN = {("test_engine_cudnn", "initcheck"): ("rescale_sums_kernel",)}


class Report(typing.NamedTuple):
    what: str  # "Invalid __global__ write of size 4 bytes"
    where: str  # "octet::(anonymous namespace)::kernel(...)+0x40"


def reports(log):
    """The tool's findings, from lines like "========= Invalid ..." followed by "=========     at KERNEL"."""
    found, lines = [], [line.removeprefix("=========") for line in log.splitlines() if line.startswith("=========")]
    for line, following in zip(lines, lines[1:] + [""]):
        where = re.match(r"\s{2,}(?:at|and|in) (.*)", following)
        if re.match(r" \S", line) and where and not line.startswith((" ERROR", " RACECHECK", " COMPUTE")):
            found.append(Report(line.strip(), where.group(1)))
    return found


def is_ours(report, name, tool):
    return "octet" in report.where and not any(kernel in report.where for kernel in UNSEEN.get((name, tool), ()))


def finished(log):
    return "ERROR SUMMARY" in log or "RACECHECK SUMMARY" in log


def quick_cases(found, budget):
    """Names of passed cases, quickest first, that together took at most `budget` seconds; at least one."""
    chosen, spent = [], 0.0
    for case in sorted((case for case in found if case.result == "passed"), key=lambda case: case.seconds):
        spent += case.seconds
        if chosen and spent > budget:
            break
        chosen.append(case.name)
    return chosen


def earlier_cases(name, out):
    """From the stage tests, or run now."""
    folder = out / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / f"{name}.xml"
    return tests.cases(result) if result.exists() else tests.run_program(name, folder, 480)[1]


def check(name, tool, chosen, folder, limit, gpu):
    """One row: what the tool says about the cases of a program."""
    code, found, took = tests.run_program(name, folder, limit, [f"--gtest_filter={':'.join(chosen)}"],
                                          [shutil.which("compute-sanitizer"), "--tool", tool, "--print-limit", "10000", *TOOLS[tool]], gpu)
    log = (folder / f"{name}.log").read_text(errors="replace")
    findings = reports(log)
    ours = [report for report in findings if is_ours(report, name, tool)]
    passed = sum(case.result == "passed" for case in found)
    problems = [f"{name}, {tool}: {count} times {report.what} at {report.where}" for report, count in collections.Counter(ours).items()]
    if isinstance(code, str) or not finished(log):
        problems.append(f"{name}, {tool}: did not finish: {code}; see {folder / name}.log")
    elif passed < len(chosen):
        problems.append(f"{name}, {tool}: {len(chosen) - passed} of {len(chosen)} cases did not pass under the tool; see {folder / name}.log")
    return {"program": name, "tool": tool, "cases": len(chosen), "reports": len(ours), "elsewhere": len(findings) - len(ours),
            "seconds": took}, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--budget", type=float, default=1.2, help="seconds of a program's cases without a tool")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one program under one tool")
    parser.add_argument("--dry", action="store_true", help="one case of each program")
    arguments = parser.parse_args()
    if shutil.which("compute-sanitizer") is None:
        sys.exit("sanitize: no compute-sanitizer in PATH; it comes with the CUDA toolkit")
    budget = 0 if arguments.dry else arguments.budget
    cases = {name: earlier_cases(name, arguments.out) for name in programs.gpu_tests()}
    chosen = {(name, tool): quick_cases(found, budget * SHARE.get(tool, 1)) for tool in TOOLS for name, found in cases.items()
              if (name, tool) not in LEFT_OUT}
    rows, problems = [], [f"{name}, {tool}: no case passed without a tool" for (name, tool), some in chosen.items() if not some]
    writing = threading.Lock()
    print(f"{'program':<28}{'tool':<11}{'cases':>6}{'reports':>9}{'elsewhere':>11}{'seconds':>9}", flush=True)

    def run(job, gpu):
        name, tool = job
        folder = arguments.out / "sanitize" / tool
        folder.mkdir(parents=True, exist_ok=True)
        row, bad = check(name, tool, chosen[job], folder, arguments.limit, gpu)
        with writing:  # told and kept at once: a machine may be taken away before the last program
            rows.append(row)
            problems.extend(bad)
            print(f"{row['program']:<28}{row['tool']:<11}{row['cases']:>6}{row['reports']:>9}{row['elsewhere']:>11}{row['seconds']:>9.1f}", flush=True)
            (arguments.out / "sanitize.json").write_text(json.dumps({"runs": rows, "problems": problems}, indent=2))

    gpus.share([job for job, some in chosen.items() if some], gpus.visible(), run)
    for (name, tool), why in LEFT_OUT.items():
        print(f"left out: {name}, {tool}: {why}")
    for line in problems:
        print(f"FAILED {line}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
