#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every GPU test program and counts: cases passed, failed and skipped, and the time."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing
import xml.etree.ElementTree

import gpus
import programs


# Why a case may be skipped on a GPU machine; what needs a GPU or cuDNN must run there; CUTLASS is optional.
GOOD_REASONS = ("this machine has a GPU", "24 GiB", "built without CUTLASS", "this build has CUTLASS", "GPUs: 1 can be seen")


class Case(typing.NamedTuple):
    name: str
    result: str  # passed, failed, skipped
    seconds: float
    message: str


def cases(path):
    """From GoogleTest's XML output (its JSON lacks the reasons of skipped cases before version 1.13); none if the file is missing or cut."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return []
    found = []
    for test in root.iter("testcase"):
        name, seconds = f"{test.get('classname')}.{test.get('name')}", float(test.get("time"))
        failure, skipped = test.find("failure"), test.find("skipped")
        if failure is not None:
            found.append(Case(name, "failed", seconds, last_line(failure.get("message"))))
        elif test.get("status") != "run" or skipped is not None:
            found.append(Case(name, "skipped", seconds, last_line(skipped.get("message")) if skipped is not None else "disabled"))
        else:
            found.append(Case(name, "passed", seconds, ""))
    return found


def last_line(text):
    lines = (text or "").strip().splitlines()
    return lines[-1].strip() if lines else "no message"


def first_case(path):
    """Name of a program's first case."""
    lines = subprocess.run([path, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    suite = ""
    for line in lines:
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            return suite + name
        if name.endswith("."):
            suite = name
    raise ValueError(f"{path} has no cases")


def run_program(name, folder, limit, arguments=(), wrapper=(), gpu=None):
    """Runs a test program, perhaps under a tool. Returns (exit code or text, cases, seconds); output goes to folder/name.log."""
    path, result = programs.program(name), folder / f"{name}.xml"
    result.unlink(missing_ok=True)
    start = time.monotonic()
    command = [*wrapper, path, "--gtest_brief=1", f"--gtest_output=xml:{result}", *arguments]
    with open(folder / f"{name}.log", "w") as log:
        try:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=gpus.environment(gpu), start_new_session=True)
        except OSError as error:
            return f"{path}: {error.strerror}", [], 0.0
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = f"stopped after {limit} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the wrapper and the program under it
                process.wait()
    return code, cases(result), time.monotonic() - start


def chosen(names, known):
    """Of a list with commas the programs in their order; all for an empty one."""
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if name not in known:
            sys.exit(f"tests: no GPU test program '{name}'; there are {', '.join(known)}")
    return wanted or known


def print_row(row):
    """At once: a call that is stopped keeps the rows before."""
    print(f"{row['program']:<28}{row['passed']:>8}{row['failed']:>8}{row['skipped']:>9}{row['seconds']:>9.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=float, default=480, help="seconds for one program")
    parser.add_argument("--programs", default="", help="only these: test_qat_cuda,test_engine_cuda")
    parser.add_argument("--dry", action="store_true", help="the first case of each program only")
    arguments = parser.parse_args()
    folder = arguments.out / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    rows, problems, skips, start = [], [], [], time.monotonic()
    print(f"{'program':<28}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}", flush=True)
    for name in chosen(arguments.programs, programs.gpu_tests()):
        some = [f"--gtest_filter={first_case(programs.program(name))}"] if arguments.dry else []
        code, found, took = run_program(name, folder, arguments.limit, some)
        counts = {result: sum(case.result == result for case in found) for result in ("passed", "failed", "skipped")}
        rows.append({"program": name, "exit": code, "seconds": took, **counts})
        print_row(rows[-1])
        problems += [f"{case.name}: {case.message}" for case in found if case.result == "failed"]
        if not found or (code != 0 and counts["failed"] == 0):
            problems.append(f"{name}: exit {code}, see {folder / name}.log")
        skips += [f"{case.name}: {case.message}" for case in found if case.result == "skipped"]
    total = {key: sum(row[key] for row in rows) for key in ("passed", "failed", "skipped")}
    wrong = [line for line in skips if not any(reason in line for reason in GOOD_REASONS)]
    problems += [f"skipped here, where it must run: {line}" for line in wrong[:5]]
    if len(wrong) > 5:
        problems.append(f"and {len(wrong) - 5} cases more")
    if total["passed"] == 0:
        problems.append("no case passed")
    (arguments.out / "tests.json").write_text(json.dumps({"programs": rows, "problems": problems, "skipped": skips}, indent=2))

    print_row({"program": "all", "seconds": time.monotonic() - start, **total})
    for line in skips:
        print(f"skipped {line}")
    for line in problems:
        print(f"FAILED {line}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
